"""Turns command-line options into arguments for the compiler and the trainer."""

import dataclasses
from typing import Any

from ...errors import UsageError
from ...losses import Loss
from ...optim import Optimizer
from ...units.options import check_needs
from ...units.plugin import member
from .namespace import Namespace
from .plan_options import plan_options
from .plugins import check_owned, chosen, owners


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
    losses = _losses(given)
    check_needs(given, given | {"density_overrides": overrides})
    given["optimizer"] = chosen(Optimizer, given)
    given |= losses
    given["dims"] = _dims(given.pop("dim", []))
    if "lengths" in given:
        given["lengths"] = _lengths(given["lengths"])
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


def _losses(given: dict[str, Any]) -> dict[str, Any]:
    """`loss`, or `losses` by output; what says how they are computed is taken out of `given`.

    Raises:
      UsageError: no such loss, an option that none of them has, or outputs for some of them alone.
    """
    texts = given.pop(Loss.choice, [Loss.default])
    named = [text for text in texts if "=" in text]
    if not named and "*" not in texts[-1]:
        given[Loss.choice] = texts[-1]
        check_owned(Loss, given)
        return {"loss": chosen(Loss, given)}
    if len(named) != len(texts) and len(texts) > 1:
        other = next(text for text in texts if text not in named)
        raise UsageError(
            f"--loss {other!r} beside {named[0] if named else texts[-1]!r}: expected an output for "
            "each, such as --loss class=cross_entropy --loss box=huber*0.5."
        )
    pairs = [_loss(text) for text in texts]
    owned = owners(Loss)
    for option in [name for name in owned if name in given]:
        if not any(name in owned[option] for _, name, _ in pairs):
            check_owned(Loss, {Loss.choice: pairs[0][1], option: given[option]})
    made: dict[str, list[Loss]] = {}
    for output, name, weight in pairs:
        own = {
            option: given[option] for option in owned if option in given and name in owned[option]
        }
        loss = chosen(Loss, {Loss.choice: name, **own})
        made.setdefault(output, []).append(dataclasses.replace(loss, weight=weight))
    for option in owned:
        given.pop(option, None)
    return {"losses": made} if named else {"loss": made[""][0]}


def _loss(text: str) -> tuple[str, str, float]:
    """(output, name, weight) of OUTPUT=NAME*WEIGHT, of which the name alone must be there."""
    output, _, rest = text.rpartition("=")
    name, times, number = rest.partition("*")
    try:
        weight = float(number) if times else 1.0
    except ValueError:
        raise UsageError(
            f"--loss {text!r}: expected OUTPUT=NAME*WEIGHT, such as box=huber*0.5."
        ) from None
    member(Loss, name)
    return output, name, weight


def _dims(texts: list[str]) -> dict[str, int]:
    dims = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdecimal() or int(size) < 1:
            raise UsageError(f"--dim {text!r}: expected NAME=SIZE, such as T=64.")
        dims[name] = int(size)
    return dims


def _lengths(text: str) -> list[int] | dict[str, list[int]]:
    """The sizes of [NAME=]SIZE,SIZE,.., by the name if there is one."""
    name, equals, rest = text.rpartition("=")
    sizes = rest.split(",")
    if (equals and not name) or not all(size.isdecimal() for size in sizes):
        raise UsageError(
            f"--lengths {text!r}: expected sizes, such as 32,64,128, or NAME=32,64,128."
        )
    found = [int(size) for size in sizes]
    return {name: found} if name else found


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
