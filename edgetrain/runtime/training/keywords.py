"""The keywords of Trainer; python -m tools.keywords writes them."""

from collections.abc import Callable
from typing import Any, TypedDict

from ...optim import Schedule


class Keywords(TypedDict, total=False):
    """The fields of `Settings`, as passed to `Trainer`."""

    lr: float | None
    max_grad_norm: float | None
    loss_scale: float | None
    schedule: Schedule | None
    total_steps: int | None
    save_steps: int
    save_seconds: float | None
    save_total_limit: int | None
    verify_saves: bool
    threads: int | None
    validation: Any
    keep_last: bool
    callbacks: Any
    metrics: Any
    on_event: Callable[[dict[str, Any]], None] | None
    resume: bool
    verbose: bool | None
