"""Small torch nets in torch's own exports, made for inference rather than training."""

import contextlib
import io
import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

TOKENS, LENGTH, WIDTH, CLASSES = 11, 6, 8, 3


class Recurrent(nn.Module):
    """Embedding, two bidirectional layers, head."""

    def __init__(self, kind: str = "LSTM") -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.rnn = getattr(nn, kind)(WIDTH, 5, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.embedding(ids))[0].mean(1))


class Encoder(nn.Module):
    """torch's encoder, whose layers start as equal copies, after a position table."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)
        at = torch.arange(LENGTH)[:, None] / 100 ** (torch.arange(WIDTH // 2) / (WIDTH // 2))
        self.register_buffer("positions", torch.stack([at.sin(), at.cos()], -1).flatten(1))

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(ids) + self.positions).mean(1))


class Decoder(nn.Module):
    """Rotary tables, a causal mask, learned positions, a head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(torch.randn(1, LENGTH, WIDTH) * 0.1)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.embedding.weight
        angle = torch.arange(LENGTH)[:, None] / 100 ** (torch.arange(WIDTH) / WIDTH)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -torch.inf).triu(1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm1(self.embedding(ids) + self.places)
        joint = self.qkv(x)  # a split would be a sequence, which has no op here
        q, k, v = (joint[..., at : at + WIDTH] for at in range(0, 3 * WIDTH, WIDTH))
        q, k = (t * self.cos + t.flip(-1) * self.sin for t in (q, k))
        mixed = (q @ k.transpose(1, 2) + self.mask).softmax(-1) @ v
        return self.head(self.norm2(x + mixed))


class Images(nn.Module):
    """Norms with and without parameters, PReLU slopes, a weight norm, a kernel from a softmax."""

    def __init__(self) -> None:
        super().__init__()
        normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3, padding=1))
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.PReLU(8), normed, nn.GroupNorm(2, 8),
            nn.InstanceNorm2d(8), nn.PReLU(8),
        )  # fmt: skip
        self.taps = nn.Parameter(torch.randn(8, 1, 9))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.taps.softmax(-1).reshape(8, 1, 3, 3)
        return self.head(nn.functional.conv2d(self.body(x), kernel, groups=8).mean((2, 3)))


NETS = {"lstm": Recurrent, "encoder": Encoder, "decoder": Decoder, "images": Images}
NETS["gru"] = lambda: Recurrent("GRU")

# The older exporter with and without folding, the newer one with and without its optimizer.
EXPORTERS = {
    "old": {"dynamo": False},
    "old unfolded": {"dynamo": False, "do_constant_folding": False},
    "new": {"dynamo": True},
    "new unfolded": {"dynamo": True, "optimize": False},
}


def batch(name: str, size: int = 4) -> Tensor:
    """Return a batch for the net."""
    shape = (size, 3, 7, 7) if name == "images" else (size, LENGTH)
    return torch.randn(shape) if name == "images" else torch.randint(0, TOKENS, shape)


def exported(name: str, exporter: str, folder: Path) -> tuple[nn.Module, Path]:
    """Return a net in evaluation mode and its export by torch."""
    torch.manual_seed(0)
    module, path = NETS[name]().eval(), folder / f"{name}.onnx"
    options = dict(EXPORTERS[exporter])
    if options["dynamo"]:
        options["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
    else:
        options["dynamic_axes"] = {"x": {0: "batch"}}
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, (batch(name),), str(path), input_names=["x"], output_names=["y"], **options
            )
    finally:
        logging.disable(before)
    return module, path
