"""What an option is: its type, default, range, help, flag, and how a recipe stores it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

_BOUNDS = ("least", "most", "above", "below")


class Option(NamedTuple):
    """An option of the compiler.

    Attributes:
      default: its value if it is not given. What takes one of several objects, such as a loss, is
        given the name of one.
      text: what it sets, with the unit. It names other options as flags; {} stands for an example.
      metavar: its value on the command line; in brackets what may be left out.
      group: title in `--help-all`.
      usual: whether `-h` shows it.
      flag: on the command line, if not its name; None: it is for Python alone.
      choices: the values it may have, with their meanings if they are a mapping.
      bounds: of numbers, or of those in a mapping: least, most, above, below.
      otherwise: the default in words, or after a number what that means.
      cli, python: examples of a value.
      keyword: its type in Python, if not that of the field.
      parse: reads its value on the command line.
      new: whether a recipe leaves it out if it has the value of `absent`, as Programs did before
        there was this option.
      absent: what a recipe without it means; None: the default.
      name, type: of its field.
    """

    default: Any
    text: str
    metavar: str = ""
    group: str = ""
    usual: bool = False
    flag: str | None = ""
    choices: Collection[str] = ()
    bounds: Mapping[str, float] = {}
    otherwise: str = ""
    cli: str = ""
    python: str = ""
    keyword: str = ""
    parse: Callable[[str], Any] | None = None
    new: bool = False
    absent: Any = None
    name: str = ""
    type: str = ""

    @property
    def dest(self) -> str:
        """Its name on the command line, without dashes."""
        return self.flag or self.name

    @property
    def kinds(self) -> frozenset[str]:
        """Names of its types, such as int and None."""
        return frozenset(self.type.split(" | "))

    @property
    def item(self) -> str:
        """Of a mapping from names: the type of its values; "" of anything else."""
        start, _, rest = self.type.partition("Mapping[str, ")
        return "" if start else rest.partition("]")[0]

    @property
    def several(self) -> bool:
        """Whether it may be given several times on the command line."""
        return bool(self.item) or self.type.startswith("tuple[str")

    @property
    def old(self) -> bool:
        """Whether every recipe has it."""
        return not self.new and self.absent is None

    @property
    def unsaid(self) -> Any:
        """What a recipe without it means."""
        return self.default if self.absent is None else self.absent


def option(default: Any, text: str, metavar: str = "", **facts: Any) -> Any:
    """A field of a declaration: see `Option`, whose bounds are arguments of their own."""
    bounds = {name: facts.pop(name) for name in _BOUNDS if name in facts}
    return Option(default, text, metavar, bounds=bounds, **facts)


def declared(cls: type) -> dict[str, Option]:
    """The options that a class declares, by name."""
    return {
        name: vars(cls)[name]._replace(name=name, type=kind)
        for name, kind in cls.__annotations__.items()
    }
