"""What a run calls while it trains, and what some of it remembers from step to step.

State of callbacks is part of a checkpoint, so that a resumed run stops where the other would have.
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
    """What callbacks here ask of the Trainer that calls them."""

    @property
    def steps(self) -> int:
        """Steps done."""

    def stop(self, reason: str) -> None:
        """End the run after this step."""

    def keep_best(self) -> None:
        """Keep the state as it is apart."""

    def restore_best(self) -> None:
        """Go back to it."""


@public_api
class Callback:
    """Functions that a Trainer calls. Override some in a subclass, or pass them by name.

    on_fit_begin(trainer), on_fit_end(trainer); on_step(trainer, result): after each step, with its
    StepResult; on_epoch_end(trainer, event): with the epoch's loss and, where it was evaluated,
    "evaluation"; on_evaluate(trainer, metrics); on_save(trainer, path).

    Args:
      functions: by the names above.
    Raises:
      UsageError: another name, or no function.
    """

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if name not in HOOKS or not callable(function):
                raise UsageError(
                    f"callback {name}: expected functions for some of {', '.join(HOOKS)}."
                )
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
    """Looks at one number of each epoch.

    Args:
      monitor: "loss" (of the evaluation, else of training), "train_loss", or a metric's name.
      min_delta: by how much it must get better to count.
      mode: "min" or "max"; None: by the metric.
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
        """Whether the number is the best so far, which it is from then on."""
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
    """End the run after `patience` epochs in a row without improvement."""

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
            raise UsageError(f"EarlyStopping: patience {patience}: expected 1 or more.")
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
                f"{self.monitor} did not get better in {self.waited} epochs; best "
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
    """Keep the weights of the best epoch, and restore them when the run ends.

    With `out` they are a file of their own there (best.ckpt), else a copy in memory.

    Args:
      restore: False: the run ends with the last weights; `trainer.restore_best()` takes the best.
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
    """The number of an epoch that `monitor` names.

    Raises:
      UsageError: the epoch has none of this name.
    """
    found = {"loss": event["loss"], **event.get("evaluation", {}), "train_loss": event["loss"]}
    value = found.get(monitor)
    if not isinstance(value, int | float):
        numbers = [name for name, item in found.items() if isinstance(item, int | float)]
        raise UsageError(
            f"monitor {monitor!r}: an epoch has {', '.join(numbers)}. Choose one of these, or ask "
            f"for an evaluation and the metric.{did_you_mean(monitor, numbers)}"
        )
    return float(value)


class Callbacks:
    """The callbacks of a run, called in their order.

    Args:
      given: objects with some of HOOKS as methods.
    Raises:
      UsageError: one that has none of them.
    """

    def __init__(self, given: Any) -> None:
        if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
            given = [given]
        self._all = list(given)
        self.inside: list[tuple[int, str]] = []  # (thread, hook) of those that are being called
        for item in self._all:
            if isinstance(item, type) or not any(callable(getattr(item, h, None)) for h in HOOKS):
                raise UsageError(
                    f"callbacks: {repr(item)[:80]}: expected an object with some of the methods "
                    f"{', '.join(HOOKS)}, such as et.Callback(on_step=FUNCTION)."
                )

    def __len__(self) -> int:
        return len(self._all)

    def check_monitors(self, metrics: Iterable[str]) -> None:
        """Have callbacks watch what an epoch may have, before one is trained.

        Callbacks of one's own may add to an evaluation: beside them it is found out later.

        Args:
          metrics: names of those that evaluations count besides.
        Raises:
          UsageError: one watches another.
        """
        known = [*_WATCHED, *metrics]
        if not all(isinstance(item, _Watch) for item in self._all):
            return
        for item in self._all:
            if item.monitor not in known:
                raise UsageError(
                    f"monitor {item.monitor!r}: an epoch has {', '.join(known)}. Choose one of "
                    "these, or ask for an evaluation and the metric."
                    f"{did_you_mean(item.monitor, known)}"
                )

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of all of them that have it."""
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
                        f"callback {hook}: {error}; it is called with {len(arguments)} arguments: "
                        f"{', '.join(type(one).__name__ for one in arguments)}."
                    ) from error
                raise
            finally:
                self.inside.remove(called)

    def check_outside(self, what: str, *hooks: str) -> None:
        """Refuse what would call the callback again in which it is called.

        Args:
          hooks: those in which it may not be called; none: in no one.
        Raises:
          UsageError: it was called by a callback.
        """
        own = [hook for thread, hook in self.inside if thread == get_ident()]
        found = [hook for hook in own if not hooks or hook in hooks]
        if found:
            raise UsageError(
                f"{what}: called by a callback's {found[-1]}, which {what} calls itself. Call it "
                "in a loop of your own."
            )

    def state(self) -> list[list[Any]]:
        """[class, state] of each, as JSON; infinities and NaN have become null."""
        return [[type(item).__name__, _plain(_of(item, "state", dict)())] for item in self._all]

    def load_state(self, states: list[list[Any]], label: str) -> None:
        """Restore what `state` returned.

        Raises:
          CheckpointError: the run had other callbacks.
        """
        ran, here = [name for name, _ in states], [type(item).__name__ for item in self._all]
        if ran != here:
            raise CheckpointError(
                f"{label}: the run had the callbacks {', '.join(ran) or 'none'}, now "
                f"{', '.join(here) or 'none'}. Resume with the same."
            )
        for item, (name, state) in zip(self._all, states, strict=True):
            try:
                _of(item, "load_state", lambda state: None)(state)
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(
                    f"{label}: the state of callback {name} is not what it writes ({error!r}). "
                    "Remove the file, so that an older one is used."
                ) from error


def _of(item: Any, name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(item, name, usual)


def _plain(value: Any) -> Any:
    """The same in Python's own types; None for numbers that are not finite.

    Raises:
      UsageError: it is nothing that JSON holds.
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
        f"state of a callback: {repr(value)[:80]}: expected numbers, texts, lists and dicts."
    )
