"""The budget contract: planned bytes, refusals, order of plans, the memory account."""

import dataclasses
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from edgetrain.api import compile as compile_
from edgetrain.api import loss_and_gradients, make_options, plan
from edgetrain.compiler import plan_model
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan import frontier
from edgetrain.compiler.plan.frontier import find_frontier, microbatches
from edgetrain.errors import BudgetError, UsageError
from edgetrain.runtime.session import Session

from .nets import Net, conv_bn_relu_conv, residual

pytestmark = pytest.mark.usefixtures("quick_planner")

OPTIONS = {"optimizer": "adam", "minibatch": 16}


@cache
def _front(threads: int = 2):
    return find_frontier(Compilation(residual(), make_options(threads=threads, **OPTIONS)))


def test_frontier_rises_in_bytes_and_falls_in_cost():
    front = _front()
    assert len(front) > 2
    for small, large in zip(front, front[1:], strict=False):
        assert small.arena_nbytes < large.arena_nbytes and small.cost > large.cost


def test_frontier_is_the_same_every_time():
    again = find_frontier(Compilation(residual(), make_options(**OPTIONS)))
    assert [(p.arena_nbytes, p.cost, p.schedule) for p in again] == [
        (p.arena_nbytes, p.cost, p.schedule) for p in _front()
    ]


def test_more_bytes_never_cost_more():
    low, high = _front()[0].arena_nbytes, _front()[-1].arena_nbytes
    options, costs = make_options(**OPTIONS), []
    for budget in np.linspace(low, high, 5, dtype=int):
        chosen, _, facts = plan_model(residual(), options, int(budget))
        assert chosen.arena_nbytes <= budget and facts["min_budget_nbytes"] == low
        costs.append(chosen.cost)
    assert costs == sorted(costs, reverse=True)


def test_one_byte_below_the_minimum_is_refused_and_says_why():
    least = _front()[0].arena_nbytes
    assert plan(residual(), budget=least, **OPTIONS)["arena_nbytes"] == least
    with pytest.raises(BudgetError, match=rf"needs {least} bytes .*budget {least - 1} ") as caught:
        plan(residual(), budget=least - 1, **OPTIONS)
    assert caught.value.min_budget_nbytes == least
    message = str(caught.value)
    assert "peak at step" in message and "largest live: " in message and "Try " in message
    assert message.count("iB") >= 4 and "\n" not in message


@pytest.mark.parametrize("position", [0, -1])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_account_adds_up_to_the_arena(position, precision):
    budget = None if position else _front()[0].arena_nbytes
    account = plan(residual(), budget=budget, precision=precision, **OPTIONS)
    kinds = account["by_kind"]
    assert list(kinds) == [
        "params", "indices", "grads", "optimizer", "saved", "transient", "workspace", "io",
        "padding",
    ]  # fmt: skip
    assert sum(kinds.values()) == account["arena_nbytes"]
    assert min(kinds.values()) >= 0 and kinds["indices"] == 0
    assert account["peak_live_nbytes"] <= account["arena_nbytes"]
    assert account["min_budget_nbytes"] <= account["arena_nbytes"]


def test_account_of_a_plan_is_that_of_the_program_and_the_arena():
    program = compile_(conv_bn_relu_conv(), **OPTIONS)
    planned = plan(conv_bn_relu_conv(), effort="normal", **OPTIONS)
    session = Session(program)
    assert session.arena.nbytes == program.arena_nbytes == planned["arena_nbytes"]
    session.close()
    assert {**program.account, "plan_seconds": planned["plan_seconds"]} == planned
    assert program.account["tape_nbytes"] == program.tape_nbytes


def test_fp16_and_freezing_need_fewer_bytes():
    full = _front()[0].arena_nbytes
    half = plan(residual(), precision="fp16", **OPTIONS)["min_budget_nbytes"]
    frozen = plan(residual(), freeze=["b*"], **OPTIONS)["min_budget_nbytes"]
    assert half < full and frozen < full


@pytest.mark.parametrize(
    ("model", "minibatch", "microbatch", "expected"),
    [
        (residual, 100, None, [100, 50, 25, 20, 10]),
        (residual, 12, None, [12]),
        (residual, 4, None, [4]),
        (residual, 100, 2, [2]),
        (lambda: _plain_net(), 12, None, [12, 6, 4, 3, 2, 1]),
    ],
)
def test_microbatches_divide_and_spare_batch_norm(model, minibatch, microbatch, expected):
    options = make_options(minibatch=minibatch, microbatch=microbatch)
    assert microbatches(Compilation(model(), options)) == expected


