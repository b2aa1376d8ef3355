"""Values of the planner's loops as LLVM holds them, and its instructions on them.

Arithmetic is that of numpy's numbers: 64-bit integers, quotients and remainders rounded down and 0
for a divisor of 0, floats without reassociation.
"""

import ast
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
    """Of functions.py's kinds, rows end to end: an address and the shape."""

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
        for item, annotation in zip(self.kind._fields, fields(self.kind) or (), strict=True):  # type: ignore[attr-defined]
            if item == name:
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
    return tuple(part for item in kind.kinds for part in parts(item))


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
    raise NotImplementedError(f"constants of type {name} are not supported")


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
    raise NotImplementedError(f"a value can't be both {one} and {other}")


_BITS = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl"}
_INTEGER = {**_BITS, ast.Add: "add nsw", ast.Sub: "sub nsw", ast.Mult: "mul nsw"}
_INTEGER |= {ast.RShift: "ashr"}
_WORD = {**_BITS, ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_WORD |= {ast.RShift: "lshr", ast.FloorDiv: "udiv", ast.Mod: "urem"}
_FLOATING = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
COMPARE = {ast.Eq: ("eq", "oeq"), ast.NotEq: ("ne", "une"), ast.Lt: ("slt", "olt")}
COMPARE |= {ast.LtE: ("sle", "ole"), ast.Gt: ("sgt", "ogt"), ast.GtE: ("sge", "oge")}
# (from, to) -> LLVM's instruction; "": the bits are the same.
_CASTS = {(TRUTH, INT): "zext", (TRUTH, WORD): "zext", (INT, WORD): "", (WORD, INT): ""}
_CASTS |= {(TRUTH, FLOAT): "uitofp", (WORD, FLOAT): "uitofp"}
_CASTS |= {(INT, FLOAT): "sitofp", (INT, SINGLE): "sitofp"}
_CASTS |= {(FLOAT, INT): "fptosi", (SINGLE, INT): "fptosi"}
_CASTS |= {(FLOAT, SINGLE): "fptrunc", (SINGLE, FLOAT): "fpext"}
FUNCTIONS = ("log", "exp", "sqrt")  # of the C library or the processor


class Instructions:
    """Text of one function in the making."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.slots: list[str] = []
        self._count = 0

    def new(self, text: str) -> str:
        """A new operand, the result of an instruction."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def label(self) -> str:
        self._count += 1
        return f"b{self._count}"

    def begin(self, label: str) -> None:
        """Begin a block, which the one before falls into unless it has ended."""
        self.lines += [f"  br label %{label}", f"{label}:"]

    def jump(self, label: str) -> None:
        """End a block; what follows in the text is reached by nobody unless it has a label."""
        self.lines += [f"  br label %{label}", f"{self.label()}:"]

    def fork(self, truth: str, yes: str, no: str) -> None:
        """End a block with a choice, and begin that of `yes`."""
        self.lines += [f"  br i1 {truth}, label %{yes}, label %{no}", f"{yes}:"]

    def slot(self, llvm: str) -> str:
        """A place for what is computed on several ways."""
        self._count += 1
        self.slots.append(f"  %s{self._count} = alloca {llvm}")
        return f"%s{self._count}"

    def cast(self, value: Value, kind: Kind) -> Value:
        """A value as another kind, as Python and numpy convert numbers."""
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
        """The values of a row, or those of a tuple to unpack."""
        assert isinstance(value.kind, Row), value.kind
        result, at = [], 0
        for kind in value.kind.kinds:
            count = len(parts(kind))
            result.append(Value(kind, value.operands[at : at + count]))
            at += count
        return result

    def row(self, values: list[Value], names: tuple[str, ...] = ()) -> Value:
        kind = Row(tuple(item.kind for item in values), names)
        return Value(kind, tuple(part for item in values for part in item.operands))

    def word(self, record: str, at: int, llvm: str) -> str:
        """A record's words never change while a loop runs."""
        address = self.new(f"getelementptr inbounds i64, ptr {record}, i64 {at}")
        return self.new(f"load {llvm}, ptr {address}, !invariant.load !0")

    def element(self, array: Value, at: str) -> str:
        assert isinstance(array.kind, Array)
        return self.new(
            f"getelementptr inbounds {array.kind.stored}, ptr {array.operands[0]}, i64 {at}"
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
        """Quotient or rest, rounded down; 0 for a divisor of 0."""
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

    def compared(self, how: str | tuple[str, str], one: Value, other: Value) -> str:
        kind = joined(one.kind, other.kind)
        kind = INT if kind == TRUTH else kind
        assert isinstance(kind, Number), kind
        word = how if isinstance(how, str) else how[kind in (FLOAT, SINGLE)]
        if kind == WORD:
            word = word.replace("s", "u", 1) if word[0] == "s" else word
        a, b = self.cast(one, kind).text, self.cast(other, kind).text
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
    """LLVM's type of what a function returns."""
    inner = parts(kind)
    return "void" if not inner else inner[0] if len(inner) == 1 else f"{{ {', '.join(inner)} }}"


# Arrays of two kinds share no bytes: what is known of one outlives stores to the other.
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
