"""Flags of the compiler's options, the same for plan, compile and train."""

from collections.abc import Collection, Sequence
from functools import cache, partial
from os import PathLike
from typing import Any

from ...errors import UsageError
from ...losses import Loss
from ...optim import Optimizer
from ...options.declared import BUDGET, OPTIONS
from ...options.option import Option
from ...units.options import flag
from .data_options import processor_or_input
from .namespace import Namespace
from .numeric import number_within, refused, whole_from

PASS_MODEL = "Pass the ONNX model, or leave the option out."
_FAMILIES: dict[str, Any] = {Loss.choice: Loss, Optimizer.choice: Optimizer}


def _flags() -> list[Option]:
    """Options with a flag of their own; plug-ins have several."""
    declared = [BUDGET, *OPTIONS.values()]
    return [
        option for option in declared if option.flag is not None and option.dest not in _FAMILIES
    ]


def arguments_of(option: Option, *, lean: bool) -> dict[str, Any]:
    """Arguments of `add_argument`; lean: without help."""
    how: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {}
    if option.choices:
        how["choices"] = [*option.choices]
    if option.parse:
        how["type"] = partial(refused, option.parse)
    elif option.several:
        how["action"] = "append"
    elif "bool" in option.kinds:
        how["action"] = "boolean" if "None" in option.kinds else "store_true"
    elif "int" in option.kinds and "str" not in option.kinds:
        how["type"] = whole_from(**option.bounds)  # type: ignore[arg-type]
    elif "float" in option.kinds:
        how["type"] = number_within(**option.bounds)
    if not lean:
        from ...options.texts import help_of

        how["help"] = help_of(option)
    return how


@cache
def plan_table() -> dict[str, dict[str, Any]]:
    """Compiler options by dest, plug-in options included."""
    from .plugins import options_of

    table = options_of(Optimizer) | options_of(Loss)
    said = f"{table[Loss.choice]['help']}; or for each output, box=huber*0.5"
    table[Loss.choice] = {"action": "append", "metavar": "NAME", "help": said}
    return table | {option.dest: arguments_of(option, lean=False) for option in _flags()}


def check_compiled(
    arguments: Namespace, path: str | PathLike[str], advice: str, kept: Collection[str] = ()
) -> None:
    """Refuse compiler options for a Program, which ignores them.

    Args:
      path: the Program's.
      advice: what to do instead.
      kept: options that have an effect.
    Raises:
      UsageError: names the first such option.
    """
    given = sorted(set(plan_options(arguments)) - {"threads", *kept})
    given += [name for name, *_ in vars(arguments).get("groups", ())]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')}: {path} is already compiled. {advice}")


def plan_options(arguments: Namespace) -> dict[str, Any]:
    """The given compiler options."""
    plugins = plan_table() if arguments.has_plugins else {}
    known = {*plugins, *(option.dest for option in _flags())}
    return {name: value for name, value in vars(arguments).items() if name in known}


def add_plan_options(parser: Any, leave_out: Sequence[str] = (), inputs: bool = False) -> None:
    """Add the compiler options; inputs: `--target` also accepts an input (`settle_target`)."""
    table = {} if parser.lean else plan_table()
    table = table or {option.dest: arguments_of(option, lean=True) for option in _flags()}
    for name, how in table.items():
        if name == "target" and inputs:
            how = {n: v for n, v in how.items() if n != "choices"} | {"type": processor_or_input}
        if name not in leave_out:
            parser.add_argument(flag(name), **how)
