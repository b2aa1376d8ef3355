"""Runs whose weights, state and gradients are stored in 8-bit blocks."""

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import DataError, UsageError
from edgetrain.formats import INT8, decoded
from edgetrain.formats.csr import POOL
from tests.digits_runs import digits_program
from tests.optim.cases import DIGITS

DATA = et.open_data("digits")
# Every kind of model memory on one net, and the result of two passes over the digits.
CASES = {
    "dense": {},
    "sparse": {"density": 0.3},
    **{name: {"optimizer": one} for name, one in DIGITS.items() if name not in ("sgd", "adam")},
    "sparse adam": {"optimizer": et.AdamW(lr=3e-3), "density": 0.3},
    "fp16": {"precision": "fp16", "density": 0.3},
    "mixed": {"model_memory": None, "weights": "fp16", "state": "int8", "grads": "int8"},
    "weights": {"model_memory": None, "weights": "int8", "density": 0.5},
    "centered": {"optimizer": et.RMSprop(lr=2e-3, centered=True), "density": 0.3},
    "sparse adafactor": {"optimizer": et.Adafactor(lr=0.02), "density": 0.3},
}


def program(case, budget=None, **options):
    settings = {"model_memory": "int8", "threads": 1, **CASES[case], **options}
    return digits_program(budget, **settings)


@pytest.mark.parametrize("case", CASES)
def test_model_memory_in_blocks_learns_the_digits(case):
    trainer = et.Trainer(program(case), data=DATA)
    trainer.fit(epochs=2)
    assert trainer.evaluate()["accuracy"] > 0.85


def test_centered_steps_have_a_limit_where_gradients_hardly_change():
    optimizer = et.RMSprop(lr=1e-5, momentum=0.5, centered=True)
    options = {"optimizer": optimizer, "model_memory": None, "state": "int8"}
    compiled = digits_program(threads=1, **options)
    slots = {slot.name: slot.dtype for slot in compiled.persistent}
    kept = {tag: slots[f"conv1.weight.{tag}"] for tag in ("square", "mean", "momentum")}
    assert kept == {"square": "f32", "mean": "f32", "momentum": "q8"}
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(16, 1, 8, 8)).astype(np.float32), np.arange(16) % 10
    trainer = et.Trainer(compiled)
    before = {name: np.array(values) for name, values in trainer.parameters.items()}
    for _ in range(20):
        trainer.step(x, y)
    moved = max(np.abs(v - before[name]).max() for name, v in trainer.parameters.items())
    trainer.close()
    # A step is at most lr * 10 / (1 - momentum); for a difference of 0, lr * g / eps.
    assert moved < 20 * 20 * 1e-5


@pytest.mark.parametrize("rewiring", [None, "dsr"])
@pytest.mark.parametrize("memory", ["fp32", "fp16", "int8"])
def test_adafactor_keeps_a_moment_for_each_nonzero(memory, rewiring):
    compiled = program("sparse adafactor", model_memory=memory, rewiring=rewiring)
    slots = {slot.name: slot for slot in compiled.persistent}
    assert slots[f"{POOL}.square"].size == slots[POOL].size
    assert slots[f"{POOL}.square"].dtype == slots[POOL].dtype
    trainer = et.Trainer(compiled, data=DATA)
    trainer.fit(epochs=2)
    assert trainer.evaluate()["accuracy"] > 0.85


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Some steps of the sparse case with rewirings and checkpoints."""
    out = tmp_path_factory.mktemp("packed")
    compiled = program("sparse", rewiring="dsr")
    trainer = et.Trainer(compiled, data=DATA, out=out)
    trainer.fit(steps=60)
    yield trainer, out
    trainer.close()


def test_model_memory_takes_about_a_byte_for_each_number(trained):
    slots = {slot.name: slot for slot in trained[0].session.program.persistent}
    for name in (POOL, f"{POOL}.grad", f"{POOL}.momentum", "conv1.weight"):
        size = slots[name].size
        assert (slots[name].dtype, slots[name].nbytes) == ("q8", -(-size // 64) * 65)
    assert slots["norm1.weight"].dtype == slots["norm1.weight.momentum"].dtype == "f32"


def test_checkpoint_program_and_export_hold_what_the_trainer_shows(trained, tmp_path):
    trainer, out = trained
    shown = dict(trainer.parameters)
    trainer.save()
    again = et.Trainer(out / "program.edge", data=DATA)
    assert again.resume(out)
    x = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    x = np.repeat(x, trainer.session.program.microbatch, 0)
    np.testing.assert_array_equal(again.predict(x), trainer.predict(x))
    path = again.export_onnx(tmp_path / "trained.onnx")
    exported = et.load_onnx(path).initializers
    for name, values in shown.items():
        np.testing.assert_array_equal(again.parameters[name], values)
        np.testing.assert_array_equal(exported[name], values)
    forward = next(iter(et.forward(path, {"x": x}).values()))
    np.testing.assert_allclose(forward, trainer.predict(x), rtol=1e-4, atol=1e-4)
    again.close()


def test_parameters_are_rounded_to_nearest_when_they_are_set(trained):
    parameters = trained[0].parameters
    before = parameters["conv1.weight"]
    values = np.random.default_rng(0).normal(size=before.shape).astype(np.float32)
    parameters["conv1.weight"] = values
    expected = decoded(INT8.encode(values), values.shape)
    np.testing.assert_array_equal(parameters["conv1.weight"], expected)
    sparse = parameters["conv2.weight"]
    parameters["conv2.weight"] = 2 * sparse
    assert np.abs(parameters["conv2.weight"] - 2 * sparse).max() <= np.abs(sparse).max() / 32
    for wrong in (np.full(before.shape, np.inf), values[:1]):
        with pytest.raises(DataError):
            parameters["conv1.weight"] = wrong
    parameters["conv1.weight"] = before
    parameters["conv2.weight"] = sparse


def test_a_gradient_that_overflows_skips_the_step_and_leaves_no_trace(trained):
    trainer, _ = trained
    session = trainer.session
    state = {name: array.copy() for name, array in session.state().items()}
    name = "conv1.weight.grad"
    shape = session.program.slot(name).shape
    session.values[name][...] = INT8.encode(np.full(shape, np.inf, np.float32))
    session.executor.run("update")
    assert session.ints[5] == 1  # SKIP
    for kept, array in session.state().items():
        np.testing.assert_array_equal(array, state[kept])
    assert not session.values[name].tobytes().strip(b"\0")


def test_an_unknown_storage_is_refused():
    for option in ("model_memory", "weights", "state", "grads"):
        with pytest.raises(UsageError, match="expected one of fp32, fp16, .*int8"):
            digits_program(**{option: "int4"})
    with pytest.raises(UsageError, match="expected one of fp32, fp16."):
        digits_program(precision="int8")
