"""Parses simple command lines without argparse and plug-in options.

These take a megabyte on a device. Anything not understood here is left to argparse (full.py), which
has the same rules and the error messages.
"""

from collections.abc import Callable, Sequence
from typing import Any

from .namespace import Plain

_FLAGS = {"store_true": True, "store_false": False}
_VALUES = ("store", "grouped", "append")


class _Unusual(Exception):
    """Raised for anything that argparse must handle."""


class Options:
    """Collects a command's options like an ArgumentParser; `read` parses with them.

    Attributes:
      lean: plug-in options and help texts are not needed.
    """

    lean = True

    def __init__(self, defaults: dict[str, Any]) -> None:
        self._defaults = defaults
        self._options: dict[str, tuple[str, dict[str, Any]]] = {}
        self._words: list[tuple[str, dict[str, Any]]] = []
        self._required: set[str] = set()
        self._groups: list[tuple[set[str], bool]] = []

    def set_defaults(self, **values: Any) -> None:
        """Like argparse's."""
        self._defaults |= values

    def add_mutually_exclusive_group(self, *, required: bool = False) -> "_Group":
        """Like argparse's."""
        self._groups.append((set(), required))
        return _Group(self, self._groups[-1][0])

    def add_argument(self, *names: str, **how: Any) -> str:
        """Like argparse's; returns the destination."""
        if not names[0].startswith("-"):
            self._words.append((names[0], how))
            if how.get("nargs") != "?":
                self._required.add(names[0])
            dest = names[0]
        else:
            dest = how.get("dest") or names[-1].lstrip("-").replace("-", "_")
            for name in names:
                self._options[name] = dest, how
            if how.get("required"):
                self._required.add(dest)
        if "default" in how:
            self._defaults[dest] = how["default"]
        return dest

    def read(self, argv: Sequence[str]) -> Plain | None:
        """Parse the command line; None if argparse must do it."""
        result = Plain()
        vars(result).update(self._defaults)
        try:
            given = self._given(argv, result)
        except _Unusual:
            return None
        alone = (
            len(given & members) in ((1,) if must else (0, 1)) for members, must in self._groups
        )
        return result if given >= self._required and all(alone) else None

    def _given(self, argv: Sequence[str], found: Plain) -> set[str]:
        """Store the given options in `found`; returns their names."""
        words, places, given = iter(argv), iter(self._words), set()
        for word in words:
            if word.startswith("-"):
                name, equals, value = word.partition("=")
                dest, how = self._options.get(name, ("", {}))
                action = how.get("action", "store")
                if action in _FLAGS and not equals:
                    vars(found)[dest] = _FLAGS[action]
                elif dest and action in _VALUES and "nargs" not in how:
                    value = value if equals else next(words, "-")
                    item = _value(value, how, bool(equals))
                    if isinstance(item, tuple):
                        raise _Unusual
                    before = vars(found).get(dest) or []
                    vars(found)[dest] = [*before, item] if action == "append" else item
                else:
                    raise _Unusual
            else:
                dest, how = next(places, ("", {}))
                if not dest:
                    raise _Unusual
                vars(found)[dest] = _value(word, how, False)
            given.add(dest)
        return given


class _Group:
    """Mutually exclusive options."""

    def __init__(self, options: Options, members: set[str]) -> None:
        self._options, self._members = options, members

    def add_argument(self, *names: str, **how: Any) -> None:
        self._members.add(self._options.add_argument(*names, **how))


def _value(text: str, how: dict[str, Any], joined: bool) -> Any:
    """Convert one argument."""
    if text.startswith("-") and not joined:
        raise _Unusual
    parse: Callable[[str], Any] = how.get("type", str)
    try:
        value = parse(text)
    except Exception as error:
        raise _Unusual from error
    if "choices" in how and value not in how["choices"]:
        raise _Unusual
    return value
