"""Callbacks that watch a metric: the run stops, or its best epoch is kept."""

import math
from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from ...units import finite_number
from ...units.hints import did_you_mean
from ...units.options import typed
from ...units.public import public_api
from .callbacks import Callback, Running

# Of metrics with a word that begins so more is better; of everything else, and of losses, less.
_RISING = ("accuracy", "top", "f1", "precision", "recall", "miou", "auc")


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
        words = self.monitor.split("_")
        rises = words[-1] != "loss" and any(word.startswith(_RISING) for word in words)
        rises = rises if mode is None else mode == "max"
        self._sign = -1.0 if rises else 1.0
        self.best: float | None = None
        self.best_step = 0

    def check_known(self, known: list[str]) -> None:
        """Raise UsageError if an epoch will not have the monitored metric."""
        if self.monitor not in known:
            raise UsageError(
                f"monitor {self.monitor!r}: available are {', '.join(known)}. Choose one of these, "
                f"or evaluate with this metric.{did_you_mean(self.monitor, known)}"
            )

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
