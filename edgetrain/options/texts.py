"""Texts about options for help, docstrings and documentation."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from .option import Option


def help_of(option: Option) -> str:
    """Help on the command line: what it sets, its values, whether it repeats, its default."""
    text = option.text.format(option.cli) + _choices(option)
    repeats = "; repeatable" if option.several else ""
    return f"{text}{repeats}{_default(option)}".replace("%", "%%")


def about(option: Option) -> str:
    """The same text for Python, where option names have no dashes."""
    text = option.text.format(option.python or option.cli)
    return _plain(f"{text}{_choices(option)}{_default(option)}")


def attributes(options: Iterable[Option]) -> str:
    """The lines of a docstring's Attributes section."""
    lines = (f"{option.name}: {about(option)}" for option in options)
    return "\n".join(
        textwrap.fill(line, 100, initial_indent="  ", subsequent_indent="    ") for line in lines
    )


def table(options: Iterable[Option]) -> Iterator[str]:
    """Lines of a Markdown table: flag, keyword and what they set, grouped."""
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(option.group, []).append(option)
    yield "| flag | in Python | what it sets |"
    yield "|---|---|---|"
    for group, members in groups.items():
        yield f"| **{group}** | | |"
        for option in members:
            flag = f"`--{option.dest.replace('_', '-')} {option.metavar}".strip() + "`"
            text = about(option) if option.flag is None else help_of(option).replace("%%", "%")
            flag = "" if option.flag is None else f" {flag}"
            yield f"|{flag} | `{option.name}` | {text.replace('*', chr(92) + '*')} |"


def _choices(option: Option) -> str:
    """ ": a, b (its meaning)"; "" if any value is allowed."""
    means = option.choices if isinstance(option.choices, Mapping) else {}
    words = [f"{item} ({means[item]})" if means.get(item) else item for item in option.choices]
    return f": {', '.join(words)}" if words else ""


def _default(option: Option) -> str:
    """ " (default: 32)"; "" if there is none or the description makes it obvious."""
    usual = option.default
    if type(usual) in (int, float):
        words = [f"{usual:g}", *filter(None, [option.otherwise])]
    else:
        words = [option.otherwise or (usual if isinstance(usual, str) else "")]
    return f" (default: {', '.join(words)})" if any(words) else ""


def _plain(text: str) -> str:
    """Replace flags by keyword names in a text."""
    return re.sub(r"--([a-z][a-z0-9-]*)", lambda found: found[1].replace("-", "_"), text)
