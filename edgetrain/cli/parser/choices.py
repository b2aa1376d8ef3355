"""Turns command-line options into arguments for the compiler and the trainer."""

import dataclasses
from typing import Any

from ...errors import UsageError
from ...losses import Loss
from ...optim import Optimizer
from ...options.declared import OPTIONS
from ...options.option import Option
from ...units.options import check_needs, flag
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
    for option in OPTIONS.values():
        if option.item and option.dest in given:
            given[option.name] = _pairs(option, given.pop(option.dest))
    if "lr" in arguments:
        given["lr"] = arguments.lr
    check_owned(Optimizer, given)
    losses = _losses(given)
    check_needs(given, given)
    given["optimizer"] = chosen(Optimizer, given)
    given |= losses
    if "groups" in arguments:
        from ...optim.groups import Group

        given["groups"] = [
            Group(pattern, **{name: number}) for name, pattern, number in arguments.groups
        ]
    return given


def _losses(given: dict[str, Any]) -> dict[str, Any]:
    """`loss`, or `losses` by output; removes options of losses from `given`.

    Raises:
      UsageError: no such loss, an option that none of them has, or outputs for only some of them.
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
    """(output, name, weight) of OUTPUT=NAME*WEIGHT; only the name is required."""
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


def _pairs(option: Option, texts: list[str]) -> dict[str, Any]:
    """Parse NAME=NUMBER texts to numbers by name.

    Raises:
      UsageError: a required name is missing, or a number is missing or out of bounds.
    """
    result: dict[str, Any] = {}
    alone = option.metavar.startswith("[")  # the name is optional
    for text in texts:
        name, equals, number = text.rpartition("=")
        value = _number(option, number)
        if value is None or not (name or (alone and not equals)) or (alone and name in result):
            raise UsageError(
                f"{flag(option.dest)} {text!r}: expected {option.metavar}, such as {option.cli}."
            )
        result[name] = value
    return result


def _number(option: Option, text: str) -> float | None:
    """Parse a number of the option's type; None if it is not a number, or an integer below its
    bound."""
    if option.item == "int":
        whole = int(text) if text.isdecimal() else -1
        return whole if whole >= option.bounds["least"] else None
    try:
        return float({"true": "1", "false": "0"}.get(text.lower(), text))
    except ValueError:
        return None
