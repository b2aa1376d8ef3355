"""Expressions of the planner's loops as LLVM text: the part of Python that loops are written in.

Arithmetic is that of numpy's numbers: 64-bit integers that wrap, quotients and remainders rounded
down and 0 where the divisor is, floats without reassociation. An index is not negative and within
its array; a slice is cut at the array's ends. Comparisons in a chain are all evaluated.
"""

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from .loop_values import (
    DTYPES,
    FLOAT,
    INT,
    SINGLE,
    TRUTH,
    WORD,
    Array,
    Kind,
    Number,
    Record,
    Row,
    Value,
    constant,
    joined,
    kind_of,
    parts,
)

_INTEGER = {
    ast.Add: "add nsw", ast.Sub: "sub nsw", ast.Mult: "mul nsw", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "ashr",
}  # fmt: skip
_WORD = {**_INTEGER, ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.RShift: "lshr"}
_WORD |= {ast.FloorDiv: "udiv", ast.Mod: "urem"}
_FLOATING = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARE = {
    ast.Eq: ("eq", "oeq"), ast.NotEq: ("ne", "une"), ast.Lt: ("slt", "olt"),
    ast.LtE: ("sle", "ole"), ast.Gt: ("sgt", "ogt"), ast.GtE: ("sge", "oge"),
}  # fmt: skip
# (from, to) -> LLVM's instruction; "" where the bits are the same.
_CASTS = {
    (TRUTH, INT): "zext", (TRUTH, WORD): "zext", (TRUTH, FLOAT): "uitofp", (INT, WORD): "",
    (WORD, INT): "", (INT, FLOAT): "sitofp", (INT, SINGLE): "sitofp", (WORD, FLOAT): "uitofp",
    (FLOAT, INT): "fptosi", (SINGLE, INT): "fptosi", (FLOAT, SINGLE): "fptrunc",
    (SINGLE, FLOAT): "fpext",
}  # fmt: skip
_NUMBERS: dict[Any, Number] = {
    int: INT, np.int64: INT, np.uint64: WORD, float: FLOAT, np.float64: FLOAT, np.float32: SINGLE,
    bool: TRUTH,
}  # fmt: skip
_FUNCTIONS = {np.log: "log", np.exp: "exp", np.sqrt: "sqrt"}  # of the C library or the processor


