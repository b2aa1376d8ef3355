"""Settings of a Trainer, checked before anything is allocated or written."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from types import NoneType
from typing import Any

from ...errors import UsageError
from ...optim import Schedule
from ...optim.schedules.base import MOST_STEPS
from ...options.trainer import SAVE_SECONDS, SETTINGS
from ...units import finite_number, whole_number
from ...units.hints import did_you_mean
from ...units.options import check_needs, typed
from ..run.folder import RunFolder


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Settings:
    """Keywords of `Trainer`, other than the Program, data and `out`.

    Attributes:
      lr: learning rate, instead of the optimizer's.
      max_grad_norm, loss_scale: gradient clipping and loss scale, instead of the Program's; in
        fp16 the scale continues to adapt.
      schedule: learning-rate schedule; `fit` sets its total_steps.
      total_steps: length of a run made of `step` calls, for schedules and rewirings that need it.
      save_steps: minibatches between checkpoints; 0: one per epoch.
      save_seconds: longest time between checkpoints; 0: no limit. None: SAVE_SECONDS, or 0 with
        `save_steps`.
      save_total_limit: checkpoints to keep; None keeps all.
      verify_saves: read each checkpoint back from the disk, past the page cache, before removing
        an older one: for flash that may lose writes.
      threads: workers; at most the Program's.
      validation: evaluation data. None: the test split, if there is one; a fraction of the
        training samples to hold out; or other data.
      keep_last: also train on a partial last minibatch; the mean is over its samples.
      callbacks: a list of objects, called in order; see `Callback`.
      metrics: additional metrics of evaluations, names or functions; see `OutputMetrics`.
      on_event: called with a dict for each step, epoch, warning and save.
      resume: continue the run in `out` from its newest checkpoint. Otherwise an existing run is
        left alone, and this one is written to a new directory next to it.
      verbose: show progress and warnings. None: yes, unless EDGETRAIN_PROGRESS is 0 or the level of
        the logger "edgetrain" is above INFO.
    """

    lr: float | None = None
    max_grad_norm: float | None = None
    loss_scale: float | None = None
    schedule: Schedule | None = None
    total_steps: int | None = None
    save_steps: int = SETTINGS["save_steps"].default
    save_seconds: float | None = SETTINGS["save_seconds"].default
    save_total_limit: int | None = SETTINGS["save_total_limit"].default
    verify_saves: bool = SETTINGS["verify_saves"].default
    threads: int | None = None
    validation: Any = None
    keep_last: bool = SETTINGS["keep_last"].default
    callbacks: Any = ()
    metrics: Any = ()
    on_event: Callable[[dict[str, Any]], None] | None = None
    resume: bool = False
    verbose: bool | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Make Settings from the keywords of a call.

        Raises:
          UsageError: an unknown keyword, or a wrong type of `verbose`.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        strange = [name for name in given if name not in known]
        if strange:
            raise UsageError(
                f"trainer: {strange[0]}: no such setting; expected program, data, out, "
                f"{', '.join(known)}.{did_you_mean(strange[0], known)}"
            )
        made = cls(**given)
        typed("trainer: verbose", made.verbose, (bool, NoneType))  # used before `check`
        if hasattr(made.metrics, "tolist"):
            return dataclasses.replace(made, metrics=made.metrics.tolist())
        return made

    @property
    def seconds(self) -> float:
        """Longest time between checkpoints in seconds; 0: no limit."""
        if self.save_seconds is None:
            return 0.0 if self.save_steps else SAVE_SECONDS
        return self.save_seconds

    @property
    def changes(self) -> dict[str, float]:
        """Values that override the Program's, other than the learning rate."""
        result = {"max_grad_norm": self.max_grad_norm, "loss_scale": self.loss_scale}
        return {name: float(value) for name, value in result.items() if value is not None}

    def _check_declared(self) -> None:
        """Check what is declared in options/; a run with the defaults doesn't load the checks."""
        given = [n for n, option in SETTINGS.items() if getattr(self, n) is not option.default]
        changed = [n for n in ("max_grad_norm", "loss_scale") if getattr(self, n) is not None]
        if not given and not changed:
            return
        from ...options.checks import checked
        from ...options.declared import OPTIONS

        for name in changed:
            checked(OPTIONS[name], getattr(self, name), "trainer: ")
        for name in given:
            checked(SETTINGS[name], getattr(self, name), "trainer: ")

    def check(self, out: Any) -> None:
        """Check everything that does not need the Program or its data.

        Raises:
          UsageError: a wrong type or value, or a checkpoint setting without `out`.
        """
        if self.lr is not None:
            finite_number("trainer: lr", self.lr, least=0)
        self._check_declared()
        for name, value in (("total_steps", self.total_steps), ("threads", self.threads)):
            if value is not None:
                whole_number(f"trainer: {name}", value, least=1, most=MOST_STEPS)
        if isinstance(self.validation, str) and _is_number(self.validation):
            raise UsageError(
                f"trainer: validation {self.validation!r}: a string; expected a number, or data. "
                f"Pass {float(self.validation):g}."
            )
        if typed("trainer: resume", self.resume, (bool,)) and out is None:
            raise UsageError("trainer: resume: there is no directory to resume from. Pass out.")
        if not isinstance(self.schedule, Schedule | None):
            raise UsageError(
                f"trainer: schedule {repr(self.schedule)[:80]}: expected a Schedule, such as "
                "et.Schedule('cosine')."
            )
        if self.on_event is not None and not callable(self.on_event):
            raise UsageError(f"trainer: on_event {repr(self.on_event)[:80]}: expected a function.")
        if not isinstance(out, str | PathLike | RunFolder | None):
            pair = " Pass data as a pair: (x, y)." if hasattr(out, "__len__") else ""
            raise UsageError(
                f"trainer: out {' '.join(repr(out).split())[:80]}: expected a directory.{pair}"
            )
        names = "save_steps", "save_seconds", "save_total_limit", "verify_saves"
        values = {name: getattr(self, name) for name in names}
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        given = [name for name, value in values.items() if value != usual[name]]
        check_needs(given, values | {"out": out}, str, "trainer: ")


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def asks_metrics(metrics: Any) -> bool:
    """Whether metrics were requested; None and an empty list, tuple or mapping mean no.

    Raises:
      UsageError: another empty value, such as 0 or "".
    """
    if metrics is None or isinstance(metrics, list | tuple | Mapping):
        return bool(metrics)
    if not hasattr(metrics, "dtype") and not metrics:
        raise UsageError(f"metrics {metrics!r}: expected names or functions, such as ['f1'].")
    return True


def check_length(epochs: Any, steps: Any) -> None:
    """Check the length passed to `fit`: epochs or steps, above 0.

    Raises:
      UsageError: both or neither, or an invalid number.
    """
    if (epochs is None) == (steps is None):
        raise UsageError("fit: pass either epochs or steps.")
    name, kind = ("epochs", float) if steps is None else ("steps", int)
    number = typed(f"fit: {name}", epochs if steps is None else steps, (kind,))
    if not number > 0:
        raise UsageError(f"fit: {name} {number}: expected more than 0.")
