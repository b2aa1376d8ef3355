"""Drops when the training loss stops falling, like torch's ReduceLROnPlateau on averaged losses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...ir import Call
from ...units.plugin import option
from .base import Schedule


@dataclass(frozen=True)
class Plateau(Schedule):
    """Multiply by `gamma` after more than `patience` consecutive windows whose mean loss is not
    `threshold` below the best.

    Attributes:
      skipped: also count finite losses of skipped steps, as earlier versions did.
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

    window: int = option(100, "steps averaged to judge progress", "N", least=1)
    patience: int = option(10, "windows without progress before lr drops", "N", least=0)
    gamma: float = option(0.1, "factor per drop", "G", least=0, most=1)
    threshold: float = option(1e-4, "smallest relative improvement", "T", least=0, most=1)
    cooldown: int = option(0, "windows ignored after a drop", "N", least=0)
    min_lr: float = option(0.0, "lowest learning rate", "R", flag="min_lr", least=0)
    skipped: bool = option(False, "count losses of skipped steps", flag=None)

    def calls(self) -> list[Call]:
        numbers = {"window": self.window, "patience": self.patience, "cooldown": self.cooldown}
        kernel = "rate_plateau_all" if self.skipped else "rate_plateau"
        return [Call(kernel, {"ctl": "ctl", **numbers})]

    def numbers(self) -> tuple[float, ...]:
        return self.gamma, self.threshold, self.min_lr
