"""edgetrain: trains an ONNX model within a memory limit.

import edgetrain as et
model = et.load_onnx("model.onnx")
program = et.compile(model, loss="cross_entropy", optimizer=et.SGD(lr=0.1, momentum=0.9),
                     minibatch=32, budget="256KiB")
trainer = et.Trainer(program, data="digits", out="runs/digits")
trainer.fit(epochs=10)
trainer.export_onnx("trained.onnx")
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module. Loaded on first use: a device that only runs Programs imports no onnx.
_PUBLIC = {
    "load_onnx": "importer",
    "bundle": "api",
    "compile": "api",
    "find_lr": "lr_finder",
    "forward": "api",
    "loss_and_gradients": "api",
    "migrate": "migration",
    "demo": "demo",
    "plan": "api",
    "Program": "program",
    "load_program": "runtime.loading.program",
    "Trainer": "runtime.training.trainer",
    "Callback": "runtime.training.callbacks",
    "callbacks": "",  # a module
    "EarlyStopping": "runtime.training.monitors",
    "KeepBest": "runtime.training.monitors",
    "StepResult": "runtime.session",
    "Session": "runtime.session",
    "open_data": "data.registry",
    "History": "history",
    "summary": "api",
    "Schedule": "optim",
    "Group": "optim.groups",
    "Loss": "losses",
    "EdgetrainError": "errors",
    "BudgetError": "errors",
    "ModelError": "errors",
    "UnsupportedOpError": "errors",
    "DataError": "errors",
    "ProgramError": "errors",
    "CheckpointError": "errors",
    "UsageError": "errors",
    "RunError": "errors",
    "ParityError": "errors",
}

if TYPE_CHECKING:
    from . import callbacks
    from .api import bundle, compile, forward, loss_and_gradients, plan, summary
    from .data.registry import open_data
    from .demo import demo
    from .errors import (
        BudgetError,
        CheckpointError,
        DataError,
        EdgetrainError,
        ModelError,
        ParityError,
        ProgramError,
        RunError,
        UnsupportedOpError,
        UsageError,
    )
    from .history import History
    from .importer import load_onnx
    from .losses import Loss
    from .lr_finder import find_lr
    from .migration import migrate
    from .optim import *  # noqa: F403 - its list is the one list of optimizers
    from .optim.groups import Group
    from .program import Program
    from .runtime.loading.program import load_program
    from .runtime.session import Session, StepResult
    from .runtime.training.callbacks import Callback
    from .runtime.training.monitors import EarlyStopping, KeepBest
    from .runtime.training.trainer import Trainer


def _optimizers() -> set[str]:
    """Names of the optimizer classes in optim/."""
    kinds = importlib.import_module(".optim", __name__).OPTIMIZERS
    return {kinds[name].__name__ for name in kinds}


def __dir__() -> list[str]:
    return sorted({*_PUBLIC, *_optimizers()})


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted({*_PUBLIC, *_optimizers()})
    if name not in _PUBLIC and not (name[0].isupper() and name in _optimizers()):
        text = f"module 'edgetrain' has no attribute {name!r}"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])
    try:
        home = _PUBLIC.get(name, "optim")
        module = importlib.import_module(f".{home or name}", __name__)
        value = getattr(module, name) if home else module
    except ModuleNotFoundError as error:
        from .units.packages import explained

        raise explained(error) from error
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Keeps public functions when a subpackage of the same name (`bundle`) is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
