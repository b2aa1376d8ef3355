"""Attention by blocks: torch agrees however it is written, plans and threads change no bit."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.exporters import export_torch

WORDS, TIME, WIDTH, HEADS = 41, 70, 16, 4
SIZE = WIDTH // HEADS
BLOCKS = {"allow": ("attention",)}
LOW = float(torch.finfo(torch.float32).min)


def causal():
    return torch.ones(TIME, TIME, dtype=torch.bool).tril()


def eager(scores, mask=None, low=-math.inf, p=0.0):
    if mask is not None:
        scores = scores.masked_fill(~mask, low)
    return F.dropout(scores.softmax(-1), p)


# What people write: (q, k, v [batch, heads, time, size], token ids) -> [batch, heads, time, size].
WAYS = {
    "torch": lambda q, k, v, x: F.scaled_dot_product_attention(q, k, v),
    "torch, causal": lambda q, k, v, x: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "torch, padding": lambda q, k, v, x: F.scaled_dot_product_attention(
        q, k, v, (x != 0)[:, None, None, :]
    ),
    "torch, causal and padding": lambda q, k, v, x: F.scaled_dot_product_attention(
        q, k, v, causal() & (x != 0)[:, None, None, :]
    ),
    "torch, bias": lambda q, k, v, x: F.scaled_dot_product_attention(
        q, k, v, -0.1 * (torch.arange(TIME) - torch.arange(TIME)[:, None]).abs().float()
    ),
    "divided": lambda q, k, v, x: eager(q @ k.transpose(-1, -2) / 2.0) @ v,
    "scaled before": lambda q, k, v, x: eager((q * 0.5) @ k.transpose(-1, -2)) @ v,
    "scaled twice": lambda q, k, v, x: eager((q / 2) @ (k * 0.7).transpose(2, 3) * 1.3) @ v,
    "causal": lambda q, k, v, x: eager(q @ k.transpose(-1, -2) / 2, causal()) @ v,
    "causal, lowest": lambda q, k, v, x: eager(q @ k.transpose(-1, -2) / 2, causal(), LOW) @ v,
    "causal, -1e9": lambda q, k, v, x: eager(q @ k.transpose(-1, -2) / 2, causal(), -1e9) @ v,
    "causal, added": lambda q, k, v, x: (
        (q @ k.transpose(-1, -2) / 2 + torch.where(causal(), 0.0, LOW)).softmax(-1) @ v
    ),
    "window": lambda q, k, v, x: (
        eager(
            q @ k.transpose(-1, -2), causal() & ~torch.ones(TIME, TIME, dtype=torch.bool).tril(-9)
        )
        @ v
    ),
    "padding, lowest": lambda q, k, v, x: (
        eager(q @ k.transpose(-1, -2), (x != 0)[:, None, None, :], LOW) @ v
    ),
    "padding, added": lambda q, k, v, x: (
        (q @ k.transpose(-1, -2) + (1.0 - (x != 0).float())[:, None, None] * -1e9).softmax(-1) @ v
    ),
    "padding, where added": lambda q, k, v, x: (
        (q @ k.mT + torch.where(x == 0, LOW, 0.0)[:, None, None]).softmax(-1) @ v
    ),
    "causal and padding, lowest": lambda q, k, v, x: (
        eager(q @ k.transpose(-1, -2), causal() & (x != 0)[:, None, None, :], LOW) @ v
    ),
    "causal, then padding": lambda q, k, v, x: (
        eager(
            (q @ k.transpose(-1, -2)).masked_fill(~causal(), LOW), (x != 0)[:, None, None, :], LOW
        )
        @ v
    ),
    "three axes": lambda q, k, v, x: torch.bmm(
        eager(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)), causal()),
        v.flatten(0, 1),
    ).unflatten(0, (-1, HEADS)),
    "shared keys": lambda q, k, v, x: F.scaled_dot_product_attention(
        q,
        k[:, :2].repeat_interleave(2, 1),
        v[:, :2, None].expand(-1, -1, 2, -1, -1).flatten(1, 2),
        is_causal=True,
    ),
    "one key head": lambda q, k, v, x: (
        eager(q @ k[:, :1].expand(-1, HEADS, -1, -1).transpose(2, 3))
        @ v[:, :1].expand(-1, HEADS, -1, -1)
    ),
    "times by einsum": lambda q, k, v, x: torch.einsum(
        "bhij,bhjd->bhid", eager(torch.einsum("bhid,bhjd->bhij", q, k), causal()), v
    ),
}


class Net(nn.Module):
    """Token ids -> classes, with one attention between."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.tokens, self.inner = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.outer = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        parts = self.inner(self.tokens(x)).chunk(3, -1)
        q, k, v = (part.unflatten(2, (HEADS, SIZE)).transpose(1, 2) for part in parts)
        y = WAYS[self.way](q, k, v, x)
        return self.outer(y.transpose(1, 2).flatten(2))


def ids(batch: int = 4, seed: int = 0) -> np.ndarray:
    """Words, of which the first ones of some samples are 0: left padding hides all keys there."""
    x = np.random.default_rng(seed).integers(1, WORDS, (batch, TIME)).astype(np.int32)
    x[0, -5:] = x[1, 20:30] = 0
    return x


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("attention")

    def made(way: str):
        path = folder / f"{sorted(WAYS).index(way)}.onnx"
        if not path.exists():
            torch.manual_seed(0)
            export_torch(Net(way), (torch.from_numpy(ids()).long(),), path)
        return et.load_onnx(path)

    return made


def ops_of(model, **options) -> list[str]:
    graphs = build_graphs(model, make_options(minibatch=4, **BLOCKS, **options), 4)
    return [node.op for graph in (graphs.train, graphs.evaluate) for node in graph.nodes]


@pytest.mark.parametrize("way", WAYS)
def test_attention_gives_what_the_whole_matrix_gives(nets, way: str) -> None:
    model, x = nets(way), ids()
    assert "attention_bwd" in ops_of(model) and "softmax" not in ops_of(model)
    given = {model.inputs[0].name: x}, np.roll(x, 1, 1)
    value, found = et.loss_and_gradients(model, *given, **BLOCKS)
    whole, expected = et.loss_and_gradients(model, *given)
    assert value == pytest.approx(whole, rel=1e-6)
    for name, gradient in found.items():
        size = np.abs(expected[name]).max()
        np.testing.assert_allclose(gradient, expected[name], 0, 2e-5 * size, err_msg=name)
