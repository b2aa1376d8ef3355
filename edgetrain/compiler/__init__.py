"""Compiles a model within a memory limit: pipeline.py lists the passes, plan/ finds plans.

Names load on first use: a device that only runs Programs imports program/ and no pass.
"""

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Options": "options",
    "Plan": "plan.frontier",
    "compile_model": "compile",
    "plan_model": "compile",
}

__all__ = ["Options", "Plan", "compile_model", "plan_model"]

if TYPE_CHECKING:
    from .compile import compile_model, plan_model
    from .options import Options
    from .plan.candidates import Plan


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
