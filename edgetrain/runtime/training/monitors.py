"""Callbacks that monitor a metric, to stop the run or to keep its best epoch."""

import math
from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from ...units import finite_number
from ...units.hints import did_you_mean
from ...units.options import typed
from ...units.public import public_api
from .callbacks import Callback, Running

_TESTED = "val_"  # prefix of evaluation metrics in Keras


@public_api
class Watch(Callback):
    """Monitors one value of each epoch.

    Args:
      monitor: "loss" (evaluation loss, or training loss without evaluation), "train_loss" or a
        metric; metrics of evaluations also by Keras's names, such as "val_loss".
      min_delta: smallest change that counts as an improvement.
      mode: "min" or "max"; None or "auto": depends on the metric.
    """

    def __init__(
        self, monitor: str = "loss", *, min_delta: float = 0.0, mode: str | None = None
    ) -> None:
        super().__init__()
        where = type(self).__name__
        self.monitor = typed(f"{where}: monitor", monitor, (str,))
        self.min_delta = finite_number(f"{where}: min_delta", min_delta, least=0)
        known = isinstance(mode, str) and mode in ("min", "max", "auto")
        if mode is not None and not known:
            raise UsageError(f"{where}: mode {mode!r}: expected 'min', 'max' or 'auto'.")
        rises = mode == "max" or (mode in (None, "auto") and _rises(self.monitor))
        self._sign = -1.0 if rises else 1.0
        self.best: float | None = None
        self.best_step = 0
        self._evaluated = False  # whether `best` is of an evaluated epoch

    def check_known(self, known: list[str], evaluates: bool) -> None:
        """Raise UsageError if an epoch will not have the monitored metric."""
        tested = [name for name in known if name != "train_loss"] if evaluates else []
        if self.monitor not in known and self.monitor not in map(_TESTED.__add__, tested):
            raise UsageError(
                f"monitor {self.monitor!r}: available are {', '.join(known)}. Choose one of these, "
                f"or evaluate with this metric.{did_you_mean(self.monitor, known)}"
            )

    def better(self, trainer: Running, event: Mapping[str, Any]) -> bool:
        """Whether the number is the best so far; remembers it if so."""
        value, evaluated = watched(event, self.monitor), bool(event.get("evaluation"))
        if not math.isfinite(value):
            return False
        if evaluated != self._evaluated:  # "loss" is another one
            self.best, self._evaluated = None, evaluated
        if self.best is not None and self._sign * (self.best - value) <= self.min_delta:
            return False
        self.best, self.best_step = value, trainer.steps
        return True

    @property
    def keeps(self) -> tuple[Any, ...] | None:
        """Which epoch's state it keeps, as equal values for the same; None if it keeps none."""
        return None

    def _watched(self) -> tuple[str, float, float]:
        return self.monitor, self._sign, self.min_delta

    def _restore_best(self, trainer: Running) -> None:
        if self.best is not None and self.best_step != trainer.steps:
            trainer.restore_best()

    def state(self) -> dict[str, Any]:
        return {
            "best": self.best, "best_step": self.best_step, "monitor": self.monitor,
            "rises": self._sign < 0, "evaluated": self._evaluated,
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        ran = state.get("monitor", self.monitor), state.get("rises", self._sign < 0)
        if ran != (self.monitor, self._sign < 0):
            mode = f", mode={'max' if ran[1] else 'min'!r}" if ran[0] == self.monitor else ""
            raise UsageError(
                f"{type(self).__name__}: the run monitored {ran[0]!r}{mode}; found "
                f"{self.monitor!r}. Resume with the same."
            )
        self.best, self.best_step = state["best"], int(state["best_step"])
        self._evaluated = bool(state.get("evaluated", self.best is not None))


@public_api
class EarlyStopping(Watch):
    """Stop the run after `patience` epochs in a row without improvement.

    Args:
      restore_best_weights: restore the weights of the best epoch at the end, as `KeepBest` does.
    """

    def __init__(
        self,
        monitor: str = "loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str | None = None,
        restore_best_weights: bool = False,
    ) -> None:
        super().__init__(monitor, min_delta=min_delta, mode=mode)
        where = "EarlyStopping: restore_best_weights"
        self.restore_best_weights = typed(where, restore_best_weights, (bool,))
        self.patience = typed("EarlyStopping: patience", patience, (int,))
        if self.patience < 1:
            raise UsageError(f"EarlyStopping: patience {patience}: expected at least 1.")
        self.waited, self._resumed = 0, False

    @property
    def keeps(self) -> tuple[Any, ...] | None:
        return self._watched() if self.restore_best_weights else None

    def on_fit_begin(self, trainer: Running) -> None:
        if self._resumed:  # the resumed run had already been stopped by this callback
            self._stop_if_due(trainer)
        elif self.waited >= self.patience:  # like Keras: patience restarts with another fit
            self.waited = 0
        self._resumed = False

    def on_epoch_end(self, trainer: Running, event: Mapping[str, Any]) -> None:
        better, self._resumed = self.better(trainer, event), False
        self.waited = 0 if better else self.waited + 1
        if better and self.restore_best_weights:
            trainer.keep_best()
        self._stop_if_due(trainer)

    def on_fit_end(self, trainer: Running) -> None:
        if self.restore_best_weights:
            self._restore_best(trainer)

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
class KeepBest(Watch):
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

    @property
    def keeps(self) -> tuple[Any, ...] | None:
        return self._watched()

    def on_epoch_end(self, trainer: Running, event: Mapping[str, Any]) -> None:
        if self.better(trainer, event):
            trainer.keep_best()

    def on_fit_end(self, trainer: Running) -> None:
        if self.restore:
            self._restore_best(trainer)


def _rises(monitor: str) -> bool:
    """Whether higher is better, for a metric, also after the name of an output (class_f1); False
    for other names."""
    from .metrics import rises

    words = monitor.removeprefix(_TESTED).split("_")
    ends = ["_".join(words[k:]) for k in range(len(words))]
    return any(map(rises, ends))


def watched(event: Mapping[str, Any], monitor: str) -> float:
    """The value of `monitor` in an epoch.

    Raises:
      UsageError: the epoch does not have it.
    """
    tested = event.get("evaluation", {})
    result = {"loss": event["loss"], **tested, "train_loss": event["loss"]}
    result |= {_TESTED + name: value for name, value in tested.items()}
    value = result.get(monitor)
    if not isinstance(value, int | float):
        numbers = [name for name, item in result.items() if isinstance(item, int | float)]
        raise UsageError(
            f"monitor {monitor!r}: available are {', '.join(numbers)}. Choose one of these, or "
            f"evaluate with this metric.{did_you_mean(monitor, numbers)}"
        )
    return float(value)
