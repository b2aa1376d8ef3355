"""Learning rate, loss scale and rewiring times compared with their Python twins."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
import torch

from edgetrain.exporters.twins import twin_of
from edgetrain.kernels import control as layout
from edgetrain.optim import Schedule
from edgetrain.optim.schedules import Plateau
from edgetrain.sparse import DSR, SET
from tests.kernels.harness import call, control
from tests.optim.cases import SCHEDULE_CASES, TOTAL
from tests.twins import Scale, Windows, due, factor

STEPS = (0, 1, 4, 5, 6, 99, 100, 101, 499, 500, 777, 998, 999, 1000, 5000)


def rates(
    schedule: Schedule,
    steps: Iterable[int],
    lr: float,
    losses: Sequence[float] = (),
    skipped: Sequence[int] = (),
) -> list[float]:
    """Return the learning rates that a schedule's kernels write to LR; losses[k] is the loss of
    step k, and `skipped` steps updated no weight."""
    words = {"WARMUP": schedule.warmup_steps, "TOTAL_STEPS": TOTAL, "BASE_LR": lr}
    ctl, out = control(**words), []
    numbers = schedule.numbers()
    ctl.view(np.float64)[layout.RATE : layout.RATE + len(numbers)] = numbers
    for step in steps:
        ctl[layout.STEP] = step
        seen = losses[step - 1] if 0 < step <= len(losses) else math.nan
        ctl.view(np.float64)[layout.LAST_LOSS] = seen
        ctl[layout.BAD_STEPS] = int(step - 1 in skipped)
        for one in schedule.calls():
            ctl = call(one.kernel, **{**one.args, "ctl": ctl})["ctl"]
        out.append(float(ctl.view(np.float64)[layout.LR]))
    return out


@pytest.mark.parametrize("case", SCHEDULE_CASES)
def test_rates_equal_their_twins(case):
    schedule = SCHEDULE_CASES[case]
    expected = [0.3 * factor(schedule, step) for step in STEPS]
    assert rates(schedule, STEPS, 0.3) == pytest.approx(expected, rel=1e-12, abs=2e-16)


PLATEAUS = [case for case, schedule in SCHEDULE_CASES.items() if schedule.name == "plateau"]


@pytest.mark.parametrize("case", PLATEAUS)
def test_plateau_equals_its_twin_and_torch(case):
    schedule, draw = SCHEDULE_CASES[case], np.random.default_rng(1)
    assert isinstance(schedule, Plateau)
    losses = (1 / np.arange(1, 81) + 0.2 + 0.1 * draw.random(80)).tolist()
    losses[7] = losses[30] = math.nan
    found = rates(schedule, [0, *np.repeat(np.arange(1, 81), 2).tolist()], 0.3, losses)[::2]
    windows, expected, sums = Windows(schedule), [], [0.0, 0]
    rate = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    theirs, torchs = twin_of(schedule).scheduler(schedule, rate), []
    for step in range(81):
        if step and math.isfinite(losses[step - 1]):
            sums = [sums[0] + losses[step - 1], sums[1] + 1]
        if step:
            windows.see(losses[step - 1])
        if sums[1] == schedule.window:
            theirs.step(sums[0] / schedule.window)
            sums = [0.0, 0]
        warm = min(1.0, (step + 1) / max(1, schedule.warmup_steps))
        whole = step >= schedule.warmup_steps
        expected.append(max(0.3 * windows.factor, schedule.min_lr) if whole else 0.3 * warm)
        torchs.append(rate.param_groups[0]["lr"] if whole else 0.3 * warm)
    assert found == pytest.approx(expected, rel=1e-12) and windows.factor < 0.3
    assert found == pytest.approx(torchs, rel=1e-12)


@pytest.mark.parametrize("case", PLATEAUS)
@pytest.mark.parametrize("counted", [False, True], ids=["not counted", "as earlier runs"])
def test_plateau_counts_losses_of_skipped_steps_in_earlier_runs_alone(case, counted):
    schedule, draw = SCHEDULE_CASES[case], np.random.default_rng(2)
    assert isinstance(schedule, Plateau)
    schedule = dataclasses.replace(schedule, skipped=counted, warmup_steps=0, min_lr=0.0)
    losses = (1 / np.arange(1, 61) + 0.2 + 0.1 * draw.random(60)).tolist()
    skipped = [4, 5, 6, 17, 18, 33]
    for step in skipped:
        losses[step] = 1e30  # the loss of bad data: finite, but its gradient is not
    windows, expected = Windows(schedule), [1.0]
    for step in range(60):
        windows.see(losses[step] if counted or step not in skipped else math.nan)
        expected.append(windows.factor)
    assert rates(schedule, range(61), 1.0, losses, skipped) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("case", SCHEDULE_CASES)
def test_schedules_equal_torchs(case):
    schedule = SCHEDULE_CASES[case]
    if schedule.name == "plateau":
        return  # tested above
    schedule = dataclasses.replace(schedule, warmup_steps=0)
    rate = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    theirs, expected = twin_of(schedule).scheduler(schedule, rate), []
    for _ in range(200):
        expected.append(rate.param_groups[0]["lr"])
        rate.step()
        theirs.step()
    assert rates(schedule, range(200), 0.3) == pytest.approx(expected, rel=1e-10)


def test_cosine_is_off_by_at_most_4e_16():
    steps = range(5, TOTAL + 1, 7)
    found = rates(Schedule("cosine", 5, total_steps=TOTAL), steps, 1.0)
    true = [0.5 * (1 + math.cos(math.pi * (step - 5) / (TOTAL - 5))) for step in steps]
    worst = max(abs(a - b) for a, b in zip(found, true, strict=True))
    assert worst < 4e-16


@pytest.mark.parametrize("dynamic", [False, True])
def test_loss_scale_equals_its_twin(dynamic):
    draw = np.random.default_rng(0)
    state = Scale(2.0**12, growth_interval=4, dynamic=dynamic)
    ctl = control(LOSS_SCALE=state.scale)
    for _ in range(200):
        finite, counted = bool(draw.random() < 0.8), bool(draw.random() < 0.9)
        ctl.view(np.float64)[layout.GRAD_NORM] = 1.0 if finite else draw.choice([np.inf, np.nan])
        ctl[layout.TARGETS] = 3 if counted else 0
        state = state.update(finite or not counted, counted)
        ctl = call("loss_scale", ctl=ctl, dynamic=int(dynamic), interval=4)["ctl"]
        found = ctl.view(np.float64)[layout.LOSS_SCALE], *ctl[[layout.GOOD_STEPS, layout.BAD_STEPS]]
        assert found == (state.scale, state.good_steps, state.bad_steps)


def test_loss_scale_stays_between_1_and_2_to_the_24():
    for norm, scale in ((np.inf, 1.0), (1.0, 2.0**24)):
        ctl = control(LOSS_SCALE=scale, GRAD_NORM=norm, TARGETS=1)
        ctl = call("loss_scale", ctl=ctl, dynamic=1, interval=1)["ctl"]
        assert ctl.view(np.float64)[layout.LOSS_SCALE] == scale


METHODS = (
    DSR(), DSR(frequency=0.5), DSR(long_frequency=0.25), SET(periods=((0.3, 10), (0.7, 25))),
    DSR(frequency=4.0, periods=((0.5, 7), (1.0, 30))),
)  # fmt: skip


@pytest.mark.parametrize("total", [1, 60, 333, 4001])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name} {m.frequency}")
def test_rewire_due_is_set_in_the_periods_of_a_method(method, total):
    found = []
    for step in range(0, total, 1 if total < 1000 else 13):
        ctl = control(STEP=step, REWIRE_DUE=1, TOTAL_STEPS=total)
        for one in method.due_calls():
            ctl = call(one.kernel, **{**one.args, "ctl": ctl})["ctl"]
        found.append((step + 1, bool(ctl[layout.REWIRE_DUE])))
    assert found == [(step, due(method, step, total)) for step, _ in found]
