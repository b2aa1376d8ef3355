"""Table 4 of the Low-Memory Training report: DynamicConv translates, at densities and storages.

    python -m benchmarks.memory dynamicconv [--model-memory int8]

Seven encoder and six decoder layers of width 512 and 1,024, four heads, no gates, vocabularies of
8,848 and 6,632 words, embeddings and head apart: 38,685,184 parameters. A sentence of 250 tokens is
a microbatch, 16 of them a minibatch. Embeddings and head are sparse too where a row is.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from edgetrain.api import compile as compile_program
from edgetrain.losses import Loss
from edgetrain.ops.model import Model
from edgetrain.optim import Adam
from edgetrain.program import Program
from examples.zoo.lightconv import Block, DynamicConv

from .memory import Row
from .memory import lines as table
from .nets import exported

PARAMETERS = 38_685_184
WIDTH, HEADS, TOKENS, MINIBATCH = 512, 4, 250, 16
SOURCE, TARGET = 8_848, 6_632  # words
ENCODER, DECODER = (3, 7, 15, 31, 31, 31, 31), (3, 7, 15, 31, 31, 31)  # taps
EMBEDDED = ("source.weight", "target.weight", "head.weight")

_FIGURES = {1.0: (662, 331), 0.5: (380, 201), 0.4: (315, 166), 0.3: (249, 131)}
ROWS = tuple(
    Row(megabytes, 1, density, precision)
    for density, pair in _FIGURES.items()
    for megabytes, precision in zip(pair, ("fp32", "fp16"), strict=True)
)
INT8_ROWS = (Row(185, 1, 1.0, model_memory="int8"),)


class Translator(nn.Module):
    """Token ids of both languages [batch, time] -> logits [batch, time, words]."""

    def __init__(
        self, source: int, target: int, width: int, heads: int, encoder: tuple[int, ...],
        decoder: tuple[int, ...], dropout: float = 0.3,
    ) -> None:  # fmt: skip
        super().__init__()
        self.source, self.target = nn.Embedding(source, width), nn.Embedding(target, width)

        def block(taps: int, decoder: bool) -> Block:
            conv = DynamicConv(width, heads, taps, decoder)
            return Block(conv, width, heads, decoder, gated=False, dropout=dropout)

        self.encoder = nn.ModuleList(block(taps, False) for taps in encoder)
        self.decoder = nn.ModuleList(block(taps, True) for taps in decoder)
        self.head = nn.Linear(width, target, bias=False)
        for words in (self.source, self.target):
            nn.init.normal_(words.weight, std=width**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, x = self.source(source), self.target(target)
        for block in self.encoder:
            memory = block(memory)
        for block in self.decoder:
            x = block(x, memory)
        return self.head(x)


def translator() -> Model:
    """The report's net."""
    torch.manual_seed(0)
    module = Translator(SOURCE, TARGET, WIDTH, HEADS, ENCODER, DECODER)
    assert sum(p.numel() for p in module.parameters()) == PARAMETERS
    words = partial(torch.zeros, dtype=torch.long)
    return exported(module, (words(2, TOKENS), words(2, TOKENS)))


def compiled(model: Model, row: Row) -> Program:
    """The Program of a row, inside the report's figure."""
    overrides = dict.fromkeys(EMBEDDED, row.density) if row.density < 1 else {}
    return compile_program(
        model, budget=f"{row.megabytes}MB", minibatch=MINIBATCH, microbatch=row.microbatch,
        density=row.density, density_overrides=overrides, precision=row.precision,
        model_memory=row.model_memory, optimizer=Adam(lr=5e-4, beta2=0.98),
        loss=Loss("cross_entropy", label_smoothing=0.1),
    )  # fmt: skip


def lines(model_memory: str | None = None) -> Iterator[str]:
    """The table, a line as soon as it is known."""
    return table(translator(), INT8_ROWS if model_memory else ROWS, compiled)