def _plain_net():
    net = Net(4)
    net.add("MatMul", ["x", net.weight("w", 4, 3)], "y")
    return net.model("y")


@pytest.mark.parametrize("limit", [0.0, 0.3])
def test_max_extra_forward_is_kept(limit):
    options = make_options(max_extra_forward=limit, **OPTIONS)
    front = find_frontier(Compilation(residual(), options))
    assert front and max(p.extra_forward for p in front) <= limit
    assert max(p.extra_forward for p in _front()) > limit


def test_max_extra_forward_below_zero_is_an_error():
    with pytest.raises(UsageError, match="max_extra_forward"):
        plan(residual(), max_extra_forward=-0.1, **OPTIONS)


@pytest.mark.parametrize(
    "options",
    [{"minibatch": 0}, {"minibatch": 10, "microbatch": 3}, {"microbatch": 0}, {"threads": 0},
     {"threads": 65}, {"max_grad_norm": -1.0}, {"max_grad_norm": float("nan")}, {"mini": 3},
     {"optimizer": "lbfgs"}, {"loss": "hinge"}],
)  # fmt: skip
def test_options_out_of_range_are_usage_errors(options):
    with pytest.raises(UsageError):
        make_options(**options)


def test_recompute_through_dropout_batch_norm_and_forks_changes_no_bit():
    model = residual(dropout=0.5)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((8, 3, 6, 6)).astype(np.float32)
    target = rng.integers(0, 3, 8)
    results = []
    options = {"microbatch": 8, "minibatch": 8, "threads": 2}
    _, front, _ = plan_model(model, make_options(loss="cross_entropy", **options), None)
    assert front[0].extra_forward > 0
    for budget in (None, front[len(front) // 2].arena_nbytes, front[0].arena_nbytes):
        results.append(
            loss_and_gradients(model, {"x": x}, target, dropout=True, budget=budget, threads=2)
        )
    for loss, grads in results[1:]:
        assert loss == results[0][0]
        for name, grad in grads.items():
            np.testing.assert_array_equal(grad, results[0][1][name], err_msg=name)


def test_options_are_frozen_and_comparable():
    options = make_options(**OPTIONS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.minibatch = 3
    assert options == make_options(**OPTIONS)


@pytest.mark.parametrize(
    ("options", "microbatch", "advice"),
    [
        ({}, 8, "Try a smaller --microbatch or --precision fp16."),
        ({}, 1, "Try --precision fp16 or --density 0.3."),
        ({}, 16, "Try --precision fp16 or --density 0.3."),  # 8 was tried and takes more
        ({"microbatch": 4}, 4, "Try a smaller --microbatch or --precision fp16."),
        ({"precision": "fp16"}, 8, "Try a smaller --microbatch or --model-memory int8."),
        ({"precision": "fp16", "microbatch": 1}, 1, "Try --model-memory int8 or --density 0.3."),
        (
            {"precision": "fp16", "model_memory": "fp32", "microbatch": 1}, 1,
            "Try --model-memory int8 or --density 0.3.",
        ),
        (
            {"precision": "fp16", "weights": "int8", "microbatch": 1}, 1,
            "Try --density 0.3 or --freeze PATTERN.",
        ),
        (
            {"precision": "fp16", "model_memory": "int8", "density": 0.5,
             "microbatch": 1, "max_extra_forward": 0.5}, 1,
            "Try a larger --max-extra-forward or --freeze PATTERN.",
        ),
        (
            {
                "precision": "fp16", "model_memory": "int8", "density": 0.5, "microbatch": 1,
                "freeze": ["fc.*"],
            }, 1,
            "Use a smaller model.",
        ),
    ],
)  # fmt: skip
def test_advice_names_nothing_that_is_set_already(options, microbatch, advice):
    plan = SimpleNamespace(candidate=SimpleNamespace(microbatch=microbatch))
    chosen = make_options(**OPTIONS, **options)
    assert frontier._advice(Compilation(residual(), chosen), plan) == advice
