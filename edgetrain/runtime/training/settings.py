"""What a Trainer is given, checked before anything is allocated or written."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from types import NoneType
from typing import Any

from ...errors import UsageError
from ...optim import Schedule
from ...optim.loss_scale import MAX_SCALE
from ...units import finite_number
from ...units.hints import did_you_mean
from ...units.options import check_needs, typed
from ..run.folder import RunFolder

SAVE_STEPS, SAVE_TOTAL_LIMIT = 0, 2
SAVE_SECONDS = 600.0  # where checkpoints are written for epochs, which may be long or never end


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keywords of `Trainer` besides the Program, its data and `out`.

    Attributes:
      lr: overrides the optimizer's learning rate.
      max_grad_norm, loss_scale: override the Program's clipping of gradients, and the loss scale;
        in fp16 the scale moves from there.
      schedule: of the learning rate; its total_steps is filled in by `fit`.
      total_steps: length of a run that is made of `step` alone, for schedules and rewirings that
        depend on it.
      save_steps: minibatches between checkpoints; 0: at the end of each epoch.
      save_seconds: seconds without a checkpoint after which one is written; 0: none for the time
        that went by. None: SAVE_SECONDS, or 0 where `save_steps` says when.
      save_total_limit: checkpoints to keep; None keeps all.
      verify_saves: read each checkpoint back from the medium, past the page cache, before an
        older one is given up: for flash that may lose a write.
      threads: workers; at most the Program's.
      validation: what to evaluate on while training. None: the data's own test split; nothing is
        held out where it has none. A fraction of the training samples, held out; or other data.
      keep_last: train on the last samples of a pass too, which are fewer than a minibatch: the
        mean is over those that are there.
      callbacks: see `Callback`; a list of objects, called in order.
      metrics: what evaluations count besides the loss: names or functions, see `Metrics`.
      on_event: called with a dict for each step, epoch, warning and save.
      resume: go on with the run in `out`, from its newest checkpoint. Without it, a run that is
        there already stays as it is, and this one goes to a new directory beside it.
      verbose: show progress and warnings; None: unless EDGETRAIN_PROGRESS is 0 or the level of the
        logger "edgetrain" says otherwise.
    """

    lr: float | None = None
    max_grad_norm: float | None = None
    loss_scale: float | None = None
    schedule: Schedule | None = None
    total_steps: int | None = None
    save_steps: int = SAVE_STEPS
    save_seconds: float | None = None
    save_total_limit: int | None = SAVE_TOTAL_LIMIT
    verify_saves: bool = False
    threads: int | None = None
    validation: Any = None
    keep_last: bool = False
    callbacks: Any = ()
    metrics: Any = ()
    on_event: Callable[[dict[str, Any]], None] | None = None
    resume: bool = False
    verbose: bool | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Those of a call.

        Raises:
          UsageError: one of another name.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        strange = [name for name in given if name not in known]
        if strange:
            raise UsageError(
                f"trainer: {strange[0]}: no setting of this name; expected program, data, out, "
                f"{', '.join(known)}.{did_you_mean(strange[0], known)}"
            )
        return cls(**given)

    @property
    def seconds(self) -> float:
        """Without a checkpoint, after which one is due; 0: none is."""
        if self.save_seconds is None:
            return 0.0 if self.save_steps else SAVE_SECONDS
        return self.save_seconds

    @property
    def changes(self) -> dict[str, float]:
        """What is to be otherwise than the Program says, besides the learning rate."""
        found = {"max_grad_norm": self.max_grad_norm, "loss_scale": self.loss_scale}
        return {name: float(value) for name, value in found.items() if value is not None}

    def check(self, out: Any) -> None:
        """Check all of them but what needs the Program or its data.

        Raises:
          UsageError: one of a wrong type or value, or about checkpoints where none is written.
        """
        if self.lr is not None:
            finite_number("trainer: lr", self.lr, least=0)
        if self.max_grad_norm is not None:
            finite_number("trainer: max_grad_norm", self.max_grad_norm, least=0)
        if self.loss_scale is not None:
            finite_number("trainer: loss_scale", self.loss_scale, least=1, most=MAX_SCALE)
        if self.save_seconds is not None:
            finite_number("trainer: save_seconds", self.save_seconds, least=0)
        for name, value, kinds, least in (
            ("total_steps", self.total_steps, (int, NoneType), 1),
            ("save_steps", self.save_steps, (int,), 0),
            ("save_total_limit", self.save_total_limit, (int, NoneType), 1),
            ("threads", self.threads, (int, NoneType), 1),
        ):
            number = typed(f"trainer: {name}", value, kinds)
            if number is not None and number < least:
                raise UsageError(f"trainer: {name} {number}: expected {least} or more.")
        if isinstance(self.validation, str) and _is_number(self.validation):
            raise UsageError(
                f"trainer: validation {self.validation!r}: a text; expected a number, or data. "
                f"Give {float(self.validation):g}."
            )
        typed("trainer: keep_last", self.keep_last, (bool,))
        typed("trainer: verify_saves", self.verify_saves, (bool,))
        typed("trainer: verbose", self.verbose, (bool, NoneType))
        if typed("trainer: resume", self.resume, (bool,)) and out is None:
            raise UsageError("trainer: resume: there is no directory to resume from. Give out.")
        if not isinstance(self.schedule, Schedule | None):
            raise UsageError(
                f"trainer: schedule {repr(self.schedule)[:80]}: expected a Schedule, such as "
                "et.Schedule('cosine')."
            )
        if self.on_event is not None and not callable(self.on_event):
            raise UsageError(f"trainer: on_event {repr(self.on_event)[:80]}: expected a function.")
        if not isinstance(out, str | PathLike | RunFolder | None):
            pair = " Give data as a pair: (x, y)." if hasattr(out, "__len__") else ""
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
