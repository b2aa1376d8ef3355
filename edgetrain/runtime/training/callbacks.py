"""Callbacks of a run, with edgetrain's hooks and those of Keras.

Their state is part of checkpoints, so a resumed run stops at the same step.
"""

import inspect  # already loaded by dataclasses
import math
from _thread import get_ident
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from ...errors import CheckpointError, UsageError
from ...units.options import is_list
from ...units.public import public_api
from ...units.wording import counted

HOOKS = ("on_fit_begin", "on_step", "on_epoch_end", "on_evaluate", "on_save", "on_fit_end")
# Keras's hooks and arguments; on_epoch_end's parameter names decide what it gets.
KERAS_HOOKS = (
    "on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end",
    "on_test_begin", "on_test_end", "on_train_end",
)  # fmt: skip
_ALL_HOOKS = HOOKS + KERAS_HOOKS


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

    Or as in Keras: on_train_begin(logs), on_train_end(logs), on_epoch_begin(epoch, logs),
    on_epoch_end(epoch, logs), on_train_batch_begin(batch, logs), on_train_batch_end(batch, logs),
    on_test_begin(logs), on_test_end(logs). An on_epoch_end gets these arguments if it names a
    parameter logs or epoch. Epochs count from 0 over the whole run; logs have "loss" and
    "learning_rate", at the end of an epoch also "val_loss", "val_accuracy", ... `self.model` is the
    Trainer; `self.model.stop_training = True` ends `fit`.

    Args:
      functions: by the names above.
    Attributes:
      model: the Trainer, during and after `fit`.
      params: "epochs" and "steps" of the call of `fit`, None if unknown.
    Raises:
      UsageError: an unknown name, or not a function.
    """

    model: Any = None
    params: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if name not in _ALL_HOOKS or not callable(function):
                names = ", ".join(_ALL_HOOKS)
                raise UsageError(f"callback {name}: expected functions named {names}.")
            setattr(self, name, function)

    def set_model(self, model: Any) -> None:
        """Called before the first step; `model` is the Trainer."""
        self.model = model

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Called before the first step; see `params`."""
        self.params = params

    def on_fit_begin(self, trainer: Any) -> None:
        """Called before the first step."""

    def on_step(self, trainer: Any, result: Any) -> None:
        """Called after each step."""

    def on_epoch_end(self, trainer: Any, event: Mapping[str, Any]) -> None:
        """Called after each epoch and its evaluation."""

    def on_evaluate(self, trainer: Any, metrics: Mapping[str, Any]) -> None:
        """Called after each evaluation during `fit`."""

    def on_save(self, trainer: Any, path: Any) -> None:
        """Called after each checkpoint."""

    def on_fit_end(self, trainer: Any) -> None:
        """Called after the last step."""

    def state(self) -> dict[str, Any]:
        """The callback's state as JSON values; saved in checkpoints."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""


_WATCHED = ("loss", "train_loss", "accuracy", "samples")  # metrics that need no request


class Callbacks:
    """The callbacks of a run, called in order.

    Args:
      given: objects with some of HOOKS and KERAS_HOOKS as methods.
    Raises:
      UsageError: an object has none of them.
    """

    def __init__(self, given: Any) -> None:
        if not is_list(given):
            given = [given]
        self._all = list(given)
        self.inside: list[tuple[int, str]] = []  # (thread, hook) of running calls
        for item in self._all:
            _of(item, "state", dict)
            has = any(callable(getattr(item, hook, None)) for hook in _ALL_HOOKS)
            if isinstance(item, type) or not has:
                raise UsageError(
                    f"callbacks: {repr(item)[:80]}: expected an object with some of the methods "
                    f"{', '.join(_ALL_HOOKS)}, such as et.Callback(on_step=FUNCTION)."
                )
        self._having = {  # used Keras hooks, often none
            hook: [value for value in self._all if callable(getattr(value, hook, None))]
            for hook in KERAS_HOOKS
        }
        self._batch = 0  # of the epoch
        self._rate: float | None = None  # of the last step
        self._logs: dict[str, Any] = {}  # of the last epoch

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
        self._check_known([*_WATCHED, *metrics], True)
        keepers = [item for item in self._all if getattr(item, "keeps", None) is not None]
        for item in keepers[1:]:
            if item.keeps != keepers[0].keeps:
                raise UsageError(
                    f"callbacks: {_keeper(keepers[0])} and {_keeper(item)} keep different best "
                    "epochs, but a run keeps one. Use the same monitor, mode and min_delta, or "
                    "only one of them."
                )

    def _check_known(self, known: list[str], evaluates: bool) -> None:
        if all(hasattr(item, "check_known") for item in self._all):
            for item in self._all:
                item.check_known(known, evaluates)

    def check_evaluated(self, evaluate: bool) -> None:
        """Check before training that monitored evaluations will take place.

        Raises:
          UsageError: a callback monitors an evaluation, but there will be none.
        """
        if not evaluate:
            self._check_known(["loss", "train_loss"], False)

    def begin_fit(self, trainer: Any, epochs: float | None, steps: int | None) -> None:
        """Called before the first step of a `fit` call."""
        rates = trainer.history.steps["lr"]
        if self._rate is None and rates:  # resumed
            self._rate = rates[-1]
        for item in self._all:
            _of(item, "set_params", lambda params: None)({"epochs": epochs, "steps": steps})
            _of(item, "set_model", lambda model: None)(trainer)
        self.call("on_fit_begin", trainer)
        self.call("on_train_begin", {})

    def begin_epoch(self, epoch: int, done: int) -> None:
        """Called before the first step of an epoch, or of its rest in a resumed run."""
        self._batch = done
        if not done:
            self.call("on_epoch_begin", epoch, {})

    @property
    def begin_steps(self) -> bool:
        """Whether a callback is called before each step."""
        return bool(self._having["on_train_batch_begin"])

    def begin_step(self) -> None:
        """Called before a step."""
        self.call("on_train_batch_begin", self._batch, {})

    def end_step(self, trainer: Any, result: Any) -> None:
        """Called after a step."""
        self.call("on_step", trainer, result)
        self._rate = result.lr
        logs = {"loss": result.loss, "learning_rate": result.lr}
        self.call("on_train_batch_end", self._batch, logs)
        self._batch += 1

    def end_evaluation(self, trainer: Any, metrics: Mapping[str, Any]) -> None:
        """Called after an evaluation during `fit`."""
        self.call("on_evaluate", trainer, metrics)
        self.call("on_test_end", _numbers(metrics))

    def end_epoch(self, trainer: Any, event: Mapping[str, Any]) -> None:
        """Called after an epoch and its evaluation; later callbacks see what earlier ones add."""
        added: dict[str, Any] = {}
        for item in self._all:
            function = getattr(item, "on_epoch_end", None)
            if function is None:
                continue
            if not _as_keras(function):
                self._call("on_epoch_end", function, trainer, event)
                continue
            logs = self._logs_of(event, trainer) | added
            known = {*logs}
            self._call("on_epoch_end", function, max(event["epoch"] - 1, 0), logs)
            added |= {name: value for name, value in logs.items() if name not in known}
        self._logs = self._logs_of(event, trainer) | added

    def _logs_of(self, event: Mapping[str, Any], trainer: Any) -> dict[str, Any]:
        """The logs of an epoch with Keras's names; metrics of evaluations are val_NAME."""
        tested = _numbers(event.get("evaluation") or {})
        logs = {"loss": event["loss"], **{f"val_{name}": value for name, value in tested.items()}}
        return logs | {"learning_rate": trainer.lr if self._rate is None else self._rate}

    def end_fit(self, trainer: Any) -> None:
        """Called after the last step of a `fit` call."""
        self.call("on_fit_end", trainer)
        self.call("on_train_end", dict(self._logs))

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of all callbacks that have it."""
        for item in self._having.get(hook, self._all):
            function = getattr(item, hook, None)
            if function is not None:
                self._call(hook, function, *arguments)

    def _call(self, hook: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a callback's hook, and record that it is running."""
        called = get_ident(), hook
        self.inside.append(called)
        try:
            function(*arguments)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None:  # the call itself
                raise UsageError(
                    f"callback {hook}: {error}; it gets {counted(len(arguments), 'argument')}: "
                    f"{', '.join(type(item).__name__ for item in arguments)}."
                ) from error
            raise
        finally:
            self.inside.remove(called)

    def within(self, *hooks: str) -> bool:
        """Whether one of these hooks is running in this thread."""
        return any(hook in hooks for thread, hook in self.inside if thread == get_ident())

    def check_outside(self, what: str, *hooks: str) -> None:
        """Refuse a call from within a callback.

        Args:
          hooks: hooks that must not make the call; none given: all hooks.
        Raises:
          UsageError: a callback made the call.
        """
        own = [hook for thread, hook in self.inside if thread == get_ident()]
        result = [hook for hook in own if not hooks or hook in hooks]
        if result:
            raise UsageError(
                f"{what}: called from a callback's {result[-1]}, which would call it again. Call "
                "it outside of callbacks."
            )

    def state(self, states: list[Any] | None = None) -> list[list[Any]]:
        """[class, state] of each callback, as JSON; non-finite numbers become null.

        Args:
          states: from `states`; default: the current ones.
        """
        given = self.states() if states is None else states
        return [
            [type(item).__name__, _plain(_of(item, "state", dict)()) if state is None else state]
            for item, state in zip(self._all, given, strict=True)
        ]

    def states(self) -> list[Any]:
        """The state of each callback, for `restore`; None if it can't be stored as JSON."""
        result = []
        for item in self._all:
            try:
                result.append(_plain(_of(item, "state", dict)()))
            except UsageError:
                result.append(None)
        return result

    def restore(self, states: list[Any]) -> None:
        """Restore what `states` returned."""
        for item, state in zip(self._all, states, strict=True):
            if state is not None:
                _of(item, "load_state", lambda state: None)(state)

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


def _keeper(item: Any) -> str:
    return f"{type(item).__name__}({item.monitor!r})"


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    known = {name: value for name, value in metrics.items() if name != "samples"}
    return {name: value for name, value in known.items() if isinstance(value, int | float)}


def _as_keras(on_epoch_end: Callable[..., Any]) -> bool:
    """Whether an on_epoch_end takes (epoch, logs), by its parameters' names."""
    try:
        names = [*inspect.signature(on_epoch_end).parameters]
    except (TypeError, ValueError):
        return False
    return "logs" in names or "epoch" in names[:1]


def _of(item: Any, name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a callback; `usual` if it has none."""
    method = getattr(item, name, None)
    if name == "state" and method is not None and not callable(method):
        raise UsageError(
            f"callback {type(item).__name__}: its attribute 'state' is a "
            f"{type(method).__name__}; expected a method that returns what checkpoints keep. "
            "Rename the attribute."
        )
    return usual if method is None else method


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
