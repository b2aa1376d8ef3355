"""The declaration of an option: type, default, range, help, flag, and how a recipe stores it."""

from collections.abc import Callable, Collection
from typing import Any

_FREE: dict[str, float] = {}  # bounds of most options


class Option:
    """An option of the compiler.

    Attributes:
      default: its default; for an option that takes objects, such as losses, the name of one.
      text: what it sets, with the unit. It names other options as flags; {} is replaced by an
        example.
      metavar: its value on the command line, optional parts in brackets.
      group: title in `--help-all`.
      usual: whether `-h` shows it.
      flag: on the command line, if not its name; None: only available in Python.
      choices: allowed values; a mapping adds their meanings.
      bounds: of numbers, or of the numbers in a mapping: least, most, above, below.
      otherwise: the default as text; for a numeric default, its meaning.
      cli, python: examples of a value.
      keyword: its type in Python, if not that of the field.
      parse: reads its value on the command line.
      new: whether recipes leave it out if its value is that of `absent`, like Programs from before
        this option.
      absent: its value if a recipe leaves it out; None: the default.
      name, type: of its field.
    """

    __slots__ = (
        "default", "text", "metavar", "group", "usual", "flag", "choices", "bounds", "otherwise",
        "cli", "python", "keyword", "parse", "new", "absent", "name", "type",
    )  # fmt: skip

    def __init__(
        self,
        default: Any,
        text: str,
        metavar: str = "",
        *,
        group: str = "",
        usual: bool = False,
        flag: str | None = "",
        choices: Collection[str] = (),
        otherwise: str = "",
        cli: str = "",
        python: str = "",
        keyword: str = "",
        parse: Callable[[str], Any] | None = None,
        new: bool = False,
        absent: Any = None,
        name: str = "",
        type: str = "",
        **bounds: float,
    ) -> None:
        self.default, self.text, self.metavar, self.group = default, text, metavar, group
        self.usual, self.flag, self.choices, self.bounds = usual, flag, choices, bounds or _FREE
        self.otherwise, self.cli, self.python, self.keyword = otherwise, cli, python, keyword
        self.parse, self.new, self.absent, self.name, self.type = parse, new, absent, name, type

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
        """For a mapping from names, the type of its values; otherwise ""."""
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
        """The value that a recipe without this option means."""
        return self.default if self.absent is None else self.absent


def option(default: Any, text: str, metavar: str = "", **facts: Any) -> Any:
    """Declare a field: an `Option`."""
    return Option(default, text, metavar, **facts)


def declared(cls: type) -> dict[str, Option]:
    """The options that a class declares, by name; their names and types are set."""
    for name, kind in cls.__annotations__.items():
        vars(cls)[name].name, vars(cls)[name].type = name, kind
    return {name: vars(cls)[name] for name in cls.__annotations__}
