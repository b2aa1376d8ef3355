"""What a Trainer is given, checked before anything is allocated or written."""

from os import PathLike
from types import NoneType
from typing import Any

from ..errors import UsageError
from ..optim import Schedule
from ..units import finite_number
from ..units.options import check_needs, typed
from .folder import RunFolder

SAVE_STEPS, SAVE_TOTAL_LIMIT = 0, 2


def check_settings(
    out: Any,
    lr: Any,
    schedule: Any,
    save_steps: Any,
    save_total_limit: Any,
    threads: Any,
    on_event: Any = None,
) -> None:
    """Check the keywords of `Trainer`, all but the Program and its data.

    Raises:
      UsageError: one of a wrong type or value, or about checkpoints where none is written.
    """
    if lr is not None:
        finite_number("trainer: lr", lr, least=0)
    for name, value, kinds, least in (
        ("save_steps", save_steps, (int,), 0),
        ("save_total_limit", save_total_limit, (int, NoneType), 1),
        ("threads", threads, (int, NoneType), 1),
    ):  # fmt: skip
        number = typed(f"trainer: {name}", value, kinds)
        if number is not None and number < least:
            raise UsageError(f"trainer: {name} {number}: expected {least} or more.")
    if not isinstance(schedule, Schedule | None):
        raise UsageError(f"trainer: schedule {repr(schedule)[:80]}: expected a Schedule.")
    if on_event is not None and not callable(on_event):
        raise UsageError(f"trainer: on_event {repr(on_event)[:80]}: expected a function.")
    if not isinstance(out, str | PathLike | RunFolder | None):
        raise UsageError(f"trainer: out {repr(out)[:80]}: expected a directory.")
    usual = {"save_steps": (save_steps, SAVE_STEPS)}
    usual |= {"save_total_limit": (save_total_limit, SAVE_TOTAL_LIMIT)}
    given = [name for name, (value, default) in usual.items() if value != default]
    values = {name: value for name, (value, _) in usual.items()}
    check_needs(given, values | {"out": out}, str, "trainer: ")


def check_length(epochs: Any, steps: Any) -> None:
    """Check what `fit` is asked for: one of the two, above 0.

    Raises:
      UsageError: both or none, or a number that is no length of a run.
    """
    if (epochs is None) == (steps is None):
        raise UsageError("fit: give epochs or steps, one of the two.")
    name, kind = ("epochs", float) if steps is None else ("steps", int)
    number = typed(f"fit: {name}", epochs if steps is None else steps, (kind,))
    if not number > 0:
        raise UsageError(f"fit: {name} {number}: expected more than 0.")
