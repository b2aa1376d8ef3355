"""Learning rate factors by step, the reference for the step loop's kernels."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

from edgetrain.errors import UsageError
from edgetrain.kernels.declaration.ranges import Range
from edgetrain.kernels.registry import variants
from edgetrain.optim import SCHEDULES, Schedule
from edgetrain.optim.schedules.words import real
from edgetrain.units.plugin import option
from tests.optim.cases import SCHEDULE_CASES
from tests.twins import factor


def _factors(schedule, count):
    return [factor(schedule, step) for step in range(count)]


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
    assert factor(Schedule("cosine", total_steps=3), 9) == 0.0


@pytest.mark.parametrize("power", [1, 3])
def test_polynomial_equals_torch_and_stays_at_its_end(power):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, 8, power)
    expected = []
    for _ in range(10):
        expected.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    schedule = Schedule("polynomial", total_steps=8, power=power)
    assert _factors(schedule, 10) == pytest.approx(expected, abs=1e-15)
    above = Schedule("polynomial", total_steps=8, power=power, end=0.25)
    assert _factors(above, 10) == pytest.approx([0.25 + 0.75 * f for f in expected])


def test_the_range_of_an_option_is_that_of_the_kernel_s_integer():
    with pytest.raises(UsageError, match="power 65: expected a whole number from 1 to 64"):
        Schedule("polynomial", total_steps=8, power=65)
    (kernel,) = variants("rate_polynomial")
    ranges = {o.name: o.range for o in kernel.spec.operands if o.range}
    assert ranges == {"power": Range("given", 1, 64)}


def test_only_cosine_needs_the_total():
    kinds = {"constant": {}, "step": {"step_size": 1}, "cosine": {}}
    assert [Schedule(k, **v).needs_total for k, v in kinds.items()] == [False, False, True]


@pytest.mark.parametrize(
    "options",
    [{"kind": "linear"}, {"kind": "step"}, {"kind": "step", "step_size": -1},
     {"warmup_steps": -1}, {"kind": "step", "step_size": 2, "gamma": -0.5},
     {"kind": "step", "step_size": 2, "gamma": math.nan}, {"total_steps": -5},
     {"total_steps": 2**31}, {"warmup_steps": 2**31}],
)  # fmt: skip
def test_schedule_refuses_options_out_of_range(options):
    with pytest.raises(UsageError, match="schedule"):
        Schedule(**options)


def test_schedules_keep_their_numbers_in_bundles():
    """Stored states contain the number; new schedules are appended."""
    assert [*SCHEDULES][:9] == [
        "constant", "step", "cosine", "exponential", "inverse_sqrt", "multistep", "one_cycle",
        "plateau", "polynomial",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", SCHEDULES.values(), ids=SCHEDULES)
def test_bundles_call_a_schedule_s_kernel_with_its_whole_numbers(kind):
    (kernel,) = variants(kind.bundled)
    given = [o.name for o in kernel.spec.operands]
    of_size = kind.name in ("multistep", "inverse_sqrt")  # number of steps, which has a default
    assert len(given) == 1 + (1 if of_size else len(kind.own_of(int))) and given[0] == "ctl"
    assert kind.in_bundles()


@pytest.mark.parametrize("schedule", SCHEDULE_CASES.values(), ids=SCHEDULE_CASES)
def test_what_bundles_keep_is_the_schedule_again(schedule):
    whole, steps = schedule.whole_numbers(), schedule.chosen_steps()
    options = type(schedule).options_of(whole, schedule.numbers(), steps)
    shared = {"warmup_steps": schedule.warmup_steps, "total_steps": schedule.total_steps}
    assert type(schedule)(**shared, **options) == schedule


def test_bundles_have_no_words_for_more_numbers_than_three():
    class Long(Schedule):
        a: float = option(0.0, "first")
        b: float = option(0.0, "second")
        c: float = option(0.0, "third")

    class Longer(Long):
        d: float = option(0.0, "fourth")

    assert dataclasses.dataclass(frozen=True)(Long).in_bundles()
    assert not dataclasses.dataclass(frozen=True)(Longer).in_bundles()


def test_a_factor_that_its_kernel_cannot_compute_is_refused_by_name():
    with pytest.raises(UsageError, match=r"schedule wavy: its factor uses math; expected numbers"):

        @dataclass(frozen=True)
        class Wavy(Schedule):
            name: ClassVar[str] = "wavy"

            @staticmethod
            def factor(at, whole, rates):
                return math.cos(at.step)

    assert "wavy" not in SCHEDULES


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (lambda at, whole, rates: real(at.sep), "uses sep; it knows at.step, .*mean step"),
        (lambda at, whole, rates: real(whole.tial), "uses tial; .* whole.tail, .*mean tail"),
        (lambda at, whole, rates: real(whole.floor), "uses floor; .* in `rates`"),
        (lambda at, whole, rates: reel(at.step), "uses reel; .*mean real"),  # noqa: F821
        (lambda at, whole, rates: at.done, "uses at.done; expected needs_total to be True"),
        (lambda at, whole, rates: real(at.step) ** rates[0], r"uses \*\*; expected power"),
    ],
)
def test_a_misspelt_name_in_a_factor_is_refused_with_the_known_ones(formula, words):
    members = {
        "__annotations__": {"name": ClassVar[str], "tail": int, "floor": float},
        "name": "wavy", "tail": option(1, "the tail", "N", least=1, most=9),
        "floor": option(0.5, "the floor", "F"), "factor": staticmethod(formula),
    }  # fmt: skip
    with pytest.raises(UsageError, match=f"schedule wavy: its factor {words}"):
        type(Schedule)("Wavy", (Schedule,), members)


@pytest.mark.parametrize(
    ("kind", "tail", "words"),
    [
        (bool, option(False, "the tail"), "bool, by default False; expected int or float"),
        (float, option(1, "the tail", "N", least=1, most=9), "float, by default 1; expected int"),
        (str, option("a", "the tail"), "str, by default 'a'; expected int or float"),
        (int, option(1, "the tail", "N", least=1, most=2**31), "from 1 to 2147483648; expected"),
    ],
)
def test_an_option_that_a_factors_kernel_cannot_read_is_refused(kind, tail, words):
    members = {
        "__annotations__": {"name": ClassVar[str], "tail": kind},
        "name": "wavy", "tail": tail, "factor": staticmethod(lambda at, whole, rates: 1.0),
    }  # fmt: skip
    with pytest.raises(UsageError, match=f"schedule wavy: option tail: {words}"):
        type(Schedule)("Wavy", (Schedule,), members)


def test_a_factor_with_too_many_numbers_is_refused(request):
    @dataclass(frozen=True)
    class Many(Schedule):
        name: ClassVar[str] = "many"
        a: float = option(0.1, "first", "F")
        b: float = option(0.1, "second", "F")
        c: float = option(0.1, "third", "F")
        d: float = option(0.1, "fourth", "F")

        @staticmethod
        def factor(at, whole, rates):
            return max(rates[0], rates[3])

    request.addfinalizer(lambda: SCHEDULES.pop("many"))
    with pytest.raises(UsageError, match=r"schedule many: 4 options .* has at most 3"):
        Many().calls()
