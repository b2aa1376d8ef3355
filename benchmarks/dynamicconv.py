"""Table 4 of the Low-Memory Training report: DynamicConv translates, at densities and storages.

    python -m benchmarks.memory dynamicconv [--model-memory int8]

Seven encoder and six decoder layers of width 512 and 1,024, four heads, no gates, vocabularies of
8,848 and 6,632 words, separate embeddings and head: 38,685,184 parameters. A microbatch is one
sentence of 250 tokens, a minibatch 16 sentences. In sparse rows, embeddings and head are sparse
too. Rewiring follows the report's Table 9.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from edgetrain.api import compile as compile_program
from edgetrain.losses import Loss
from edgetrain.ops.model import Model
from edgetrain.optim import Adam
from edgetrain.program import Program
from examples.zoo.lightconv import Block, ConvSeq2Seq, DynamicConv

from .memory import Row
from .memory import lines as table
from .nets import exported
from .rewirings import rewiring

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


class Translator(ConvSeq2Seq):
    """Token ids of both languages [batch, time] -> logits [batch, time, words].

    Args:
      source, target: vocabulary sizes; embeddings and head are separate.
      width, heads: channels, and kernels per convolution.
      encoder, decoder: taps of each block.
    """

    def __init__(
        self,
        source: int,
        target: int,
        width: int,
        heads: int,
        encoder: tuple[int, ...],
        decoder: tuple[int, ...],
        dropout: float = 0.3,
    ) -> None:
        def blocks(kernels: tuple[int, ...], causal: bool) -> list[Block]:
            convs = (DynamicConv(width, heads, taps, causal) for taps in kernels)
            return [Block(conv, width, heads, causal, False, dropout) for conv in convs]

        super().__init__(
            nn.Embedding(source, width),
            nn.Embedding(target, width),
            blocks(encoder, False),
            blocks(decoder, True),
            nn.Linear(width, target, bias=False),
        )
        for words in (self.source, self.target):
            nn.init.normal_(words.weight, std=width**-0.5)


def translator() -> Model:
    """The report's network."""
    torch.manual_seed(0)
    module = Translator(SOURCE, TARGET, WIDTH, HEADS, ENCODER, DECODER)
    assert sum(p.numel() for p in module.parameters()) == PARAMETERS
    words = partial(torch.zeros, dtype=torch.long)
    return exported(module, (words(2, TOKENS), words(2, TOKENS)))


def compiled(model: Model, row: Row) -> Program:
    """Compile a row within the report's figure."""
    sparse: dict[str, Any] = {}
    if row.density < 1:
        overrides = dict.fromkeys(EMBEDDED, row.density)
        sparse = {"density_overrides": overrides, "rewiring": rewiring(row.density)}
    return compile_program(
        model,
        verbose=False,
        budget=f"{row.megabytes}MB",
        minibatch=MINIBATCH,
        microbatch=row.microbatch,
        density=row.density,
        precision=row.precision,
        model_memory=row.model_memory,
        optimizer=Adam(lr=5e-4, beta2=0.98),
        loss=Loss("cross_entropy", label_smoothing=0.1),
        **sparse,
    )


def lines(model_memory: str | None = None) -> Iterator[str]:
    """Yield the table, each line as soon as it is measured."""
    return table(translator(), INT8_ROWS if model_memory else ROWS, compiled)
