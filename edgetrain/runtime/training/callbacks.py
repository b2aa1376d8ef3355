"""Callbacks of a run.

Their state is part of checkpoints, so a resumed run stops at the same step.
"""

import math
from _thread import get_ident
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from ...errors import CheckpointError, UsageError
from ...units import finite_number
from ...units.hints import did_you_mean
from ...units.options import typed
from ...units.public import public_api

HOOKS = ("on_fit_begin", "on_step", "on_epoch_end", "on_evaluate", "on_save", "on_fit_end")
# Of these more is better; of everything else, less.
_RISING = ("accuracy", "top", "f1", "precision", "recall")


class Running(Protocol):
    """What these callbacks need from a Trainer."""

    @property
    def steps(self) -> int:
        """Steps done."""

    def stop(self, reason: str) -> None:
        """End the run after this step."""

    def keep_best(self) -> None:
        """Save a copy of the state."""

    def restore_best(self) -> None:
        """Restore that copy."""


@public_api
class Callback:
    """Functions called by a Trainer. Override some in a subclass, or pass them by name.

    on_fit_begin(trainer), on_fit_end(trainer); on_step(trainer, result): after each step, with its
    StepResult; on_epoch_end(trainer, event): with the epoch's loss and "evaluation", if there was
    one; on_evaluate(trainer, metrics); on_save(trainer, path).

    Args:
      functions: by the names above.
    Raises:
      UsageError: an unknown name, or not a function.
    """

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if name not in HOOKS or not callable(function):
                raise UsageError(f"callback {name}: expected functions named {', '.join(HOOKS)}.")
            setattr(self, name, function)

    def on_fit_begin(self, trainer: Any) -> None:
        """Before the first step."""

    def on_step(self, trainer: Any, result: Any) -> None:
        """After a step."""

    def on_epoch_end(self, trainer: Any, event: Mapping[str, Any]) -> None:
        """After an epoch and its evaluation."""

    def on_evaluate(self, trainer: Any, metrics: Mapping[str, Any]) -> None:
        """After an evaluation of `fit`."""

    def on_save(self, trainer: Any, path: Any) -> None:
        """After a checkpoint was written."""

    def on_fit_end(self, trainer: Any) -> None:
        """After the last step."""

    def state(self) -> dict[str, Any]:
        """The callback's state as JSON values; saved in checkpoints."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""


_WATCHED = ("loss", "train_loss", "accuracy", "samples")  # what an epoch may have unasked


class _Watch(Callback):
    """Watches one number of each epoch.

    Args:
      monitor: "loss" (evaluation loss, or training loss without evaluation), "train_loss", or a
        metric.
      min_delta: smallest change that counts as an improvement.
      mode: "min" or "max"; None: depends on the metric.
    """

    def __init__(
        self, monitor: str = "loss", *, min_delta: float = 0.0, mode: str | None = None
    ) -> None:
        super().__init__()
        where = type(self).__name__
        self.monitor = typed(f"{where}: monitor", monitor, (str,))
        self.min_delta = finite_number(f"{where}: min_delta", min_delta, least=0)
        if mode not in ("min", "max", None):
            raise UsageError(f"{where}: mode {mode!r}: expected 'min' or 'max'.")
        rises = self.monitor.startswith(_RISING) or self.monitor.endswith("_accuracy")
        rises = rises if mode is None else mode == "max"
        self._sign = -1.0 if rises else 1.0
        self.best: float | None = None
        self.best_step = 0

    def _better(self, trainer: Running, event: Mapping[str, Any]) -> bool:
        """Whether the number is the best so far; remembers it if so."""
        value = watched(event, self.monitor)
        if not math.isfinite(value):
            return False
        if self.best is not None and self._sign * (self.best - value) <= self.min_delta:
            return False
        self.best, self.best_step = value, trainer.steps
        return True

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_step = state["best"], int(state["best_step"])


@public_api
class EarlyStopping(_Watch):
    """Stop the run after `patience` epochs in a row without improvement."""

    def __init__(
        self,
        monitor: str = "loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str | None = None,
    ) -> None:
        super().__init__(monitor, min_delta=min_delta, mode=mode)
        self.patience = typed("EarlyStopping: patience", patience, (int,))
        if self.patience < 1:
            raise UsageError(f"EarlyStopping: patience {patience}: expected at least 1.")
        self.waited, self._resumed = 0, False

    def on_fit_begin(self, trainer: Running) -> None:
        if self._resumed:  # a run that this one ended has ended
            self._stop_if_due(trainer)
        self._resumed = False

    def on_epoch_end(self, trainer: Running, event: Mapping[str, Any]) -> None:
        self.waited = 0 if self._better(trainer, event) else self.waited + 1
        self._stop_if_due(trainer)

    def _stop_if_due(self, trainer: Running) -> None:
        if self.waited >= self.patience:
            trainer.stop(
                f"{self.monitor} has not improved for {self.waited} epochs; best "
                f"{'none' if self.best is None else format(self.best, '.5g')} at step "
                f"{self.best_step}"
            )

    def state(self) -> dict[str, Any]:
        return {**super().state(), "waited": self.waited}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.waited, self._resumed = int(state["waited"]), True


@public_api
class KeepBest(_Watch):
    """Keep the weights of the best epoch, and restore them at the end of the run.

    They are stored in `out` (best.ckpt), or in memory without `out`.

    Args:
      restore: False: end with the last weights; call `trainer.restore_best()` for the best.
    """

    def __init__(
        self,
        monitor: str = "loss",
        *,
        min_delta: float = 0.0,
        mode: str | None = None,
        restore: bool = True,
    ) -> None:
        super().__init__(monitor, min_delta=min_delta, mode=mode)
        self.restore = typed("KeepBest: restore", restore, (bool,))

    def on_epoch_end(self, trainer: Running, event: Mapping[str, Any]) -> None:
        if self._better(trainer, event):
            trainer.keep_best()

    def on_fit_end(self, trainer: Running) -> None:
        if self.restore and self.best is not None and self.best_step != trainer.steps:
            trainer.restore_best()


def watched(event: Mapping[str, Any], monitor: str) -> float:
    """The value of `monitor` in an epoch.

    Raises:
      UsageError: the epoch does not have it.
    """
    found = {"loss": event["loss"], **event.get("evaluation", {}), "train_loss": event["loss"]}
    value = found.get(monitor)
    if not isinstance(value, int | float):
        numbers = [name for name, item in found.items() if isinstance(item, int | float)]
        raise UsageError(
            f"monitor {monitor!r}: available are {', '.join(numbers)}. Choose one of these, or "
            f"evaluate with this metric.{did_you_mean(monitor, numbers)}"
        )
    return float(value)


class Callbacks:
    """The callbacks of a run, called in order.

    Args:
      given: objects with some of HOOKS as methods.
    Raises:
      UsageError: an object has none of them.
    """

    def __init__(self, given: Any) -> None:
        if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
            given = [given]
        self._all = list(given)
        self.inside: list[tuple[int, str]] = []  # (thread, hook) of running calls
        for item in self._all:
            if isinstance(item, type) or not any(callable(getattr(item, h, None)) for h in HOOKS):
                raise UsageError(
                    f"callbacks: {repr(item)[:80]}: expected an object with some of the methods "
                    f"{', '.join(HOOKS)}, such as et.Callback(on_step=FUNCTION)."
                )

    def __len__(self) -> int:
        return len(self._all)

    def check_monitors(self, metrics: Iterable[str]) -> None:
        """Check before training that monitored metrics will exist.

        With user-defined callbacks, which may add metrics, this is checked later.

        Args:
          metrics: names of the additional metrics of evaluations.
        Raises:
          UsageError: a callback monitors an unknown metric.
        """
        known = [*_WATCHED, *metrics]
        if not all(isinstance(item, _Watch) for item in self._all):
            return
        for item in self._all:
            if item.monitor not in known:
                raise UsageError(
                    f"monitor {item.monitor!r}: available are {', '.join(known)}. Choose one of "
                    "these, or evaluate with this metric."
                    f"{did_you_mean(item.monitor, known)}"
                )

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of all callbacks that have it."""
        for item in self._all:
            function = getattr(item, hook, None)
            if function is None:
                continue
            called = get_ident(), hook
            self.inside.append(called)
            try:
                function(*arguments)
            except TypeError as error:
                trace = error.__traceback__
                if trace is not None and trace.tb_next is None:  # the call itself
                    raise UsageError(
                        f"callback {hook}: {error}; it gets {len(arguments)} arguments: "
                        f"{', '.join(type(one).__name__ for one in arguments)}."
                    ) from error
                raise
            finally:
                self.inside.remove(called)

    def check_outside(self, what: str, *hooks: str) -> None:
        """Refuse a call from within a callback.

        Args:
          hooks: hooks that must not make the call; none given: all hooks.
        Raises:
          UsageError: a callback made the call.
        """
        own = [hook for thread, hook in self.inside if thread == get_ident()]
        found = [hook for hook in own if not hooks or hook in hooks]
        if found:
            raise UsageError(
                f"{what}: called from a callback's {found[-1]}, which would call it again. Call "
                "it outside of callbacks."
            )

    def state(self) -> list[list[Any]]:
        """[class, state] of each callback, as JSON; non-finite numbers become null."""
        return [[type(item).__name__, _plain(_of(item, "state", dict)())] for item in self._all]

    def load_state(self, states: list[list[Any]], label: str) -> None:
        """Restore what `state` returned.

        Raises:
          CheckpointError: the run had different callbacks.
        """
        ran, here = [name for name, _ in states], [type(item).__name__ for item in self._all]
        if ran != here:
            raise CheckpointError(
                f"{label}: the run had callbacks {', '.join(ran) or 'none'}; found "
                f"{', '.join(here) or 'none'}. Resume with the same callbacks."
            )
        for item, (name, state) in zip(self._all, states, strict=True):
            try:
                _of(item, "load_state", lambda state: None)(state)
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(
                    f"{label}: the state of callback {name} is invalid ({error!r}). Remove the "
                    "file to use an older one."
                ) from error


def _of(item: Any, name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(item, name, usual)


def _plain(value: Any) -> Any:
    """Convert to plain Python types; non-finite numbers become None.

    Raises:
      UsageError: it can't be stored as JSON.
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise UsageError(
        f"state of a callback: {repr(value)[:80]}: expected numbers, strings, lists or dicts."
    )
