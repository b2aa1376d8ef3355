"""Logits in slices: equal to torch; plans and threads change no bit; evaluation needs no logits."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from edgetrain.losses import Loss
from edgetrain.ops.linear_loss import parts
from tests.quick import slow_between

pytestmark = pytest.mark.usefixtures("every_rung")

CLASSES, WIDTH, TIME = 1300, 24, 5
SLICES = {"allow": ("slices",)}


class Words(nn.Module):
    """Token ids -> logits; `kind` is one of the common ways to write the last layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.tokens, self.inner = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=kind not in ("tied", "turned"))
        nn.init.normal_(self.tokens.weight, std=0.3)
        if kind == "tied":
            self.head.weight = self.tokens.weight
        if kind == "turned":
            self.table = nn.Parameter(torch.randn(WIDTH, CLASSES) / 5)
            del self.head

    def forward(self, x):
        x = self.tokens(x) + torch.tanh(self.inner(self.tokens(x)))
        if self.kind == "rows":  # [batch * time, classes]
            return self.head(x.reshape(-1, WIDTH)).reshape(-1, TIME, CLASSES)
        if self.kind == "time":  # time before batch until the end
            return self.head(x.transpose(0, 1)).transpose(0, 1)
        if self.kind == "axis":  # classes on axis 1, as torch's loss expects
            return self.head(x).transpose(1, 2)
        if self.kind == "turned":
            return x @ self.table
        if self.kind == "softmax":
            return torch.log_softmax(self.head(x), -1)
        return self.head(x)


KINDS = ("plain", "tied", "rows", "time", "axis", "turned", "softmax")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("words")

    def made(kind: str):
        path = folder / f"{kind}.onnx"
        if not path.exists():
            torch.manual_seed(0)
            export_torch(Words(kind), (torch.randint(CLASSES, (4, TIME)),), path)
        return et.load_onnx(path)

    return made


LOSSES = {
    "usual": Loss("cross_entropy"),
    "smoothing": Loss("cross_entropy", label_smoothing=0.1),
    "weights": Loss(
        "cross_entropy",
        class_weights=tuple(0.5 + k % 3 for k in range(CLASSES)),
        label_smoothing=0.2,
    ),
    "samples": Loss("cross_entropy", sample_weights=True),
}
STORED = {
    "fp32": {},
    "fp16": {"precision": "fp16"},
    "int8": {"model_memory": "int8"},
    "fp16, int8": {"precision": "fp16", "model_memory": "int8"},
}


def of(kind: str, loss: str) -> Loss:
    axis = 1 if kind == "axis" else 2
    return dataclasses.replace(LOSSES[loss], class_axis=axis)


@pytest.mark.parametrize("kind", KINDS)
def test_slices_equal_torch_however_the_layer_is_written(words, kind: str) -> None:
    report = parity(words(kind), loss=of(kind, "usual"), steps=2, minibatch=4, **SLICES)
    assert report.ok, report.summary()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["tied", "time"])
def test_slices_equal_torch_for_every_reduction(words, kind: str, loss: str) -> None:
    report = parity(words(kind), loss=of(kind, loss), steps=2, minibatch=4, **SLICES)
    assert report.ok, report.summary()


@pytest.mark.parametrize("stored", slow_between(STORED, 2))
@pytest.mark.parametrize("kind", ["tied", "turned", "plain"])
def test_slices_equal_torch_in_every_storage(words, kind: str, stored: str) -> None:
    report = parity(words(kind), steps=2, minibatch=4, **SLICES, **STORED[stored])
    assert report.ok, report.summary()


