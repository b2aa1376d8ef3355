"""From what was typed to what the compiler and the trainer take."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import UsageError
from ..optim import OPTIMIZERS, Schedule
from ..units.options import check_needs, flag
from .arguments import plan_options

OPTIMIZER_OPTIONS = {f.name for kind in OPTIMIZERS.values() for f in fields(kind)}


def compile_arguments(arguments: Namespace) -> dict[str, Any]:
    """Keyword arguments of `edgetrain.compile`, the budget among them.

    Raises:
      UsageError: an option that the chosen optimizer or loss does not have, or one that has no
        effect without another.
    """
    from ..ops.loss import Loss

    given = plan_options(arguments)
    overrides = _densities(given.pop("density_override", []))
    _check_optimizer(given)
    check_needs(given, given | {"density_overrides": overrides})
    if "lr" in arguments:
        given["lr"] = arguments.lr
    optimizer = {name: given.pop(name) for name in OPTIMIZER_OPTIONS & given.keys()}
    own = {f.name for f in fields(Loss)} - {"kind"}
    loss = {name: given.pop(name) for name in own & given.keys()}
    given["optimizer"] = OPTIMIZERS[given.pop("optimizer", "sgd")](**optimizer)
    given["loss"] = Loss(given.pop("loss", "cross_entropy"), **loss)
    given["dims"] = _dims(given.pop("dim", []))
    given["density_overrides"] = overrides
    return given


def _check_optimizer(given: Mapping[str, Any]) -> None:
    name = given.get("optimizer", "sgd")
    known = [f.name for f in fields(OPTIMIZERS[name])]
    for option in given:
        if option in OPTIMIZER_OPTIONS and option not in known:
            raise UsageError(
                f"{flag(option)}: optimizer {name} has no such option; it has "
                f"{', '.join(flag(n) for n in known)}."
            )


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
    check_needs(names.keys() & vars(arguments).keys(), vars(arguments))
    given = {to: getattr(arguments, name) for name, to in names.items() if name in arguments}
    return Schedule(**given) if given else None
