"""Callbacks of a run.

Their state is part of checkpoints, so a resumed run stops at the same step.
"""

import math
from _thread import get_ident
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from ...errors import CheckpointError, UsageError
from ...units.public import public_api

HOOKS = ("on_fit_begin", "on_step", "on_epoch_end", "on_evaluate", "on_save", "on_fit_end")


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
        if all(hasattr(item, "check_known") for item in self._all):
            for item in self._all:
                item.check_known([*_WATCHED, *metrics])

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
