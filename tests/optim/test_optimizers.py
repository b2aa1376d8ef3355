"""Optimizers: their options, their state, their record; ten steps against torch."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from edgetrain.api import compile as compile_
from edgetrain.compiler import Options
from edgetrain.errors import UsageError
from edgetrain.exporters.twins import twin_of
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ir import Value
from edgetrain.kernels import control
from edgetrain.optim import OPTIMIZERS, SGD, Adam, AdamW, Optimizer, make_optimizer
from edgetrain.runtime.session import Session
from edgetrain.units.plugin import option
from tests.quick import slow_between

from .cases import DIGITS, OPTIMIZER_CASES

SHAPE = (40, 24)


@functools.cache
def _linear():
    rng = np.random.default_rng(3)
    weight = rng.standard_normal(SHAPE).astype(np.float32)
    bias = rng.standard_normal(SHAPE[1]).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", SHAPE[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", SHAPE[1]])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return decode(parse(proto.SerializeToString(), "linear"), Path("linear"))


def updated(optimizer, gradients, **options):
    """Initial weights, and weights after an update by each of `gradients` (dicts by name)."""
    session = Session(compile_(_linear(), loss="mse", optimizer=optimizer, minibatch=2, **options))
    first = {name: np.array(session.values[name], np.float32) for name in gradients[0]}
    session.ints[control.TARGETS] = 1
    session.reals[control.NOMINAL] = session.reals[control.LOSS_SCALE] = 1.0
    session.reals[control.LR] = optimizer.lr
    for step, fed in enumerate(gradients):
        for name, gradient in fed.items():
            session.values[f"{name}.grad"][...] = gradient
        session.ints[control.STEP] = step
        session.executor.run("update")
    found = {name: session.values[name].copy() for name in first}
    left = [float(np.abs(session.values[f"{name}.grad"]).max()) for name in first]
    session.close()
    assert left == [0.0, 0.0]
    return first, found


@functools.cache
def fed() -> tuple[dict[str, np.ndarray], ...]:
    """Ten random gradients."""
    rng = np.random.default_rng(5)
    shapes = {"w": SHAPE, "b": SHAPE[1:]}
    return tuple(
        {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
        for _ in range(10)
    )


def expected(optimizer, first):
    """Torch's weights after those gradients."""
    parameters = {name: torch.tensor(array.copy()) for name, array in first.items()}
    theirs = twin_of(optimizer).optimizer(optimizer, list(parameters.values()))
    for gradients in fed():
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[name].astype(np.float32))
        theirs.step()
    return {name: parameter.numpy() for name, parameter in parameters.items()}


