"""The argparse parser: one-line errors, and all options of all plug-ins."""

import argparse
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from ... import __version__
from ...units.hints import did_you_mean
from .help import ALL, HelpAll, text, usage
from .lean import formatter

USAGE = 2


class Grouped(argparse.Action):
    """Stores a number, or adds a pattern with the number for its parameters to `groups`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if isinstance(values, tuple):
            namespace.groups = [*vars(namespace).get("groups", ()), (self.dest, *values)]
        else:
            setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """ArgumentParser with one-line errors."""

    lean = False
    known: Collection[str] = ()  # candidates to suggest for an unknown word
    takers: Callable[[str], Sequence[str]] | None = None  # names of commands that take an option
    command = ""  # "" for the root parser

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": formatter, **options})
        self.register("action", "boolean", argparse.BooleanOptionalAction)
        self.register("action", "grouped", Grouped)

    def format_help(self) -> str:
        return text(self, self.command) if self.command else super().format_help()

    def format_usage(self) -> str:
        return f"usage: {usage(self)}\n" if self.command else super().format_usage()

    def error(self, message: str) -> NoReturn:
        hint = "".join(self._hint(word, message) for word in _unknown(message)[:1])
        more = "--help-all" if self.command else "--help"
        self.exit(USAGE, f"{self.prog}: error: {message}.{hint} See '{self.prog} {more}'.\n")

    def _hint(self, word: str, message: str) -> str:
        word = word.partition("=")[0]
        others = self.takers(word) if self.takers and word.startswith("--") else ()
        if others:
            return f" Commands that take {word}: {', '.join(others)}."
        return did_you_mean(word, _choices(message) or self.known)


def _unknown(message: str) -> list[str]:
    """Unknown words, extracted from argparse's message."""
    _, _, options = message.partition("unrecognized arguments: ")
    words = [word for word in options.split() if word.startswith("-")]
    _, _, choice = message.partition("invalid choice: '")
    return words + ([choice.partition("'")[0]] if choice else [])


def _choices(message: str) -> list[str]:
    """The valid values of an option or command, extracted from argparse's message."""
    _, _, choices = message.partition("(choose from ")
    return [word.strip("'") for word in choices.rstrip(")").split(", ")] if choices else []


def root() -> tuple[Parser, "argparse._SubParsersAction[Parser]"]:
    """The parser without commands, and the object that commands are added to."""
    parser = Parser(
        prog="edgetrain",
        allow_abbrev=False,
        description="Train an ONNX model within a memory limit.",
        epilog="Exit status: 0 success; 1 run or comparison failed; 2 wrong usage; 3 does not fit "
        "the budget; 4 bad input file; 130 interrupted (129 hang-up, 143 terminated).",
    )
    parser.add_argument("--version", action="version", version=f"edgetrain {__version__}")
    return parser, parser.add_subparsers(
        prog="edgetrain", dest="command", required=True, metavar="COMMAND"
    )


def add_command(commands: "argparse._SubParsersAction[Parser]", name: str, about: str) -> Parser:
    """The parser of a command, without its options."""
    command = commands.add_parser(
        name,
        help=about,
        description=about,
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    command.command = name
    command.add_argument("-h", "--help", action="help", help="show the usual options")
    command.add_argument("--help-all", action=HelpAll, help=f"{ALL} options")
    return command
