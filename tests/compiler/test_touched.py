"""Embedding gradients by touched rows: the same training in fewer bytes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity

pytestmark = pytest.mark.usefixtures("every_rung")

WORDS, WIDTH, TIME = 700, 40, 5
ROWS = {"allow": ("rows",)}


class Sentences(nn.Module):
    """Classify two sentences; both are read through one table, the second through another too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.more = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
        self.head = nn.Linear(WIDTH, 7)
        self.scale = nn.Parameter(torch.rand(2, WIDTH))  # read by a slice, whose gradient is copied

    def forward(self, x, y):
        x = self.words(x) * self.more(y) + self.words(y)
        return self.head(torch.tanh(x * self.scale[1]).mean(1))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    found = tmp_path_factory.mktemp("rows") / "sentences.onnx"
    ids = torch.randint(WORDS, (2, TIME))
    export_torch(Sentences(), (ids, ids), found)
    return found


OPTIMIZERS = {
    "sgd": et.SGD(lr=0.1),
    "momentum": et.SGD(lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": et.Adam(lr=0.01),
    "adamw": et.AdamW(lr=0.01),
}
STORED = {
    "fp32": {},
    "fp16": {"precision": "fp16"},
    "int8": {"model_memory": "int8"},
    "mixed": {"precision": "fp16", "weights": "int8", "grads": "int8"},
}


def trained(program, threads: int | None = None, steps: int = 4) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    trainer = et.Trainer(program, threads=threads)
    names = program.input_names
    try:
        for _ in range(steps):
            inputs = {name: draw.integers(0, WORDS, (8, TIME)) for name in names}
            trainer.step(inputs, draw.integers(0, 7, 8))
        return {name: array.copy() for name, array in trainer.session.state().items()}
    finally:
        trainer.close()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_get_the_same_bits(path: Path, optimizer: str) -> None:
    given = {"minibatch": 8, "microbatch": 4, "optimizer": OPTIMIZERS[optimizer]}
    rows, whole = et.compile(path, **given, **ROWS), et.compile(path, **given)
    expected, found = trained(whole), trained(rows)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    grads = [p.account["by_kind"]["grads"] for p in (rows, whole)]
    assert grads[0] < 0.3 * grads[1] and rows.arena_nbytes < whole.arena_nbytes


@pytest.mark.parametrize("stored", STORED)
def test_plans_and_threads_change_no_bit(path: Path, stored: str) -> None:
    given = {"minibatch": 8, "optimizer": et.Adam(lr=0.01), **ROWS, **STORED[stored]}
    model, options = et.load_onnx(path), make_options(threads=3, microbatch=4, **given)
    front = plan_model(model, options)[1]
    programs = [
        et.compile(model, budget=plan.arena_nbytes, threads=3, microbatch=4, **given)
        for plan in (front[0], front[-1])
    ]
    expected = trained(programs[0])
    for program, threads in ((programs[1], 3), (programs[1], 1), (programs[1], 2)):
        for name, array in trained(program, threads).items():
            assert array.tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("stored", STORED)
def test_rows_equal_torch(path: Path, stored: str) -> None:
    report = parity(path, steps=3, minibatch=8, **ROWS, **STORED[stored])
    assert report.ok, report.summary()


def test_gradients_are_whole_again(path: Path) -> None:
    draw, model = np.random.default_rng(0), et.load_onnx(path)
    names = [spec.name for spec in model.inputs]
    inputs = {name: draw.integers(0, WORDS, (6, TIME)) for name in names}
    target = draw.integers(0, 7, 6)
    value, found = et.loss_and_gradients(model, inputs, target, **ROWS)
    whole, expected = et.loss_and_gradients(model, inputs, target)
    assert value == whole and found.keys() == expected.keys()
    for name, gradient in found.items():
        np.testing.assert_array_equal(gradient, expected[name], err_msg=name)


def test_a_discarded_minibatch_leaves_nothing(path: Path) -> None:
    given = {"minibatch": 8, "microbatch": 4, "optimizer": et.SGD(lr=0.1), **ROWS}
    program = et.compile(path, **given)
    trainer = et.Trainer(program)
    session, calls = trainer.session, []

    def filler(indices):
        calls.append(1)
        return len(calls) < 2  # the second microbatch is missing

    assert session.minibatch(8, filler) is None
    held = [slot.name for slot in program.persistent if slot.role == "accumulator"]
    assert any(name.endswith(".rows") for name in held)
    assert not any(session.values[name].view(np.uint8).any() for name in held)
    trainer.close()


def test_a_program_by_rows_is_read_again(path: Path, tmp_path: Path) -> None:
    program = et.compile(path, minibatch=8, microbatch=4, **ROWS)
    again = et.load_program(program.save(tmp_path / "p.edge"))
    for name, array in trained(again).items():
        np.testing.assert_array_equal(array, trained(program)[name])


@pytest.mark.parametrize(
    "options", [{"minibatch": 512}, {"optimizer": "adafactor"}, {"freeze": ["words*", "more*"]}]
)
def test_rows_that_cannot_be_are_refused(path: Path, options) -> None:
    with pytest.raises(et.ModelError, match="allow rows: no .*table"):
        et.compile(path, **{"minibatch": 8, **ROWS, **options})