def one_microbatch(model, seed: int = 0, batch: int = 4, **options):
    draw = np.random.default_rng(seed)
    x = draw.integers(0, CLASSES, (batch, TIME))
    target = np.where(draw.random((batch, TIME)) < 0.2, -100, x[:, ::-1])
    (name,) = (spec.name for spec in model.inputs)
    return et.loss_and_gradients(model, {name: x}, target, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_slices_give_what_whole_logits_give(words, kind: str) -> None:
    loss = of(kind, "usual")
    value, gradients = one_microbatch(words(kind), loss=loss, **SLICES)
    whole, expected = one_microbatch(words(kind), loss=loss)
    assert value == pytest.approx(whole, rel=1e-6)
    for name, gradient in gradients.items():
        # sums of 1,300 products in another order
        np.testing.assert_allclose(gradient, expected[name], 1e-4, 1e-6, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_never_whole(words, kind: str) -> None:
    options = make_options(minibatch=128, loss=of(kind, "usual"), **SLICES)
    graphs = build_graphs(Compilation(words(kind), options), 128)
    for graph in (graphs.train, graphs.evaluate):
        largest = max(v.size for v in graph.values.values() if not v.persistent)
        assert largest < 128 * TIME * CLASSES // 3
    assert graphs.shape[0] == 128 and CLASSES in graphs.shape


def trained(program, threads: int | None = None, steps: int = 3, out=None) -> dict[str, bytes]:
    draw = np.random.default_rng(1)
    trainer = et.Trainer(program, threads=threads, out=out)
    try:
        for _ in range(steps):
            x = draw.integers(0, CLASSES, (8, TIME))
            trainer.step(x, np.ascontiguousarray(x[:, ::-1]))
        return {name: array.tobytes() for name, array in trainer.session.state().items()}
    finally:
        trainer.close()


@pytest.mark.parametrize("stored", STORED)
def test_plans_and_threads_change_no_bit(words, stored: str) -> None:
    given = {"minibatch": 8, "microbatch": 4, "optimizer": et.Adam(lr=0.01)}
    given |= SLICES | STORED[stored]
    front = plan_model(words("time"), make_options(threads=3, **given))[1]
    assert len(front) > 1
    programs = [
        et.compile(words("time"), budget=plan.arena_nbytes, threads=3, **given)
        for plan in (front[0], front[-1])
    ]
    expected = trained(programs[0])
    assert trained(programs[1]) == expected
    for threads in (1, 2):
        assert trained(programs[1], threads) == expected
    with pytest.raises(et.BudgetError):
        et.compile(words("time"), budget=front[0].arena_nbytes - 1, threads=3, **given)


def test_a_budget_that_is_too_small_says_that_slices_help(words) -> None:
    with pytest.raises(et.BudgetError, match="--allow slices"):
        et.compile(words("plain"), budget=1000)
    with pytest.raises(et.BudgetError, match="Try --precision fp16 or --density"):
        et.compile(words("plain"), budget=1000, **SLICES)


def test_evaluation_and_metrics_need_no_logits(words, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    x = draw.integers(0, CLASSES, (30, TIME)).astype(np.int32)
    y = x.astype(np.int64)
    y[:3, 1] = -100
    np.savez(tmp_path / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    asked = ["accuracy", "top3", "top5", "perplexity"]
    found = {}
    for allow in ((), ("slices",)):
        program = et.compile(words("time"), minibatch=8, microbatch=8, allow=allow, seed=1)
        trainer = et.Trainer(program, f"npz:{tmp_path / 'd.npz'}")
        found[allow] = trainer.evaluate(metrics=asked)
        if allow:
            best = trainer.best_classes(x)
            with pytest.raises(et.UsageError, match="best_classes"):
                trainer.predict(x)
            for metric in ("top6", lambda outputs, targets: 0):
                with pytest.raises(et.UsageError, match="slices"):
                    trainer.evaluate(metrics=[metric])
        else:
            logits = trainer.predict(x)
            with pytest.raises(et.UsageError, match="predict"):
                trainer.best_classes(x)
        trainer.close()
    np.testing.assert_array_equal(best, np.argsort(-logits, axis=-1, kind="stable")[..., :5])
    assert found["slices",] == pytest.approx(found[()], rel=1e-6)


def test_a_program_with_slices_is_read_again(words, tmp_path: Path) -> None:
    program = et.compile(words("tied"), minibatch=8, microbatch=4, **SLICES)
    again = et.load_program(program.save(tmp_path / "p.edge"))
    assert again.sliced and again.output_shape == (4, TIME, CLASSES)
    assert trained(again) == trained(program) and again.digest() == program.digest()


def test_slices_train_what_is_asked_for_alone(words) -> None:
    for train in (("head.*",), ("inner.*", "tokens.*"), ("head.bias",)):
        _, gradients = one_microbatch(words("plain"), train=train, **SLICES)
        _, expected = one_microbatch(words("plain"), train=train)
        assert gradients.keys() == expected.keys()
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, expected[name], 1e-4, 1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "options", "words_of"),
    [
        ("plain", {"loss": "mse"}, "loss mse"),
        ("plain", {"density": 0.5, "density_overrides": {"head.*": 0.3}}, "linear_csr"),
    ],
)
def test_slices_that_cannot_be_are_refused(words, kind, options, words_of) -> None:
    with pytest.raises(et.ModelError, match=f"allow slices.*{words_of}"):
        et.compile(words(kind), **SLICES, **options)


def test_so_few_classes_are_not_cut(tmp_path: Path) -> None:
    export_torch(nn.Linear(4, 512), (torch.randn(2, 4),), tmp_path / "few.onnx")
    with pytest.raises(et.ModelError, match="too few classes"):
        et.compile(tmp_path / "few.onnx", **SLICES)
    with pytest.raises(et.UsageError, match="allow 'cuts'"):
        et.compile(tmp_path / "few.onnx", allow=("cuts",))


@pytest.mark.parametrize("count", [1, 63, 512, 513, 1300, 50257])
def test_parts_are_even_and_whole(count: int) -> None:
    found = parts(count, 512)
    assert sum(length for _, length in found) == count
    assert all(length <= 512 and start % 64 == 0 for start, length in found)
    assert [start for start, _ in found] == [
        sum(length for _, length in found[:k]) for k in range(len(found))
    ]


@pytest.mark.parametrize("kind", ["tied", "plain"])
def test_a_fused_update_has_the_same_bits(words, tmp_path: Path, kind: str) -> None:
    given = {"minibatch": 8, "microbatch": 8, "optimizer": et.SGD(lr=0.1), **SLICES}
    whole = et.compile(words(kind), **given)
    fused = et.compile(words(kind), fused_update=True, **given)
    assert trained(fused, out=tmp_path) == trained(whole)
