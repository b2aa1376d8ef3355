"""Values of the planner's loops while they are compiled: their kinds, as LLVM holds them."""

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from .kinds import array_kind, fields, words_of


@dataclass(frozen=True)
class Number:
    """A number; `rank` says which of two kinds holds the results of both."""

    name: str
    llvm: str
    rank: int


TRUTH = Number("truth", "i1", 0)
INT = Number("int", "i64", 1)
WORD = Number("word", "i64", 1)  # unsigned: mixed with nothing else
SINGLE = Number("single", "float", 2)
FLOAT = Number("float", "double", 3)


@dataclass(frozen=True)
class Array:
    """Of loop_kinds' kinds, rows end to end: an address and the shape."""

    dtype: str
    dimensions: int

    @property
    def item(self) -> Number:
        """What an element is once it is loaded."""
        return _ITEMS[self.dtype][0]

    @property
    def stored(self) -> str:
        """LLVM's type of an element in memory."""
        return _ITEMS[self.dtype][1]


_ITEMS = {
    "bool": (TRUTH, "i8"),
    "int64": (INT, "i64"),
    "int32": (INT, "i32"),
    "uint64": (WORD, "i64"),
    "float64": (FLOAT, "double"),
    "float32": (SINGLE, "float"),
}


DTYPES = tuple(_ITEMS)


@dataclass(frozen=True)
class Record:
    """A NamedTuple that Python passes, as the address of its words (functions.py)."""

    kind: type

    def field(self, name: str) -> tuple[int, Any]:
        """Number of the first word of a field, and its annotation."""
        at = 0
        for one, annotation in zip(self.kind._fields, fields(self.kind) or (), strict=True):  # type: ignore[attr-defined]
            if one == name:
                return at, annotation
            at += words_of(annotation)
        raise AttributeError(f"{self.kind.__name__} has no field {name}")


@dataclass(frozen=True)
class Row:
    """Several values: a tuple, or a NamedTuple that a loop made, whose fields have names."""

    kinds: tuple["Kind", ...]
    names: tuple[str, ...] = ()


Kind = Number | Array | Record | Row
NOTHING = Row(())


class Value(NamedTuple):
    """A value, as operands of LLVM: one for each of `parts(kind)`."""

    kind: Kind
    operands: tuple[str, ...]

    @property
    def text(self) -> str:
        """The operand of a number or a record."""
        (one,) = self.operands
        return one


def parts(kind: Kind) -> tuple[str, ...]:
    """LLVM's types of a value."""
    if isinstance(kind, Number):
        return (kind.llvm,)
    if isinstance(kind, Array):
        return ("ptr", *["i64"] * kind.dimensions)
    if isinstance(kind, Record):
        return ("ptr",)
    return tuple(part for one in kind.kinds for part in parts(one))


def kind_of(annotation: Any) -> Kind:
    """Of what an entry takes, and of a record's field."""
    if annotation in (int, float):
        return INT if annotation is int else FLOAT
    if fields(annotation) is not None:
        return Record(annotation)
    return Array(*array_kind(annotation))


def result_of(annotation: Any) -> Kind:
    """Of what an entry returns: nothing, a number, or a NamedTuple of numbers."""
    if annotation is None:
        return NOTHING
    inner = fields(annotation)
    return kind_of(annotation) if inner is None else Row(tuple(map(kind_of, inner)))


def constant(value: Any) -> Value:
    """A number of Python or numpy, as it stands in a loop's text or in its module."""
    name = type(value).__name__
    if name in ("bool", "bool_"):
        return Value(TRUTH, ("true" if value else "false",))
    if name in ("int", "int64"):
        return Value(INT, (str(int(value)),))
    if name == "uint64":
        return Value(WORD, (str(int(value)),))
    if name in ("float", "float64", "float32"):
        kind = SINGLE if name == "float32" else FLOAT
        (bits,) = struct.unpack("<Q", struct.pack("<d", float(value)))
        return Value(kind, (f"0x{bits:016X}",))
    raise NotImplementedError(f"a constant of type {name}")


def joined(one: Kind, other: Kind) -> Kind:
    """The kind that holds values of both."""
    if one == other:
        return one
    if isinstance(one, Row) and isinstance(other, Row) and len(one.kinds) == len(other.kinds):
        kinds = tuple(map(joined, one.kinds, other.kinds))
        return Row(kinds, one.names if one.names == other.names else ())
    if isinstance(one, Number) and isinstance(other, Number) and WORD not in (one, other):
        low, high = sorted((one, other), key=lambda number: number.rank)
        return FLOAT if (low, high) == (INT, SINGLE) else high  # an int has more digits
    raise NotImplementedError(f"a value that is {one} and {other}")
