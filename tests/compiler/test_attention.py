"""Blockwise attention: equals torch however it is written; plans and threads change no bit."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.compiler.advice.memory_options import savings
from edgetrain.compiler.attention.masks import band_of
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from tests.quick import slow_between

pytestmark = pytest.mark.usefixtures("every_rung")

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


# Common spellings: (q, k, v [batch, heads, time, size], token ids) -> [batch, heads, time, size].
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
    """Token ids -> classes, through one attention layer."""

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
    """Draw token ids; 0 marks padding, at the end of sample 0 and in the middle of sample 1."""
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
    graphs = build_graphs(Compilation(model, make_options(minibatch=4, **BLOCKS, **options)), 4)
    return [node.op for graph in (graphs.train, graphs.evaluate) for node in graph.nodes]


def check_equals_whole(model, x) -> None:
    """Check that blocks give the same loss and gradients as the whole score matrix."""
    given = {model.inputs[0].name: x}, np.roll(x, 1, 1)
    value, found = et.loss_and_gradients(model, *given, **BLOCKS)
    whole, expected = et.loss_and_gradients(model, *given)
    assert value == pytest.approx(whole, rel=1e-6)
    for name, gradient in found.items():
        size = np.abs(expected[name]).max()
        np.testing.assert_allclose(gradient, expected[name], 0, 2e-5 * size, err_msg=name)


@pytest.mark.parametrize("way", slow_between(WAYS, 2))
def test_attention_gives_what_the_whole_matrix_gives(nets, way: str) -> None:
    model, x = nets(way), ids()
    assert "attention_bwd" in ops_of(model) and "softmax" not in ops_of(model)
    check_equals_whole(model, x)


@pytest.mark.parametrize("way", ["torch, padding", "causal and padding, lowest", "window"])
def test_attention_equals_torch(nets, way: str) -> None:
    report = parity(nets(way), steps=2, minibatch=4, **BLOCKS)
    assert report.ok, report.summary()


LOWEST = [way for way in WAYS if "lowest" in way or "and padding" in way]


@pytest.mark.parametrize("way", LOWEST)
def test_queries_whose_keys_are_all_masked_see_them_all_alike(nets, way: str) -> None:
    model, x = nets(way), ids()
    x[2, :66] = x[3] = 0
    check_equals_whole(model, x)


@pytest.mark.parametrize("way", ["torch, causal and padding", "padding, lowest", "shared keys"])
def test_the_matrix_of_scores_is_never_there(nets, way: str) -> None:
    graphs = build_graphs(Compilation(nets(way), make_options(minibatch=4, **BLOCKS)), 4)
    for graph in (graphs.train, graphs.evaluate):
        assert max(v.size for v in graph.values.values()) < 4 * TIME * max(3 * WIDTH, WORDS) + 1
        assert not [v.name for v in graph.values.values() if v.shape[-2:] == (TIME, TIME)]


def trained(program, threads: int | None = None, steps: int = 3) -> dict[str, bytes]:
    trainer = et.Trainer(program, threads=threads)
    try:
        for step in range(steps):
            x = ids(4, step)
            trainer.step(x, np.roll(x, 1, 1))
        return {name: array.tobytes() for name, array in trainer.session.state().items()}
    finally:
        trainer.close()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_plans_and_threads_change_no_bit(nets, precision: str) -> None:
    model = nets("causal and padding, lowest")
    given = {"minibatch": 4, "microbatch": 2, "optimizer": et.Adam(lr=0.01), **BLOCKS}
    given["precision"] = precision
    front = plan_model(model, make_options(threads=3, **given))[1]
    assert len(front) > 1
    programs = [
        et.compile(model, budget=plan.arena_nbytes, threads=3, **given)
        for plan in (front[0], front[-1])
    ]
    expected = trained(programs[0])
    assert trained(programs[1]) == expected
    for threads in (1, 2):
        assert trained(programs[1], threads) == expected
    with pytest.raises(et.BudgetError):
        et.compile(model, budget=front[0].arena_nbytes - 1, threads=3, **given)


def test_evaluation_and_a_program_from_disk_give_the_same(nets, tmp_path: Path) -> None:
    model = nets("torch, causal and padding")
    program = et.compile(model, minibatch=4, **BLOCKS)
    again = et.load_program(program.save(tmp_path / "p.edge"))
    assert trained(again) == trained(program) and again.digest() == program.digest()
    found = []
    for one in (again, et.compile(model, minibatch=4)):
        trainer = et.Trainer(one)
        found.append(trainer.predict(ids()))
        trainer.close()
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_the_ladder_and_a_small_budget_name_blocks(tmp_path: Path) -> None:
    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            x = self.inner(x)
            return self.outer(((x @ x.mT).softmax(-1) @ x).mean(1))

    export_torch(Long(), (torch.randn(2, 200, 3),), tmp_path / "long.onnx")
    model, options = et.load_onnx(tmp_path / "long.onnx"), make_options(minibatch=2, microbatch=2)
    plan, front, _ = plan_model(model, options)
    (row,) = [r for r in savings(front, plan) if r.name == "attention"]
    assert not row.taken and row.kind == "same mathematics" and row.saved_nbytes > 2 * 200 * 200
    with pytest.raises(et.BudgetError, match="Try --allow attention"):
        et.compile(model, minibatch=2, microbatch=1, budget=1000)


class Dropped(Net):
    def __init__(self) -> None:
        super().__init__("causal")

    def forward(self, x):
        parts = self.inner(self.tokens(x)).chunk(3, -1)
        q, k, v = (part.unflatten(2, (HEADS, SIZE)).transpose(1, 2) for part in parts)
        weights = (q @ k.transpose(2, 3)).masked_fill(~causal(), LOW).softmax(-1)
        y = F.dropout(weights, 0.3, self.training) @ v
        return self.outer(y.transpose(1, 2).flatten(2))


def test_dropout_drops_what_it_would_drop_of_the_matrix(tmp_path: Path) -> None:
    export_torch(Dropped(), (torch.from_numpy(ids()).long(),), tmp_path / "dropped.onnx")
    model, x = et.load_onnx(tmp_path / "dropped.onnx"), ids()
    found = ops_of(model)
    assert "attention_bwd" in found and "dropout" not in found
    given = {model.inputs[0].name: x}, np.roll(x, 1, 1)
    for dropout in (True, False):
        value, gradients = et.loss_and_gradients(model, *given, dropout=dropout, **BLOCKS)
        whole, expected = et.loss_and_gradients(model, *given, dropout=dropout)
        assert value == pytest.approx(whole, rel=1e-6)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, expected[name], 1e-4, 1e-6, err_msg=name)


def test_roundings_of_saved_values_bear_heads_that_attend_sharply(tmp_path: Path) -> None:
    """The scores are not rounded: exp would turn their rounding errors into large weight errors."""
    torch.manual_seed(0)
    net, x = Net("causal"), ids()
    with torch.no_grad():
        net.inner.weight[: 2 * WIDTH] *= 6  # scores with a standard deviation of 12
    model = exported(net, tmp_path / "sharp.onnx")
    given = {model.inputs[0].name: x}, np.roll(x, 1, 1)
    _, expected = et.loss_and_gradients(model, *given)
    _, gradients = et.loss_and_gradients(model, *given, saved="int8", **BLOCKS)
    for name, gradient in gradients.items():
        norm = np.linalg.norm(expected[name])
        assert np.linalg.norm(gradient - expected[name]) < 0.03 * norm, name


# Attention that is left as it is: (q, k, v, x) as in WAYS.
OTHERS = {
    "learned bias": lambda net, q, k, v, x: (q @ k.mT + net.outer.weight[0, 0]).softmax(-1) @ v,
    "capped": lambda net, q, k, v, x: torch.tanh(q @ k.mT).softmax(-1) @ v,
    # the scale would apply to the bias too
    "biased, then scaled": lambda net, q, k, v, x: (
        ((q @ k.mT + torch.arange(TIME).float()) * 0.5).softmax(-1) @ v
    ),
    "other axis": lambda net, q, k, v, x: (q @ k.mT).softmax(-2) @ v,
    "weights are used twice": lambda net, q, k, v, x: (
        (w := (q @ k.mT).softmax(-1)) @ v * w.mean(-1, keepdim=True)
    ),
}


class Other(Net):
    def __init__(self, way: str, both: bool) -> None:
        super().__init__("torch")
        self.other, self.both = way, both

    def forward(self, x):
        parts = self.inner(self.tokens(x)).chunk(3, -1)
        q, k, v = (part.unflatten(2, (HEADS, SIZE)).transpose(1, 2) for part in parts)
        y = OTHERS[self.other](self, q, k, v, x)
        if self.both:
            y = y + WAYS["causal"](1.5 * q, k, v, x)
        return self.outer(y.transpose(1, 2).flatten(2))


def exported(net: nn.Module, path: Path):
    export_torch(net, (torch.from_numpy(ids()).long(),), path)
    return et.load_onnx(path)


@pytest.mark.parametrize("way", OTHERS)
def test_what_is_no_such_attention_is_refused(tmp_path: Path, way: str) -> None:
    with pytest.raises(et.ModelError, match="allow attention: the model has no"):
        et.compile(exported(Other(way, False), tmp_path / "other.onnx"), **BLOCKS)


def test_what_is_no_such_attention_stays_beside_one_that_is(tmp_path: Path) -> None:
    assert {"softmax", "attention"} <= set(ops_of(exported(Other("capped", True), tmp_path / "m")))


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (np.tril(np.ones((5, 5))), (5, 0)),
        (np.tril(np.ones((3, 5)), 2), (3, 2)),
        (np.tril(np.ones((6, 6)), 1) - np.tril(np.ones((6, 6)), -3), (2, 1)),
        (np.tril(np.ones((2, 2, 5, 5))), (5, 0)),
        (np.ones((4, 1)), (4, 1)),
        (np.tril(np.ones((5, 5)), -1), None),
        (np.eye(5)[::-1], None),
        (np.ones((1, 5)), None),
    ],
)
def test_bands_are_known(shown: np.ndarray, found: tuple[int, int] | None) -> None:
    m, n = (shown.shape[-2], shown.shape[-1]) if shown.shape != (1, 5) else (5, 5)
    assert band_of(shown == 0, m, n) == found


class Normed(nn.Module):
    """A recording [2, TIME] -> classes: convolution and batch-norm, then attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, WIDTH, 5, 1, 2), nn.BatchNorm1d(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.outer = nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = self.norm(self.conv(x)).relu().transpose(1, 2)
        return self.outer((h + self.attend(h, h, h, need_weights=False)[0]).mean(1))


def test_batch_norm_before_attention_keeps_moving_its_statistics(tmp_path: Path) -> None:
    torch.manual_seed(0)
    export_torch(Normed(), (torch.zeros(2, 2, TIME),), tmp_path / "normed.onnx")
    model, rng = et.load_onnx(tmp_path / "normed.onnx"), np.random.default_rng(0)
    assert {"attention", "bn_running"} <= set(ops_of(model))
    x, y = rng.standard_normal((4, 2, TIME)).astype(np.float32), rng.integers(0, 3, 4)
    states = []
    for options in (BLOCKS, {}):
        trainer = et.Trainer(et.compile(model, minibatch=4, **options))
        trainer.step(x, y)
        states.append(trainer.session.state() | {"predicted": trainer.predict(x)})
        trainer.close()
    for name, found in states[0].items():
        np.testing.assert_allclose(found, states[1][name], 1e-4, 1e-5, err_msg=name)
    assert states[0]["norm.running_mean"].any()


def test_a_budget_too_small_gives_advice_that_works_beside_batch_norm(tmp_path: Path) -> None:
    torch.manual_seed(0)
    export_torch(Normed(), (torch.zeros(2, 2, 2 * TIME),), tmp_path / "long.onnx")
    with pytest.raises(et.BudgetError, match="Try --allow attention"):
        et.compile(tmp_path / "long.onnx", minibatch=8, microbatch=1, budget="10KB")
