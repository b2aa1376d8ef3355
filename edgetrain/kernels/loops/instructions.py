"""Values of the planner's loops in LLVM, and instructions on them.

Arithmetic is numpy's: 64-bit integers, quotients and remainders rounded down, 0 for a divisor of 0,
floats without reassociation.
"""

import ast
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from .kinds import array_kind, fields, words_of


@dataclass(frozen=True)
class Number:
    """A number type. Of two types, the one with the higher `rank` can represent both results."""

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
    """An array of one of the kinds in kinds.py, stored row by row: an address and the shape."""

    dtype: str
    dimensions: int

    @property
    def item(self) -> Number:
        """Type of a loaded element."""
        return _ITEMS[self.dtype][0]

    @property
    def stored(self) -> str:
        """LLVM type of an element in memory."""
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
    """A NamedTuple passed from Python, as the address of its words (functions.py)."""

    kind: type

    def field(self, name: str) -> tuple[int, Any]:
        """Index of a field's first word, and its annotation."""
        offset = 0
        for item, annotation in zip(self.kind._fields, fields(self.kind) or (), strict=True):  # type: ignore[attr-defined]
            if item == name:
                return offset, annotation
            offset += words_of(annotation)
        raise AttributeError(f"{self.kind.__name__} has no field {name}")


@dataclass(frozen=True)
class Row:
    """Several values: a tuple, or a NamedTuple made by a loop, whose fields have names."""

    kinds: tuple["Kind", ...]
    names: tuple[str, ...] = ()


Kind = Number | Array | Record | Row
NOTHING = Row(())


class Value(NamedTuple):
    """A value as LLVM operands, one for each of `parts(kind)`."""

    kind: Kind
    operands: tuple[str, ...]

    @property
    def text(self) -> str:
        """The operand of a number or a record."""
        (operand,) = self.operands
        return operand


def parts(kind: Kind) -> tuple[str, ...]:
    """LLVM types of a value's operands."""
    if isinstance(kind, Number):
        return (kind.llvm,)
    if isinstance(kind, Array):
        return ("ptr", *["i64"] * kind.dimensions)
    if isinstance(kind, Record):
        return ("ptr",)
    return tuple(part for item in kind.kinds for part in parts(item))


def kind_of(annotation: Any) -> Kind:
    """The kind of an entry's parameter or a record's field."""
    if annotation in (int, float):
        return INT if annotation is int else FLOAT
    if fields(annotation) is not None:
        return Record(annotation)
    return Array(*array_kind(annotation))


def result_of(annotation: Any) -> Kind:
    """The kind of an entry's result: nothing, a number, or a NamedTuple of numbers."""
    if annotation is None:
        return NOTHING
    inner = fields(annotation)
    return kind_of(annotation) if inner is None else Row(tuple(map(kind_of, inner)))


def constant(value: Any) -> Value:
    """A Python or numpy number, from a loop's text or its module, as a value."""
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
    raise NotImplementedError(f"constants of type {name} are not supported")


def joined(kind: Kind, other: Kind) -> Kind:
    """The kind that can represent values of both."""
    if kind == other:
        return kind
    if isinstance(kind, Row) and isinstance(other, Row) and len(kind.kinds) == len(other.kinds):
        kinds = tuple(map(joined, kind.kinds, other.kinds))
        return Row(kinds, kind.names if kind.names == other.names else ())
    if isinstance(kind, Number) and isinstance(other, Number) and WORD not in (kind, other):
        low, high = sorted((kind, other), key=lambda number: number.rank)
        return FLOAT if (low, high) == (INT, SINGLE) else high  # int has more digits than float32
    raise NotImplementedError(f"a value can't be both {kind} and {other}")


