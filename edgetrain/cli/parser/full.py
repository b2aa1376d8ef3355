"""argparse as the command line uses it: one-line errors, and every option of every plug-in."""

import argparse
from collections.abc import Collection
from typing import Any, NoReturn

from ... import __version__
from ...units.hints import did_you_mean
from .examples import epilog
from .lean import formatter, raw_formatter

USAGE = 2


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    lean = False
    known: Collection[str] = ()  # what a word that is not known may have been meant for

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": formatter, **options})
        self.register("action", "boolean", argparse.BooleanOptionalAction)

    def error(self, message: str) -> NoReturn:
        hint = "".join(did_you_mean(word, self.known) for word in _unknown(message)[:1])
        self.exit(USAGE, f"{self.prog}: error: {message}.{hint} See '{self.prog} --help'.\n")


def _unknown(message: str) -> list[str]:
    """Words that argparse did not know, out of what it says."""
    _, _, options = message.partition("unrecognized arguments: ")
    words = [word for word in options.split() if word.startswith("-")]
    _, _, choice = message.partition("invalid choice: '")
    return words + ([choice.partition("'")[0]] if choice else [])


def root() -> tuple[Parser, "argparse._SubParsersAction[Parser]"]:
    """The parser without commands, and what they are added to."""
    parser = Parser(
        prog="edgetrain", allow_abbrev=False, description="Train an ONNX model inside a given "
        "number of bytes, every byte counted.",
        epilog="Exit status: 0 done; 1 the comparison or run failed; 2 usage; 3 does not fit the "
        "budget; 4 bad input file; 130 interrupted (129 hung up, 143 terminated).",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"edgetrain {__version__}")
    return parser, parser.add_subparsers(
        prog="edgetrain", dest="command", required=True, metavar="COMMAND"
    )


def add_command(commands: "argparse._SubParsersAction[Parser]", name: str, text: str) -> Parser:
    """The parser of a command, without its options."""
    return commands.add_parser(
        name, help=text, description=text, allow_abbrev=False,
        argument_default=argparse.SUPPRESS, epilog=epilog(name), formatter_class=raw_formatter,
    )  # fmt: skip
