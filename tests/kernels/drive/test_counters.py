"""Learning rate, loss scale and rewiring times against their Python twins."""

import math

import numpy as np
import pytest

from edgetrain.kernels import control as layout
from edgetrain.optim import LossScale, Schedule
from edgetrain.sparse.dsr import DSR
from tests.kernels.harness import call, control

TOTAL = 1000
STEPS = (0, 1, 4, 5, 6, 99, 100, 101, 499, 500, 777, 998, 999, 1000, 5000)


def rate(kernel: str, step: int, lr: float, gamma: float = 0.0, **operands: int) -> float:
    words = {"STEP": step, "WARMUP": 5, "TOTAL_STEPS": TOTAL, "BASE_LR": lr, "RATE": gamma}
    ctl = call(kernel, ctl=control(**words), **operands)["ctl"]
    return float(ctl.view(np.float64)[layout.LR])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "kernel, operands, schedule",
    [
        ("rate_constant", {}, Schedule(warmup_steps=5)),
        ("rate_step", {"size": 7}, Schedule("step", 5, step_size=7, gamma=0.97)),
        ("rate_cosine", {}, Schedule("cosine", 5, total_steps=TOTAL)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_rates_equal_their_twins(kernel, operands, schedule, step):
    found = rate(kernel, step, 0.3, schedule.gamma, **operands)
    assert found == pytest.approx(0.3 * schedule.factor(step), rel=1e-12, abs=2e-16)


def test_cosine_is_off_by_at_most_4e_16():
    worst = 0.0
    for step in range(5, TOTAL + 1, 7):
        true = 0.5 * (1 + math.cos(math.pi * (step - 5) / (TOTAL - 5)))
        worst = max(worst, abs(rate("rate_cosine", step, 1.0) - true))
    assert worst < 4e-16


@pytest.mark.parametrize("dynamic", [False, True])
def test_loss_scale_equals_its_twin(dynamic):
    draw = np.random.default_rng(0)
    state = LossScale(2.0**12, growth_interval=4, dynamic=dynamic)
    ctl = control(LOSS_SCALE=state.scale)
    for _ in range(200):
        finite = bool(draw.random() < 0.8)
        ctl.view(np.float64)[layout.GRAD_NORM] = 1.0 if finite else draw.choice([np.inf, np.nan])
        state = state.update(finite)
        ctl = call("loss_scale", ctl=ctl, dynamic=int(dynamic), interval=4)["ctl"]
        found = ctl.view(np.float64)[layout.LOSS_SCALE], *ctl[[layout.GOOD_STEPS, layout.BAD_STEPS]]
        assert found == (state.scale, state.good_steps, state.bad_steps)


def test_loss_scale_stays_between_1_and_2_to_the_24():
    for norm, scale in ((np.inf, 1.0), (1.0, 2.0**24)):
        ctl = control(LOSS_SCALE=scale, GRAD_NORM=norm)
        ctl = call("loss_scale", ctl=ctl, dynamic=1, interval=1)["ctl"]
        assert ctl.view(np.float64)[layout.LOSS_SCALE] == scale


def test_rewire_due_is_set_in_the_periods_of_a_method():
    method, total = DSR(periods=((0.3, 10), (0.7, 25)), frequency=1.0), 200
    due = []
    for step in range(total):
        ctl = control(STEP=step, REWIRE_DUE=1)
        for k, (after, until, interval) in enumerate([(0, 60, 10), (60, 140, 25)]):
            ctl = call(
                "rewire_due", ctl=ctl, first=int(k == 0), after=after, until=until,
                interval=interval,
            )["ctl"]  # fmt: skip
        due.append(bool(ctl[layout.REWIRE_DUE]))
    assert due == [method.due(step + 1, total) for step in range(total)]
