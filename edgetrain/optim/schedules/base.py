"""The base class of learning-rate schedules: kernel calls before each step, and their state."""

import builtins
import dataclasses
import math
import opcode
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import UsageError
from ...ir import Call
from ...units.hints import did_you_mean
from ...units.plugin import Plugin, about, option

MOST_STEPS = 2**31 - 1  # of a run: kernels convert 31 bits to float64
BUNDLED = 3  # most integers, and most floats, that bundles store for a schedule
RATES = 3  # most options of a `factor` besides integers
_POWERS = (8, 21)  # operands of BINARY_OP: ** and **=
_BUILTINS = ("max", "min")  # what kernels know besides words.py


@dataclass(frozen=True)
class Schedule(Plugin):
    """A factor on the optimizer's learning rate, computed by kernels from the step.

    A schedule that depends only on the step is defined by its `factor`: a static method (at, whole,
    rates) of an `At` (words.py), the integer options by name, and the others in order, at most
    three. Its kernel, its torch twin and its options' ranges are made from it.

    Attributes:
      kernel: the name of the kernel compiled from its factor.
      bundled: the kernel that bundles call with the control block and its integers, in their order;
        default: rate_NAME.
      warmup_steps: the factor rises linearly over these first steps.
      total_steps: steps of the whole run; fixed at the first start.
      needs_total: whether the rate depends on the length of the run.
      seen: names of the state words at SEEN in the control block; they start at 0 and are saved
        in checkpoints.
    """

    family: ClassVar[str] = "schedule"
    choice: ClassVar[str] = "lr_schedule"
    prefix: ClassVar[str] = "lr_"
    default: ClassVar[str] = "constant"
    needs_total: ClassVar[bool] = False
    seen: ClassVar[tuple[str, ...]] = ()
    kernel: ClassVar[str] = ""
    factor: ClassVar[Any]
    bundled: ClassVar[str] = ""

    warmup_steps: int = option(
        0, "steps of linear warm-up", "N", flag="warmup_steps", least=0, most=MOST_STEPS
    )
    total_steps: int = option(0, "steps of the whole run", "N", flag=None, least=0, most=MOST_STEPS)

    def __init_subclass__(cls) -> None:
        if "factor" in vars(cls):
            _check_options(cls)
            _check_names(cls)
            cls.kernel = f"rate_{cls.name}"
        super().__init_subclass__()
        if "bundled" not in vars(cls):
            cls.bundled = f"rate_{cls.name}"

    @classmethod
    def whole_options(cls) -> dict[str, tuple[int, int]]:
        """Its own integer options, with their ranges."""
        out = {}
        for field in cls.own_of(int):
            bounds = about(field).bounds
            out[field.name] = int(bounds["least"]), int(bounds["most"])
        return out

    @classmethod
    def own_options(cls) -> list["dataclasses.Field[Any]"]:
        """Fields that the base class lacks."""
        shared = {field.name for field in dataclasses.fields(Schedule)}
        return [field for field in dataclasses.fields(cls) if field.name not in shared]

    @classmethod
    def own_of(cls, kind: type) -> list["dataclasses.Field[Any]"]:
        """Its own options with this type."""
        kinds = typing.get_type_hints(cls)
        return [field for field in cls.own_options() if kinds[field.name] is kind]

    @classmethod
    def in_bundles(cls) -> bool:
        """Whether bundles can store all of its options."""
        whole, real = cls.own_of(int), cls.own_of(float)
        hidden = [field for field in cls.own_options() if about(field).flag is None]
        others = len(cls.own_options()) - len(whole) - len(real) - len(hidden)
        return not others and max(len(whole), len(real)) <= BUNDLED

    def whole_numbers(self) -> tuple[int, ...]:
        """Its integers as stored in bundles."""
        return tuple(getattr(self, field.name) for field in self.own_of(int))

    def chosen_steps(self) -> tuple[int, ...]:
        """The step numbers that bundles store for it."""
        return ()

    @classmethod
    def options_of(
        cls, whole: Sequence[int], real: Sequence[float], steps: Sequence[int]
    ) -> dict[str, Any]:
        """Its options from the numbers stored in bundles: the inverse of `whole_numbers`, `numbers`
        and `chosen_steps`.
        """
        out: dict[str, Any] = dict(zip([f.name for f in cls.own_of(int)], whole, strict=False))
        return out | dict(zip([f.name for f in cls.own_of(float)], real, strict=False))

    def calls(self) -> list[Call]:
        """Instructions that set a step's learning rate (kernels/step_loop/rates.py)."""
        if len(self.numbers()) > RATES:
            raise UsageError(
                f"schedule {self.name}: {len(self.numbers())} options that are not integers; a "
                f"`factor` has at most {RATES}. Write a kernel for it, like that of plateau."
            )
        whole = {name: getattr(self, name) for name in self.whole_options()}
        return [Call(self.kernel, {"ctl": "ctl", **whole})]

    def numbers(self) -> tuple[float, ...]:
        """Operands of these instructions, at RATE in the control block; at most RATE_WORDS."""
        if not self.kernel:
            return ()
        whole = self.whole_options()
        return tuple(getattr(self, f.name) for f in self.own_options() if f.name not in whole)

    def factor_at(self, step: int) -> float:
        """The factor at a step, for a schedule with a `factor`."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        from .words import at

        where = at(step, self.warmup_steps, self.total_steps)
        return float(type(self).factor(where, self, self.numbers()))

    def check_rates(self, lr: float) -> None:
        """Reject a base rate that overflows at some step of the run.

        Raises:
          UsageError: names the step.
        """


def _check_options(kind: type[Schedule]) -> None:
    """Refuse options of a `factor` that its kernel could not read."""
    kinds = typing.get_type_hints(kind)
    for name, field in vars(kind).items():
        if not isinstance(field, dataclasses.Field):
            continue
        label, number = f"schedule {kind.name}: option {name}", kinds[name]
        if number not in (int, float) or type(field.default) is not number:
            raise UsageError(
                f"{label}: {getattr(number, '__name__', number)}, by default {field.default!r}; "
                "expected int or float, and a default of that type."
            )
        bounds = about(field).bounds
        least, most = bounds.get("least", -math.inf), bounds.get("most", math.inf)
        if number is int and not -MOST_STEPS <= least <= most <= MOST_STEPS:
            raise UsageError(
                f"{label}: from {least} to {most}; expected bounds within 31 bits, because kernels "
                "convert no larger integer to float64."
            )


def _check_names(kind: type[Schedule]) -> None:
    """Refuse a `factor` that its kernel could not compute."""
    from .words import FUNCTIONS, OF_LENGTH, At

    label, factor = f"schedule {kind.name}: its factor", kind.factor
    given = {n: f for n, f in vars(kind).items() if isinstance(f, dataclasses.Field)}
    given |= {field.name: field for field in kind.own_options()}
    whole = [name for name, field in given.items() if not isinstance(field.default, float)]
    if _has_power(factor.__code__.co_code):
        raise UsageError(f"{label} uses **; expected power(base, exponent), or root(number).")
    of_length = sorted({*OF_LENGTH} & {*factor.__code__.co_names})
    if of_length and not kind.needs_total:
        raise UsageError(f"{label} uses at.{of_length[0]}; expected needs_total to be True.")
    known, attributes = {*_BUILTINS, *FUNCTIONS}, {*At._fields, *whole}
    for used in factor.__code__.co_names:
        value = factor.__globals__.get(used, getattr(builtins, used, None))
        if used in known or used in attributes or isinstance(value, int | float):
            continue
        if value is None:
            shown = [f"at.{name}" for name in At._fields] + [f"whole.{name}" for name in whole]
            raise UsageError(
                f"{label} uses {used}; it knows {', '.join(shown)}, and in `rates` the options "
                f"that are not integers.{did_you_mean(used, [*known, *attributes])}"
            )
        raise UsageError(
            f"{label} uses {used}; expected numbers and "
            f"{', '.join((*FUNCTIONS, *_BUILTINS))}. Write the formula with these."
        )


def _has_power(code: bytes) -> bool:
    """Whether a function's bytecode raises a number to a power."""
    pairs = zip(code[::2], code[1::2], strict=True)
    return any(word == opcode.opmap["BINARY_OP"] and kind in _POWERS for word, kind in pairs)
