"""Learning-rate factors by step, and the automaton of the loss scale."""

import math

import pytest

from edgetrain.errors import UsageError
from edgetrain.optim import LossScale, Schedule
from edgetrain.optim.loss_scale import MAX_SCALE


def _factors(schedule, count):
    return [schedule.factor(step) for step in range(count)]


def test_constant_is_one():
    assert _factors(Schedule(), 3) == [1.0, 1.0, 1.0]


def test_warmup_rises_linearly_to_one():
    assert _factors(Schedule(warmup_steps=4), 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_step_multiplies_by_gamma():
    schedule = Schedule("step", step_size=2, gamma=0.5)
    assert _factors(schedule, 6) == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_cosine_falls_to_zero_at_the_total():
    schedule = Schedule("cosine", total_steps=4)
    expected = [0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(5)]
    assert _factors(schedule, 5) == pytest.approx(expected, abs=1e-15)


def test_cosine_begins_after_warmup():
    schedule = Schedule("cosine", warmup_steps=2, total_steps=6)
    assert _factors(schedule, 7) == pytest.approx(
        [0.5, 1.0, 1.0, 0.5 + math.sqrt(2) / 4, 0.5, 0.5 - math.sqrt(2) / 4, 0.0]
    )


def test_cosine_equals_torch_after_warmup():
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    expected = []
    for _ in range(10):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert _factors(Schedule("cosine", total_steps=10), 10) == pytest.approx(expected)


def test_cosine_stays_at_zero_beyond_the_total():
    assert Schedule("cosine", total_steps=3).factor(9) == 0.0


def test_only_cosine_needs_the_total():
    kinds = {"constant": {}, "step": {"step_size": 1}, "cosine": {}}
    assert [Schedule(k, **v).needs_total for k, v in kinds.items()] == [False, False, True]


@pytest.mark.parametrize(
    "options",
    [{"kind": "linear"}, {"kind": "step"}, {"kind": "step", "step_size": -1},
     {"warmup_steps": -1}, {"kind": "step", "step_size": 2, "gamma": -0.5},
     {"kind": "step", "step_size": 2, "gamma": math.nan}, {"total_steps": -5}],
)  # fmt: skip
def test_schedule_refuses_options_out_of_range(options):
    with pytest.raises(UsageError, match="schedule"):
        Schedule(**options)


def test_loss_scale_of_fp32_is_one_and_fixed():
    scale = LossScale.for_precision("fp32")
    for finite in (True, False, True):
        scale = scale.update(finite)
    assert scale == LossScale(1.0, good_steps=1)


def test_loss_scale_backs_off_at_every_overflow_and_counts_them():
    scale = LossScale.for_precision("fp16")
    first = scale.scale
    scale = scale.update(True).update(False).update(False)
    assert (scale.scale, scale.good_steps, scale.bad_steps) == (first / 4, 0, 2)
    assert scale.update(True).bad_steps == 0


def test_loss_scale_never_falls_below_one():
    scale = LossScale.for_precision("fp16")
    for _ in range(40):
        scale = scale.update(False)
    assert (scale.scale, scale.bad_steps) == (1.0, 40)


def test_loss_scale_doubles_after_enough_good_steps():
    scale = LossScale(8.0, growth_interval=3, dynamic=True)
    scales = []
    for _ in range(7):
        scale = scale.update(True)
        scales.append(scale.scale)
    assert scales == [8.0, 8.0, 16.0, 16.0, 16.0, 32.0, 32.0]


def test_loss_scale_stops_growing_at_its_maximum():
    scale = LossScale(MAX_SCALE, growth_interval=1, dynamic=True).update(True)
    assert scale.scale == MAX_SCALE
