"""Plug-ins: a family (losses, optimizers, schedules) is a class, its members frozen dataclasses.

    @dataclass(frozen=True)
    class SGD(Optimizer):
        name: ClassVar[str] = "sgd"
        momentum: float = option(0.0, "of the velocity", "M", least=0, below=1)

A member's fields are its options. `option` describes each of them completely: bounds, help, flags
and file entries follow from it.
"""

import dataclasses
import importlib
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from ..errors import UsageError
from . import LARGEST, finite_number, whole_number
from .hints import did_you_mean
from .options import check_options, typed

T = TypeVar("T")


class About(NamedTuple):
    """Description of an option, without its type and default.

    Attributes:
      help: help text on the command line.
      metavar: one letter or word; "" for a flag without a value.
      flag: its command-line name, if it differs from the family's prefix plus the field's name;
        None: it is not on the command line.
      bounds: least, most, above, below.
    """

    help: str
    metavar: str
    flag: str | None
    bounds: Mapping[str, float]


def option(
    default: Any, text: str, metavar: str = "", *, flag: str | None = "", **bounds: float
) -> Any:
    """A field of a plug-in; see `About`."""
    about = About(text, metavar, flag, bounds)
    return dataclasses.field(default=default, metadata={"about": about})


def about(field: dataclasses.Field) -> About:
    """The description given to `option`."""
    return field.metadata["about"]


def path_of(kind: type) -> str:
    """Module and name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


class Members(MutableMapping[str, Any]):
    """Classes of a family by name, imported on first use: on a device each takes about twenty
    kilobytes."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._loaded: dict[str, Any] = {}

    def listed(
        self, package: str, files: Mapping[str, str], others: Mapping[str, str] | None = None
    ) -> Callable[[str], Any]:
        """Declare members of a package that are imported later.

        Args:
          files: member name -> file and class, such as `"sgd": "sgd.SGD"`.
          others: other names of the package -> file.
        Returns:
          The package's `__getattr__`, which imports the classes by name.
        """
        self._files = {name: f"{package}.{file}" for name, file in files.items()}
        classes = {path.rpartition(".")[2]: path for path in self._files.values()}
        classes |= {name: f"{package}.{file}.{name}" for name, file in (others or {}).items()}

        def found(name: str) -> Any:
            if name not in classes:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            module = importlib.import_module(classes[name].rpartition(".")[0])
            return getattr(module, name)

        return found

    def path(self, name: str) -> str:
        """Module and class of a member; "" if there is none."""
        kind = self._loaded.get(name)
        return self._files.get(name, "") if kind is None else path_of(kind)

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded and name in self._files:
            file, _, own = self._files[name].rpartition(".")
            self._loaded[name] = getattr(importlib.import_module(file), own)
        return self._loaded[name]

    def __setitem__(self, name: str, kind: Any) -> None:
        self._loaded[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._files or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._files, *self._loaded]))

    def __len__(self) -> int:
        return len(self._files.keys() | self._loaded.keys())