class Expressions:
    """Text of one function in the making.

    Args:
      names: what the function's module knows.
      call: compiles a call of another loop: its return's kind, and the name in LLVM.
    """

    def __init__(
        self, names: dict[str, Any], call: Callable[[Any, list[Kind]], tuple[Kind, str]]
    ) -> None:
        self.names, self.call = names, call
        self.kinds: dict[str, Kind] = {}
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

    def value(self, node: ast.expr) -> Value:
        """An expression's value."""
        known, found = self._known(node)
        if known:
            return constant(found)
        make = getattr(self, f"_{type(node).__name__.lower()}", None)
        if make is None:
            raise NotImplementedError(f"{type(node).__name__} in a loop")
        return make(node)

    def number(self, node: ast.expr, kind: Number = INT) -> str:
        """An operand of a kind."""
        return self.cast(self.value(node), kind).text

    def truth(self, node: ast.expr) -> str:
        """Whether an expression holds."""
        found = self.value(node)
        if found.kind == TRUTH:
            return found.text
        zero = "0" if found.kind in (INT, WORD) else "0.0"
        return self._compared("ne" if zero == "0" else "une", found, Value(found.kind, (zero,)))

    def cast(self, value: Value, kind: Kind) -> Value:
        """A value as another kind, as Python and numpy convert numbers."""
        if value.kind == kind:
            return value
        if isinstance(kind, Row) and isinstance(value.kind, Row):
            inner = [self.cast(*pair) for pair in zip(self.items(value), kind.kinds, strict=True)]
            return Value(kind, tuple(part for one in inner for part in one.operands))
        assert isinstance(kind, Number) and isinstance(value.kind, Number), (value.kind, kind)
        way = _CASTS[value.kind, kind]
        if not way:
            return Value(kind, value.operands)
        return Value(kind, (self.new(f"{way} {value.kind.llvm} {value.text} to {kind.llvm}"),))

    def items(self, value: Value) -> list[Value]:
        """The values of a row, or those of a tuple to unpack."""
        assert isinstance(value.kind, Row), value.kind
        found, at = [], 0
        for kind in value.kind.kinds:
            count = len(parts(kind))
            found.append(Value(kind, value.operands[at : at + count]))
            at += count
        return found

    def row(self, values: list[Value], names: tuple[str, ...] = ()) -> Value:
        kind = Row(tuple(one.kind for one in values), names)
        return Value(kind, tuple(part for one in values for part in one.operands))

    def load(self, name: str) -> Value:
        """A variable's value."""
        kind = self.kinds[name]
        loaded = [
            self.new(f"load {llvm}, ptr %{name}.{k}") for k, llvm in enumerate(parts(kind))
        ]
        return Value(kind, tuple(loaded))

    def place(self, node: ast.Subscript) -> tuple[Array, str]:
        """An element's array and address."""
        array = self.value(node.value)
        assert isinstance(array.kind, Array), array.kind
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        assert len(inner) == array.kind.dimensions, ast.unparse(node)
        at = self.number(inner[0])
        for extent, following in zip(array.operands[2:], inner[1:], strict=True):
            at = self.new(f"mul nsw i64 {at}, {extent}")
            at = self.new(f"add nsw i64 {at}, {self.number(following)}")
        return array.kind, self._element(array, at)

    def _element(self, array: Value, at: str) -> str:
        assert isinstance(array.kind, Array)
        return self.new(
            f"getelementptr inbounds {array.kind.stored}, ptr {array.operands[0]}, i64 {at}"
        )

    def item(self, array: Array, address: str) -> Value:
        """Load an element."""
        found = self.new(f"load {array.stored}, ptr {address}, !tbaa !{_TAGS[array.dtype]}")
        if array.stored != array.item.llvm:
            way = "trunc" if array.item == TRUTH else "sext"
            found = self.new(f"{way} {array.stored} {found} to {array.item.llvm}")
        return Value(array.item, (found,))

    def put(self, array: Array, address: str, value: Value) -> None:
        """Store an element."""
        found = self.cast(value, array.item).text
        if array.stored != array.item.llvm:
            way = "zext" if array.item == TRUTH else "trunc"
            found = self.new(f"{way} {array.item.llvm} {found} to {array.stored}")
        tag = _TAGS[array.dtype]
        self.lines.append(f"  store {array.stored} {found}, ptr {address}, !tbaa !{tag}")

    def _known(self, node: ast.expr) -> tuple[bool, Any]:
        """Whether an expression is a number of the module or the text, and which."""
        if isinstance(node, ast.Constant):
            return True, node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            known, found = self._known(node.operand)
            return known, -found if known else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            ((base, one), (power, other)) = self._known(node.left), self._known(node.right)
            return (True, one**other) if base and power else (False, None)
        known, found = self._object(node)
        return known and isinstance(found, (int, float, np.generic)), found

    def _object(self, node: ast.expr) -> tuple[bool, Any]:
        """What a name stands for outside the function."""
        if isinstance(node, ast.Attribute):
            known, found = self._object(node.value)
            inside = known and isinstance(found, ModuleType)
            return (True, getattr(found, node.attr)) if inside else (False, None)
        if not isinstance(node, ast.Name) or node.id in self.kinds:
            return False, None
        return (node.id in self.names), self.names.get(node.id)

    def _name(self, node: ast.Name) -> Value:
        return self.load(node.id)

    def _attribute(self, node: ast.Attribute) -> Value:
        of = self.value(node.value)
        if isinstance(of.kind, Record):
            at, annotation = of.kind.field(node.attr)
            kind = kind_of(annotation)
            return Value(kind, tuple(self.word(of.text, at + k, p) for k, p in enumerate(parts(kind))))
        if isinstance(of.kind, Row):
            return self.items(of)[of.kind.names.index(node.attr)]
        extents = [Value(INT, (one,)) for one in of.operands[1:]]
        if node.attr == "shape":
            return self.row(extents)
        assert node.attr == "size", node.attr
        size = extents[0]
        for other in extents[1:]:
            size = self._binary(ast.Mult(), size, other)
        return size

    def word(self, record: str, at: int, llvm: str) -> str:
        """A record's words never change while a loop runs."""
        address = self.new(f"getelementptr inbounds i64, ptr {record}, i64 {at}")
        return self.new(f"load {llvm}, ptr {address}, !invariant.load !0")

    def _subscript(self, node: ast.Subscript) -> Value:
        of = self.value(node.value)
        if isinstance(of.kind, Row):
            return self.items(of)[operator.index(ast.literal_eval(node.slice))]
        assert isinstance(of.kind, Array), of.kind
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(inner) == of.kind.dimensions and not isinstance(inner[-1], ast.Slice):
            return self.item(*self.place(node))
        if of.kind.dimensions == 2:
            at = self.new(f"mul nsw i64 {self.number(inner[0])}, {of.operands[2]}")
            of = Value(Array(of.kind.dtype, 1), (self._element(of, at), of.operands[2]))
            inner = inner[1:]
        return self._slice(of, inner[0]) if inner else of

    def _slice(self, array: Value, part: ast.expr) -> Value:
        assert isinstance(part, ast.Slice) and part.step is None
        extent = array.operands[1]
        start = self._within(part.lower, extent) if part.lower else "0"
        stop = self._within(part.upper, extent) if part.upper else extent
        length = self.new(f"sub nsw i64 {stop}, {start}")
        length = self.new(f"call i64 @llvm.smax.i64(i64 {length}, i64 0)")
        return Value(array.kind, (self._element(array, start), length))

    def _within(self, node: ast.expr, extent: str) -> str:
        """A bound of a slice: from the end where it is negative, and not beyond it."""
        at = self.number(node)
        back = self.new(f"add i64 {at}, {extent}")
        negative = self.new(f"icmp slt i64 {at}, 0")
        at = self.new(f"select i1 {negative}, i64 {back}, i64 {at}")
        at = self.new(f"call i64 @llvm.smax.i64(i64 {at}, i64 0)")
        return self.new(f"call i64 @llvm.smin.i64(i64 {at}, i64 {extent})")

    def _tuple(self, node: ast.Tuple) -> Value:
        return self.row([self.value(one) for one in node.elts])

    def _binop(self, node: ast.BinOp) -> Value:
        return self._binary(node.op, self.value(node.left), self.value(node.right))

    def _binary(self, op: ast.operator, left: Value, right: Value) -> Value:
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
            found = self.new(f"select i1 {down}, i64 {more}, i64 {left}")
        else:
            found = self.new(f"sdiv i64 {a}, {by}")
            less = self.new(f"sub i64 {found}, 1")
            found = self.new(f"select i1 {down}, i64 {less}, i64 {found}")
        return self.new(f"select i1 {none}, i64 0, i64 {found}")

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Value(TRUTH, (self.new(f"xor i1 {self.truth(node.operand)}, true"),))
        assert isinstance(node.op, ast.USub)
        of = self.value(node.operand)
        if of.kind in (FLOAT, SINGLE):
            assert isinstance(of.kind, Number)
            return Value(of.kind, (self.new(f"fneg {of.kind.llvm} {of.text}"),))
        return self._binary(ast.Sub(), constant(0), of)

    def _compare(self, node: ast.Compare) -> Value:
        values = [self.value(one) for one in (node.left, *node.comparators)]
        held = [
            self._compared(_COMPARE[type(op)], *pair)
            for op, pair in zip(node.ops, zip(values, values[1:], strict=False), strict=True)
        ]
        all_held = held[0]
        for one in held[1:]:
            all_held = self.new(f"and i1 {all_held}, {one}")
        return Value(TRUTH, (all_held,))

    def _compared(self, how: str | tuple[str, str], one: Value, other: Value) -> str:
        kind = joined(one.kind, other.kind)
        kind = INT if kind == TRUTH else kind
        assert isinstance(kind, Number), kind
        word = how if isinstance(how, str) else how[kind in (FLOAT, SINGLE)]
        if kind == WORD:
            word = word.replace("s", "u", 1) if word[0] == "s" else word
        a, b = self.cast(one, kind).text, self.cast(other, kind).text
        name = "fcmp" if kind in (FLOAT, SINGLE) else "icmp"
        return self.new(f"{name} {word} {kind.llvm} {a}, {b}")

    def _boolop(self, node: ast.BoolOp) -> Value:
        """As Python: what stands behind is evaluated only where it matters."""
        end, held = self.label(), self.slot("i1")
        for number, one in enumerate(node.values):
            truth = self.truth(one)
            self.lines.append(f"  store i1 {truth}, ptr {held}")
            if number < len(node.values) - 1:
                ways = self.label(), end
                if isinstance(node.op, ast.And):
                    self.fork(truth, *ways)
                else:
                    self.lines += [f"  br i1 {truth}, label %{end}, label %{ways[0]}", f"{ways[0]}:"]
        self.begin(end)
        return Value(TRUTH, (self.new(f"load i1, ptr {held}"),))

    def _ifexp(self, node: ast.IfExp) -> Value:
        yes, no, end = self.label(), self.label(), self.label()
        self.fork(self.truth(node.test), yes, no)
        before, self.lines = self.lines, []
        one, first, self.lines = self.value(node.body), self.lines, []
        other, second = self.value(node.orelse), self.lines
        kind = joined(one.kind, other.kind)
        slots = [self.slot(llvm) for llvm in parts(kind)]
        self.lines = [*before, *first]
        for value, lines, label in ((one, second, no), (other, [], end)):
            for slot, llvm, part in zip(
                slots, parts(kind), self.cast(value, kind).operands, strict=True
            ):
                self.lines.append(f"  store {llvm} {part}, ptr {slot}")
            self.lines += [f"  br label %{end}", f"{label}:", *lines]
        loaded = [self.new(f"load {p}, ptr {s}") for p, s in zip(parts(kind), slots, strict=True)]
        return Value(kind, tuple(loaded))

    def _call(self, node: ast.Call) -> Value:
        _, function = self._object(node.func)
        values = [self.value(one) for one in node.args]
        if function in (min, max):
            return self._most(function is max, values)
        if function in _FUNCTIONS:
            text = self.cast(values[0], FLOAT).text
            called = f"call double @llvm.{_FUNCTIONS[function]}.f64(double {text})"
            return Value(FLOAT, (self.new(called),))
        if function in _NUMBERS:
            return self.cast(values[0], _NUMBERS[function])
        if isinstance(function, type) and hasattr(function, "_fields"):
            kinds = function.__annotations__.values()
            made = [self.cast(*pair) for pair in zip(values, map(kind_of, kinds), strict=True)]
            return self.row(made, function._fields)
        return self.called(function, values)

    def called(self, function: Any, values: list[Value]) -> Value:
        """What another loop returns."""
        kind, name = self.call(function, [one.kind for one in values])
        whole = self.row(values)
        typed = [f"{one} {part}" for one, part in zip(parts(whole.kind), whole.operands, strict=True)]
        llvm, count = returned(kind), len(parts(kind))
        if not count:
            self.lines.append(f"  call void @{name}({', '.join(typed)})")
            return Value(kind, ())
        found = self.new(f"call {llvm} @{name}({', '.join(typed)})")
        if count == 1:
            return Value(kind, (found,))
        return Value(kind, tuple(self.new(f"extractvalue {llvm} {found}, {k}") for k in range(count)))

    def _most(self, most: bool, values: list[Value]) -> Value:
        found = values[0]
        for other in values[1:]:
            kind = joined(found.kind, other.kind)
            assert isinstance(kind, Number), kind
            found, other = self.cast(found, kind), self.cast(other, kind)
            better = self._compared(_COMPARE[ast.Gt if most else ast.Lt], other, found)
            taken = f"select i1 {better}, {kind.llvm} {other.text}, {kind.llvm} {found.text}"
            found = Value(kind, (self.new(taken),))
        return found


def returned(kind: Kind) -> str:
    """LLVM's type of what a function returns."""
    inner = parts(kind)
    return "void" if not inner else inner[0] if len(inner) == 1 else f"{{ {', '.join(inner)} }}"


DECLARATIONS = "".join(
    f"declare double @llvm.{name}.f64(double)\n" for name in _FUNCTIONS.values()
) + (
    "declare double @llvm.pow.f64(double, double)\n"
    "declare i64 @llvm.smax.i64(i64, i64)\ndeclare i64 @llvm.smin.i64(i64, i64)\n!0 = !{}\n!1 = !{!\"arrays\"}\n"
)
# Arrays of two kinds share no bytes, so that what is known of one outlives stores to the other.
_TAGS = {dtype: 2 * number + 3 for number, dtype in enumerate(DTYPES)}
for _dtype, _tag in _TAGS.items():
    _kind = f'!{_tag - 1} = !{{!"{_dtype}", !1}}\n'
    DECLARATIONS += f"{_kind}!{_tag} = !{{!{_tag - 1}, !{_tag - 1}, i64 0}}\n"