_BITS = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl"}
_INTEGER = {**_BITS, ast.Add: "add nsw", ast.Sub: "sub nsw", ast.Mult: "mul nsw"}
_INTEGER |= {ast.RShift: "ashr"}
_WORD = {**_BITS, ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_WORD |= {ast.RShift: "lshr", ast.FloorDiv: "udiv", ast.Mod: "urem"}
_FLOATING = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
COMPARE = {ast.Eq: ("eq", "oeq"), ast.NotEq: ("ne", "une"), ast.Lt: ("slt", "olt")}
COMPARE |= {ast.LtE: ("sle", "ole"), ast.Gt: ("sgt", "ogt"), ast.GtE: ("sge", "oge")}
# (from, to) -> LLVM's instruction; "" if the bits stay the same.
_CASTS = {(TRUTH, INT): "zext", (TRUTH, WORD): "zext", (INT, WORD): "", (WORD, INT): ""}
_CASTS |= {(TRUTH, FLOAT): "uitofp", (WORD, FLOAT): "uitofp"}
_CASTS |= {(INT, FLOAT): "sitofp", (INT, SINGLE): "sitofp"}
_CASTS |= {(FLOAT, INT): "fptosi", (SINGLE, INT): "fptosi"}
_CASTS |= {(FLOAT, SINGLE): "fptrunc", (SINGLE, FLOAT): "fpext"}
FUNCTIONS = ("log", "exp", "sqrt")  # of the C library or the processor


class Instructions:
    """The text of one function being compiled."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []
        self._count = 0

    def new(self, text: str) -> str:
        """Append an instruction and return its result's name."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def label(self) -> str:
        self._count += 1
        return f"b{self._count}"

    def begin(self, label: str) -> None:
        """Begin a block; the previous block falls through to it unless it has ended."""
        self.lines += [f"  br label %{label}", f"{label}:"]

    def jump(self, label: str) -> None:
        """End a block with a jump. Lines that follow are unreachable unless they have a label."""
        self.lines += [f"  br label %{label}", f"{self.label()}:"]

    def fork(self, truth: str, yes: str, no: str) -> None:
        """End a block with a conditional branch, and begin the block of `yes`."""
        self.lines += [f"  br i1 {truth}, label %{yes}, label %{no}", f"{yes}:"]

    def slot(self, llvm: str) -> str:
        """A stack slot for a value that is computed on several paths."""
        self._count += 1
        self.slots.append(f"  %s{self._count} = alloca {llvm}")
        return f"%s{self._count}"

    def cast(self, value: Value, kind: Kind) -> Value:
        """Convert a value to another kind, as Python and numpy convert numbers."""
        if value.kind == kind:
            return value
        if isinstance(kind, Row) and isinstance(value.kind, Row):
            inner = [self.cast(*pair) for pair in zip(self.items(value), kind.kinds, strict=True)]
            return Value(kind, tuple(part for item in inner for part in item.operands))
        assert isinstance(kind, Number) and isinstance(value.kind, Number), (value.kind, kind)
        way = _CASTS[value.kind, kind]
        if not way:
            return Value(kind, value.operands)
        return Value(kind, (self.new(f"{way} {value.kind.llvm} {value.text} to {kind.llvm}"),))

    def items(self, value: Value) -> list[Value]:
        """The values of a row, or of a tuple to unpack."""
        assert isinstance(value.kind, Row), value.kind
        result, index = [], 0
        for kind in value.kind.kinds:
            count = len(parts(kind))
            result.append(Value(kind, value.operands[index : index + count]))
            index += count
        return result

    def row(self, values: list[Value], names: tuple[str, ...] = ()) -> Value:
        kind = Row(tuple(item.kind for item in values), names)
        return Value(kind, tuple(part for item in values for part in item.operands))

    def word(self, record: str, offset: int, llvm: str) -> str:
        """Load a word of a record; these never change while a loop runs."""
        address = self.new(f"getelementptr inbounds i64, ptr {record}, i64 {offset}")
        return self.new(f"load {llvm}, ptr {address}, !invariant.load !0")

    def element(self, array: Value, index: str) -> str:
        assert isinstance(array.kind, Array)
        return self.new(
            f"getelementptr inbounds {array.kind.stored}, ptr {array.operands[0]}, i64 {index}"
        )

    def item(self, array: Array, address: str) -> Value:
        """Load an element."""
        result = self.new(f"load {array.stored}, ptr {address}, !tbaa !{_TAGS[array.dtype]}")
        if array.stored != array.item.llvm:
            way = "trunc" if array.item == TRUTH else "sext"
            result = self.new(f"{way} {array.stored} {result} to {array.item.llvm}")
        return Value(array.item, (result,))

    def put(self, array: Array, address: str, value: Value) -> None:
        """Store an element."""
        result = self.cast(value, array.item).text
        if array.stored != array.item.llvm:
            way = "zext" if array.item == TRUTH else "trunc"
            result = self.new(f"{way} {array.item.llvm} {result} to {array.stored}")
        tag = _TAGS[array.dtype]
        self.lines.append(f"  store {array.stored} {result}, ptr {address}, !tbaa !{tag}")

    def binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        kind = joined(left.kind, right.kind)
        if kind == TRUTH and not isinstance(op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
            kind = INT
        if (isinstance(op, ast.Div) and kind == INT) or isinstance(op, ast.Pow):
            kind = FLOAT
        assert isinstance(kind, Number), kind
        a, b = self.cast(left, kind).text, self.cast(right, kind).text
        if isinstance(op, ast.Pow):
            assert FLOAT in (left.kind, right.kind)
            return Value(kind, (self.new(f"call double @llvm.pow.f64(double {a}, double {b})"),))
        if kind == INT and isinstance(op, (ast.FloorDiv, ast.Mod)):
            return Value(INT, (self._floored(isinstance(op, ast.Mod), a, b),))
        table = _WORD if kind == WORD else _INTEGER if kind in (INT, TRUTH) else _FLOATING
        return Value(kind, (self.new(f"{table[type(op)]} {kind.llvm} {a}, {b}"),))

    def _floored(self, rest: bool, a: str, b: str) -> str:
        """Quotient or remainder, rounded down; 0 for a divisor of 0."""
        if b.isdigit() and int(b) & (int(b) - 1) == 0 < int(b):
            ways = f"and i64 {a}, {int(b) - 1}", f"ashr i64 {a}, {int(b).bit_length() - 1}"
            return self.new(ways[not rest])
        none = self.new(f"icmp eq i64 {b}, 0")
        by = self.new(f"select i1 {none}, i64 1, i64 {b}")
        left = self.new(f"srem i64 {a}, {by}")
        sign = self.new(f"xor i64 {left}, {by}")
        other = self.new(f"icmp slt i64 {sign}, 0")
        some = self.new(f"icmp ne i64 {left}, 0")
        down = self.new(f"and i1 {some}, {other}")
        if rest:
            more = self.new(f"add i64 {left}, {by}")
            result = self.new(f"select i1 {down}, i64 {more}, i64 {left}")
        else:
            result = self.new(f"sdiv i64 {a}, {by}")
            less = self.new(f"sub i64 {result}, 1")
            result = self.new(f"select i1 {down}, i64 {less}, i64 {result}")
        return self.new(f"select i1 {none}, i64 0, i64 {result}")

    def compared(self, how: str | tuple[str, str], left: Value, other: Value) -> str:
        kind = joined(left.kind, other.kind)
        kind = INT if kind == TRUTH else kind
        assert isinstance(kind, Number), kind
        word = how if isinstance(how, str) else how[kind in (FLOAT, SINGLE)]
        if kind == WORD:
            word = word.replace("s", "u", 1) if word[0] == "s" else word
        a, b = self.cast(left, kind).text, self.cast(other, kind).text
        name = "fcmp" if kind in (FLOAT, SINGLE) else "icmp"
        return self.new(f"{name} {word} {kind.llvm} {a}, {b}")

    def most(self, most: bool, values: list[Value]) -> Value:
        result = values[0]
        for other in values[1:]:
            kind = joined(result.kind, other.kind)
            assert isinstance(kind, Number), kind
            result, other = self.cast(result, kind), self.cast(other, kind)
            better = self.compared(COMPARE[ast.Gt if most else ast.Lt], other, result)
            taken = f"select i1 {better}, {kind.llvm} {other.text}, {kind.llvm} {result.text}"
            result = Value(kind, (self.new(taken),))
        return result


def returned(kind: Kind) -> str:
    """LLVM type of a function's result."""
    inner = parts(kind)
    return "void" if not inner else inner[0] if len(inner) == 1 else f"{{ {', '.join(inner)} }}"


# Arrays of different kinds don't overlap, so stores to one don't invalidate loads of the other.
_TAGS = {dtype: 2 * number + 3 for number, dtype in enumerate(DTYPES)}
DECLARATIONS = "\n".join(
    [
        *(f"declare double @llvm.{name}.f64(double)" for name in FUNCTIONS),
        "declare double @llvm.pow.f64(double, double)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare i64 @llvm.smin.i64(i64, i64)",
        "!0 = !{}",
        '!1 = !{!"arrays"}',
        *(f'!{tag - 1} = !{{!"{dtype}", !1}}' for dtype, tag in _TAGS.items()),
        *(f"!{tag} = !{{!{tag - 1}, !{tag - 1}, i64 0}}\n" for tag in _TAGS.values()),
    ]
)
