"""Drops where the training loss no longer falls, as torch's ReduceLROnPlateau on its means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...ir import Call
from ...units.plugin import option
from .base import Schedule


@dataclass(frozen=True)
class Plateau(Schedule):
    """Times `gamma` where the mean loss of a window of steps was not `threshold` below the best,
    in more than `patience` windows one after the other.

    Attributes:
      skipped: finite losses of skipped steps count too, as in runs of earlier versions.
    """

    name: ClassVar[str] = "plateau"
    seen: ClassVar[tuple[str, ...]] = (
        "looked",
        "sum",
        "count",
        "windows",
        "best",
        "bad",
        "wait",
        "drops",
    )
    absent: ClassVar[Mapping[str, Any]] = {"skipped": True}

    window: int = option(100, "steps whose mean loss is looked at", "N", least=1)
    patience: int = option(10, "windows without progress before a drop", "N", least=0)
    gamma: float = option(0.1, "factor of a drop", "G", least=0, most=1)
    threshold: float = option(1e-4, "share of the best loss that is progress", "T", least=0, most=1)
    cooldown: int = option(0, "windows after a drop that do not count", "N", least=0)
    min_lr: float = option(0.0, "least learning rate", "R", flag="min_lr", least=0)
    skipped: bool = option(False, "losses of skipped steps count", flag=None)

    def calls(self) -> list[Call]:
        numbers = {"window": self.window, "patience": self.patience, "cooldown": self.cooldown}
        kernel = "rate_plateau_all" if self.skipped else "rate_plateau"
        return [Call(kernel, {"ctl": "ctl", **numbers})]

    def numbers(self) -> tuple[float, ...]:
        return self.gamma, self.threshold, self.min_lr
