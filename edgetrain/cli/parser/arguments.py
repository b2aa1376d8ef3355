"""The parser. Options not given are missing from the namespace, unless they have a default."""

import os
from collections.abc import Sequence
from typing import Any

from ...optim import Schedule
from .data_options import (
    settle_target,
)
from .namespace import Namespace, Plain
from .plain import Options
from .plan_options import plan_table
from .run_commands import Unasked, common, trained, training

PLAIN = ("train", "eval", "export")  # a device's commands
# Options of `train` that the run directory stores, or that don't concern the run.
_KEPT_BY_A_RUN = (
    "model", "out", "resume", "lr", "groups", "command", "module", "function", "debug",
    "json", "balance_classes", "argv",
)  # fmt: skip


def parse(argv: Sequence[str]) -> Namespace | int:
    """The namespace of a command; an exit status if there is nothing to run."""
    result = _plainly(argv)
    if result is not None:
        return _completed(result, argv)
    from .full import USAGE
    from .lean import plain_words

    try:
        asked = next((word for word in argv if not word.startswith("-")), "")
        with plain_words():
            parser, commands = _parser_for(asked)
            parser.known, owner = [*commands], parser
            if asked in commands:
                owner = commands[asked]
                owner.known, owner.takers = _flags(owner), _takers
            result, unknown = parser.parse_known_args(argv, Namespace())
            if unknown:
                owner.error(f"unrecognized arguments: {' '.join(unknown)}")
            return _completed(result, argv)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE


def _parser_for(asked: str) -> Any:
    """The parser of this installation and its command parsers by name."""
    from ...units.packages import is_whole

    if is_whole():
        from .host_commands import parser_for
    else:
        from .device_commands import parser_for
    return parser_for(asked)


def _flags(command: Any) -> list[str]:
    """The options of a command's parser."""
    return [flag for action in command._actions for flag in action.option_strings]


def _takers(flag: str) -> list[str]:
    """The commands that take an option."""
    return [name for name in _parser_for("")[1] if flag in _flags(_parser_for(name)[1][name])]


def _completed(arguments: Namespace, argv: Sequence[str]) -> Namespace:
    """The namespace, with the command line it came from."""
    arguments.argv = tuple(argv)
    return settle_target(arguments)


def _plainly(argv: Sequence[str]) -> Plain | None:
    """Parse the usual command lines of a device without importing argparse."""
    if not argv or argv[0] not in PLAIN:
        return None
    asked = Options({"command": argv[0]})

    def command(name: str, module: str, text: str, *, json: bool = True) -> "Options | Unasked":
        return common(asked, name, module, json) if name == argv[0] else Unasked()

    training(command)
    trained(command)
    return asked.read(argv[1:])


def resume_line(arguments: Namespace, out: str | os.PathLike[str]) -> str:
    """The command that continues a run, without options stored in the run."""
    from ...units.wording import quoted

    train = _parser_for("train")[1]["train"]
    from .plugins import options_of

    own = {*_KEPT_BY_A_RUN, *options_of(Schedule), *plan_table()} - {"threads"}
    words = ["edgetrain", "train", "--resume", os.fspath(out)]
    given = vars(arguments)
    for name in sorted(given, key=("data", "epochs", "steps", *given).index):
        value = given[name]
        if name in own or value == train.get_default(name):
            continue
        flag = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        for item in values:
            whole = isinstance(item, float) and item.is_integer()
            words += [flag] if item is True else [flag, str(int(item)) if whole else item]
    return " ".join(quoted(str(word)) for word in words)