@pytest.mark.parametrize("case", OPTIMIZER_CASES)
def test_optimizer_equals_torch_for_ten_steps(case):
    """Both sides use float32 and the same gradients; the order of operations may differ."""
    optimizer = OPTIMIZER_CASES[case]
    first, found = updated(optimizer, fed())
    theirs = expected(optimizer, first)
    for name in first:
        np.testing.assert_allclose(found[name], theirs[name], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("case", slow_between(OPTIMIZER_CASES, 3))
def test_threads_change_no_bit_of_an_update_in_fp16(case):
    """And it stays near torch's: ten roundings of weights below 4, each off by at most 2^-9."""
    optimizer, found = OPTIMIZER_CASES[case], {}
    for threads in (1, 3):
        options = {"precision": "fp16", "weights": "fp16", "threads": threads}
        first, found[threads] = updated(optimizer, fed(), **options)
    theirs = expected(optimizer, first)
    for name in first:
        assert found[1][name].tobytes() == found[3][name].tobytes()
        # Lion moves by lr in either direction: near 0, rounding decides the sign.
        loose = 10 * (2.0**-9 + optimizer.lr * (optimizer.name in ("lion", "adan")))
        np.testing.assert_allclose(found[1][name], theirs[name], rtol=loose, atol=loose)


def test_every_optimizer_has_its_cases():
    """DIGITS: for fused updates, 8-bit blocks and small gradients in fp16."""
    assert DIGITS.keys() == OPTIMIZERS.keys()
    assert {case.name for case in OPTIMIZER_CASES.values()} == OPTIMIZERS.keys()


@pytest.mark.parametrize("case", OPTIMIZER_CASES)
def test_optimizer_is_made_again_from_its_record(case):
    optimizer = OPTIMIZER_CASES[case]
    assert make_optimizer(**optimizer.to_json()) == optimizer


@pytest.mark.parametrize(
    ("optimizer", "names"),
    [(SGD(), []), (SGD(momentum=0.5), ["w.momentum"]), (Adam(), ["w.moment1", "w.moment2"])],
)
def test_optimizer_state_has_the_parameter_s_shape_and_storage(optimizer, names):
    state = optimizer.init(Value("w", (3, 4), "f16", "parameter"))
    assert [(v.name, v.shape, v.dtype, v.role) for v in state] == [
        (name, (3, 4), "f16", "state") for name in names
    ]


# Whether an optimizer's step is divided by this state, written down independently.
DIVIDES = dict.fromkeys(("moment2", "square"), True) | dict.fromkeys(
    ("before", "change", "mean", "moment1", "momentum", "columns", "rows"), False
)


@pytest.mark.parametrize("case", OPTIMIZER_CASES)
def test_state_that_is_divided_by_is_declared(case):
    optimizer = OPTIMIZER_CASES[case]
    state = optimizer.init(Value("w", (192,), "f32", "parameter"))
    tags = [v.name.removeprefix("w.") for v in state if optimizer.is_root(v)]
    names = [v.name.removeprefix("w.") for v in state]
    assert [name for name in tags if name in DIVIDES] == [n for n in names if DIVIDES.get(n)]
    assert optimizer.adaptive == any(DIVIDES.get(name) for name in names)


@pytest.mark.parametrize(
    ("name", "options"),
    [("lars", {}), ("sgd", {"beta1": 0.9}), ("sgd", {"lr": -1.0}), ("sgd", {"lr": math.nan}),
     ("sgd", {"lr": math.inf}), ("sgd", {"momentum": 1.0}), ("sgd", {"weight_decay": -1e-4}),
     ("sgd", {"nesterov": True}), ("sgd", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
     ("sgd", {"momentum": 0.9, "dampening": math.nan}), ("adam", {"beta1": 1.0}),
     ("adam", {"beta2": -0.1}), ("adam", {"eps": 0.0}), ("adamw", {"weight_decay": math.inf})],
)  # fmt: skip
def test_optimizer_refuses_options_out_of_range(name, options):
    with pytest.raises(UsageError, match=name):
        make_optimizer(name, **options)


def test_adamw_decays_by_default_as_torch_does():
    assert (AdamW().weight_decay, Adam().weight_decay, SGD().weight_decay) == (0.01, 0.0, 0.0)


def test_options_keep_a_record_that_json_can_hold():
    import json

    options = Options(optimizer=AdamW(lr=0.5), dims={"T": 3}, freeze=("a.*",))
    recipe = json.loads(json.dumps(options.recipe()))
    assert recipe["optimizer"]["name"] == "adamw" and recipe["dims"] == {"T": 3}


@pytest.fixture
def added():
    """An optimizer as someone might add it: without weight decay, with an integer option."""

    @dataclasses.dataclass(frozen=True)
    class Slow(Optimizer):
        name: ClassVar[str] = "slow"
        numbers: ClassVar[str] = "c1:f period"
        arithmetic: ClassVar = None

        period: int = option(2, "updates per step", "N", least=1, most=1000)

        @property
        def rates(self):
            return {"c1": 0.1, "period": self.period}

    yield Slow
    del Optimizer.kinds["slow"]


def test_an_optimizer_without_weight_decay_refuses_some_and_passes_none(added):
    with pytest.raises(UsageError, match=r"slow: weight_decay 0\.1: it has no weight decay"):
        added(weight_decay=0.1)
    weight = Value("w", (3,), "f32", "parameter")
    (call,) = added(period=7).update(weight, Value("g", (3,), "f32", "accumulator"), [], 1)
    assert (call.args["period"], "wd" in call.args) == (7, False)


def test_whole_numbers_of_an_optimizer_have_the_ranges_of_its_options(added):
    assert added.ranged() == "c1:f period=1..1000"
    assert SGD.ranged() == SGD.numbers


def test_numbers_and_rates_of_an_optimizer_name_the_same(added, monkeypatch):
    monkeypatch.setattr(added, "numbers", "c1:f")
    weight = Value("w", (3,), "f32", "parameter")
    with pytest.raises(AssertionError, match="optimizer slow: rates .*period"):
        added().update(weight, Value("g", (3,), "f32", "accumulator"), [], 1)
