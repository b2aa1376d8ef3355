"""From what was typed to what the compiler and the trainer take."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import UsageError
from ..ops.loss import Loss
from ..optim import OPTIMIZERS, Optimizer, Schedule
from .arguments import plan_options

_LOSS = {f.name for f in fields(Loss)} - {"kind"}
OPTIMIZER_OPTIONS = {f.name for kind in OPTIMIZERS.values() for f in fields(kind)}


def compile_arguments(arguments: Namespace) -> dict[str, Any]:
    """Keyword arguments of `edgetrain.compile`, the budget among them.

    Raises:
      UsageError: an option that the chosen optimizer or loss does not have.
    """
    given = plan_options(arguments)
    if "lr" in arguments:
        given["lr"] = arguments.lr
    optimizer = {name: given.pop(name) for name in OPTIMIZER_OPTIONS & given.keys()}
    loss = {name: given.pop(name) for name in _LOSS & given.keys()}
    given["optimizer"] = _optimizer(given.pop("optimizer", "sgd"), optimizer)
    given["loss"] = _loss(given.pop("loss", "cross_entropy"), loss)
    given["dims"] = _dims(given.pop("dim", []))
    given["density_overrides"] = _densities(given.pop("density_override", []))
    return given


def _optimizer(name: str, options: Mapping[str, Any]) -> Optimizer:
    kind = OPTIMIZERS[name]
    known = [f.name for f in fields(kind)]
    for option in options:
        if option not in known:
            raise UsageError(
                f"{_flag(option)}: optimizer {name} has no such option; it has "
                f"{', '.join(_flag(n) for n in known)}."
            )
    return kind(**options)


def _loss(kind: str, options: Mapping[str, Any]) -> Loss:
    if options and kind != "cross_entropy":
        raise UsageError(
            f"{_flag(next(iter(options)))}: only loss cross_entropy has it, not {kind}."
        )
    return Loss(kind, **options)


def _dims(texts: list[str]) -> dict[str, int]:
    dims = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdecimal() or int(size) < 1:
            raise UsageError(f"--dim {text!r}: expected NAME=SIZE, such as T=64.")
        dims[name] = int(size)
    return dims


def _densities(texts: list[str]) -> dict[str, float]:
    densities = {}
    for text in texts:
        pattern, _, number = text.rpartition("=")
        try:
            densities[pattern] = float(number)
        except ValueError:
            pattern = ""
        if not pattern:
            raise UsageError(
                f"--density-override {text!r}: expected PATTERN=DENSITY, such as 'conv1.*=0.5'."
            )
    return densities


def schedule(arguments: Namespace) -> Schedule | None:
    """The learning-rate schedule that was asked for; None where nothing was.

    Raises:
      UsageError: options that do not go together.
    """
    names = {
        "lr_schedule": "kind", "warmup_steps": "warmup_steps", "lr_step_size": "step_size",
        "lr_gamma": "gamma",
    }  # fmt: skip
    given = {to: getattr(arguments, name) for name, to in names.items() if name in arguments}
    return Schedule(**given) if given else None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
