"""Turns command-line options into arguments for the compiler and the trainer."""

from typing import Any

from ...errors import UsageError
from ...losses import Loss
from ...optim import Optimizer, Schedule
from ...units.options import check_needs
from .namespace import Namespace
from .plan_options import plan_options
from .plugins import check_owned, chosen, options_of


def compile_arguments(arguments: Namespace) -> dict[str, Any]:
    """Keyword arguments for `edgetrain.compile`, including the budget.

    Raises:
      UsageError: the chosen optimizer or loss does not have an option, or the option has no
        effect without another.
    """
    given = plan_options(arguments)
    overrides = _densities(given.pop("density_override", []))
    if "lr" in arguments:
        given["lr"] = arguments.lr
    check_owned(Optimizer, given)
    check_owned(Loss, given)
    check_needs(given, given | {"density_overrides": overrides})
    given["optimizer"] = chosen(Optimizer, given)
    given["loss"] = chosen(Loss, given)
    given["dims"] = _dims(given.pop("dim", []))
    given["batch_axis"] = _axes(given.pop("batch_axis", []))
    if "input" in given:
        given["inputs"] = _values(given.pop("input"))
    if "new_head" in given:
        given["new_head"] = _heads(given["new_head"])
    given["density_overrides"] = overrides
    if "groups" in arguments:
        from ...optim.groups import Group

        given["groups"] = [
            Group(pattern, **{name: number}) for name, pattern, number in arguments.groups
        ]
    return given


def _dims(texts: list[str]) -> dict[str, int]:
    dims = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdecimal() or int(size) < 1:
            raise UsageError(f"--dim {text!r}: expected NAME=SIZE, such as T=64.")
        dims[name] = int(size)
    return dims


def _axes(texts: list[str]) -> dict[str, int]:
    axes = {}
    for text in texts:
        name, _, axis = text.rpartition("=")
        if not name or not axis.isdecimal():
            raise UsageError(f"--batch-axis {text!r}: expected INPUT=AXIS, such as h=1.")
        axes[name] = int(axis)
    return axes


def _heads(texts: list[str]) -> dict[str, int]:
    heads = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        if (equals and not name) or not size.isdecimal() or name in heads:
            raise UsageError(
                f"--new-head {text!r}: expected LAYER=N or N, once for each layer, such as fc=4."
            )
        heads[name] = int(size)
    return heads


def _values(texts: list[str]) -> dict[str, float]:
    values = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        words = {"true": 1.0, "false": 0.0}
        try:
            values[name] = words[number.lower()] if number.lower() in words else float(number)
        except ValueError:
            name = ""
        if not name:
            raise UsageError(f"--input {text!r}: expected NAME=VALUE, such as sr=16000.")
    return values


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
    """The requested learning-rate schedule, or None.

    Raises:
      UsageError: options contradict each other.
    """
    if not arguments.has_plugins:
        return None
    known = vars(arguments)
    given = {name: known[name] for name in options_of(Schedule) if name in known}
    check_owned(Schedule, given)
    return chosen(Schedule, given) if given else None