class Family(type):
    """`Loss("mse", **options)` makes the member "mse", like calling its own class."""

    def __call__(cls: type[T], *args: Any, **options: Any) -> T:
        if cls.name or "choice" not in vars(cls):  # type: ignore[attr-defined]
            return _made(cls, args, options)
        name = args[0] if args else options.pop("kind", cls.default)  # type: ignore[attr-defined]
        chosen = member(cls, name)
        return _made(chosen, args[1:], _meant(cls, chosen, options))

    @property
    def __signature__(cls) -> Any:
        """Arguments of a call: options of a member, or of all members of a family."""
        import inspect  # only on demand

        kind = inspect.Parameter
        family: Any = cls
        if cls.__is_member():
            return inspect.Signature(
                [
                    kind(f.name, kind.POSITIONAL_OR_KEYWORD, default=f.default, annotation=f.type)
                    for f in dataclasses.fields(family)
                ]
            )
        options = {f.name: f for item in family.kinds.values() for f in dataclasses.fields(item)}
        own = [
            kind(f.name, kind.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in options.values()
        ]
        default = getattr(cls, "default", kind.empty)
        first = kind("kind", kind.POSITIONAL_OR_KEYWORD, default=default, annotation=str)
        return inspect.Signature([first, *own])

    @property
    def __doc__(cls) -> str | None:  # type: ignore[override]
        """The docstring as written, plus the options."""
        own = vars(cls).get("__doc__")
        if not cls.__is_member() or not dataclasses.is_dataclass(cls):
            return own
        rows = [(f.name, f.metadata.get("about"), f.default) for f in dataclasses.fields(cls)]
        lines = [f"  {n}: {about.help} (default: {usual!r})" for n, about, usual in rows if about]
        if not lines:
            return own
        return "\n".join([f"{(own or '').rstrip()}\n", "Args:", *lines])

    @__doc__.setter
    def __doc__(cls, text: str | None) -> None:
        """Ignore the docstring that `dataclass` generates."""

    def __is_member(cls) -> bool:
        """Whether this is a member rather than a family."""
        return bool(vars(cls).get("name")) or "choice" not in vars(cls)


def _meant(family: Any, chosen: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Drop options of other members if they have their default value."""
    own = {field.name for field in dataclasses.fields(chosen)}
    usual = [
        (f.name, f.default) for kind in family.kinds.values() for f in dataclasses.fields(kind)
    ]
    return {n: v for n, v in options.items() if n in own or (n, v) not in usual}


def _made(cls: type[T], args: tuple, options: dict[str, Any]) -> T:
    try:
        return type.__call__(cls, *args, **options)
    except TypeError as error:
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        known = f"its options are {', '.join(names)}" if names else "it has no options"
        strange = next((name for name in options if name not in names), "")
        reason = str(error).removeprefix(f"{cls.__name__}.__init__() ")
        label = f"{cls.family} {cls.name}"  # type: ignore[attr-defined]
        hint = did_you_mean(strange, names)
        raise UsageError(f"{label}: {reason}; {known}.{hint}") from error


def member(family: type[T], name: Any) -> type[T]:
    """A member's class by name.

    Raises:
      UsageError: no such member.
    """
    kinds: Members = family.kinds  # type: ignore[attr-defined]
    if not isinstance(name, str) or name not in kinds:
        label = family.family  # type: ignore[attr-defined]
        raise UsageError(
            f"{label} {repr(name)[:80]}: expected one of {', '.join(kinds)}."
            f"{did_you_mean(str(name), kinds)}"
        )
    return kinds[name]


@dataclass(frozen=True)
class Plugin(metaclass=Family):
    """Base class of families.

    Attributes:
      family: its name in messages, such as "optimizer".
      choice: the command-line option that names a member.
      prefix: prefix of the flags of its options.
      default: the default member.
      kinds: members by name; a class with its own `name` registers itself.
      absent: options that earlier versions did not write -> the value they used.
    """

    family: ClassVar[str]
    choice: ClassVar[str]
    prefix: ClassVar[str] = ""
    default: ClassVar[str]
    kinds: ClassVar[Members]
    name: ClassVar[str] = ""
    absent: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "choice" in vars(cls):
            cls.kinds = Members()
        elif "name" in vars(cls):
            own, known = path_of(cls), cls.kinds.path(cls.name)
            if known not in ("", own):
                raise ValueError(
                    f"{cls.family} {cls.name}: {known} and {own} have this name; rename one."
                )
            cls.kinds[cls.name] = cls

    def __post_init__(self) -> None:
        owner = f"{self.family} {self.name}"
        check_options(self, owner)
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            label, bounds = f"{owner}: {field.name}", about(field).bounds
            item = item_type(hints[field.name])
            if item is not None:
                value = _several(label, value, item, bounds)
            elif value is not None:
                value = _bounded(label, value, bounds)
            object.__setattr__(self, field.name, value)

    @classmethod
    def of(cls, given: str | Self) -> Self:
        """Make a member from its name; return a member unchanged."""
        return member(cls, given)() if isinstance(given, str) else given

    def to_json(self) -> dict[str, Any]:
        """`{"name": .., options}`, the inverse of `of_json`."""
        return {"name": self.name, **dataclasses.asdict(self)}

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> Self:
        """Make a member from the result of `to_json`.

        Raises:
          UsageError: no such member or option, or a value is out of range.
        """
        options = dict(record)
        chosen = member(cls, options.pop("name", None))
        return chosen(**{**chosen.absent, **options})


def ends(kind: type, bounds: Mapping[str, float]) -> tuple[Any, Any]:
    """Smallest and largest value of a type within bounds."""
    if kind is int:
        return int(bounds.get("least", -(2**63))), int(bounds.get("most", 2**63 - 1))
    above, below = bounds.get("above", -math.inf), bounds.get("below", math.inf)
    least = max(bounds.get("least", -LARGEST), math.nextafter(above, math.inf))
    return least, min(bounds.get("most", LARGEST), math.nextafter(below, -math.inf))


def item_type(hint: Any) -> type | None:
    """int or float if a field is a tuple of numbers, else None."""
    several = typing.get_origin(hint) is tuple
    return typing.get_args(hint)[0] if several else None


def kinds_of(hint: Any) -> frozenset[type]:
    """The types of a field that is not a tuple, NoneType included if allowed."""
    several = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return frozenset(typing.get_args(hint) if several else (hint,))


def _bounded(label: str, value: Any, bounds: Mapping[str, float]) -> Any:
    if isinstance(value, float):
        return finite_number(label, value, **bounds)  # type: ignore[arg-type]
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = ends(int, bounds)
        return whole_number(label, value, least=least, most=most)
    return value


def _several(label: str, value: Any, item: type, bounds: Mapping[str, float]) -> tuple:
    if not isinstance(value, tuple | list):
        raise UsageError(f"{label} {repr(value)[:80]}: expected a list of numbers.")
    return tuple(_bounded(label, typed(label, v, (item,)), bounds) for v in value)
