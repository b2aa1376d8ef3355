"""The parser for a device's commands; host_commands.py, which a device lacks, has all commands."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...data.kinds import forms
from ...units.packages import INSTEAD
from .data_options import add_meaning, add_target_input
from .plan_options import add_plan_options
from .run_commands import Unasked, common, trained, training

if TYPE_CHECKING:
    from .full import Parser

# Commands that need the whole of edgetrain.
AT_HOME = (
    "plan", "advise", "compile", "demo", "migrate", "bundle", "serve", "find-lr", "parity",
    "inspect", "completion", "ops", "warm",
)  # fmt: skip
_MISSING = "not part of edgetrain-runtime"


def parser_for(asked: str) -> "tuple[Parser, Mapping[str, Parser]]":
    """The parser of a device, and its command parsers by name; only `asked` gets its options."""
    from .full import USAGE, add_command, root

    parser, commands = root()
    if asked in AT_HOME:
        parser.exit(USAGE, f"edgetrain {asked}: error: {_MISSING}. {INSTEAD}.\n")
    parser.epilog = f"{parser.epilog} Commands {_MISSING}: {', '.join(AT_HOME)}. {INSTEAD}."

    def command(name: str, module: str, text: str, *, json: bool = True) -> Any:
        sub = add_command(commands, name, text)
        return common(sub, name, module, json) if name == asked else Unasked()

    on_device(command)
    return parser, commands.choices


def on_device(command) -> None:
    """Add the commands that a device has."""
    training(command)
    trained(command)
    reading(command)
    checking(command)


def reading(command) -> None:
    """Add `data`."""
    data = command("data", "data", "Show what a dataset contains and what a model expects.")
    data.add_argument("spec", metavar="SPEC", help=forms())
    said = "model to compare the data with"
    data.add_argument("model", metavar="MODEL.onnx|model.edge", nargs="?", default=None, help=said)
    add_meaning(data)
    add_target_input(data, old_name=True)
    add_plan_options(data, leave_out=("budget", "target"))


def checking(command) -> None:
    """Add `doctor`."""
    command("doctor", "doctor", "Show what works on this machine.")


def modules() -> set[str]:
    """Modules in commands/ that implement a device's commands."""
    result: set[str] = set()

    def command(name: str, module: str, text: str, *, json: bool = True) -> Unasked:
        result.add(module)
        return Unasked()

    on_device(command)
    return result
