"""Expressions of the planner's loops as LLVM text: the part of Python that loops are written in.

An index is not negative and within its array; a slice is cut at the array's ends. Comparisons in a
chain are all evaluated.
"""

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from .instructions import COMPARE, Instructions, returned
from .values import (
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

_NUMBERS: dict[Any, Number] = {bool: TRUTH, int: INT, np.int64: INT, np.uint64: WORD}
_NUMBERS |= {float: FLOAT, np.float64: FLOAT, np.float32: SINGLE}
_FUNCTIONS = {np.log: "log", np.exp: "exp", np.sqrt: "sqrt"}


class Expressions(Instructions):
    """Text of one function in the making.

    Args:
      names: what the function's module knows.
      call: compiles a call of another loop: its return's kind, and the name in LLVM.
    """

    def __init__(
        self, names: dict[str, Any], call: Callable[[Any, list[Kind]], tuple[Kind, str]]
    ) -> None:
        super().__init__()
        self.names, self.call = names, call
        self.kinds: dict[str, Kind] = {}

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
        return self.compared("ne" if zero == "0" else "une", found, Value(found.kind, (zero,)))

    def load(self, name: str) -> Value:
        """A variable's value."""
        kind = self.kinds[name]
        loaded = [self.new(f"load {llvm}, ptr %{name}.{k}") for k, llvm in enumerate(parts(kind))]
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
        return array.kind, self.element(array, at)

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
            return Value(
                kind, tuple(self.word(of.text, at + k, p) for k, p in enumerate(parts(kind)))
            )
        if isinstance(of.kind, Row):
            return self.items(of)[of.kind.names.index(node.attr)]
        extents = [Value(INT, (one,)) for one in of.operands[1:]]
        if node.attr == "shape":
            return self.row(extents)
        assert node.attr == "size", node.attr
        size = extents[0]
        for other in extents[1:]:
            size = self.binary(ast.Mult(), size, other)
        return size

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
            of = Value(Array(of.kind.dtype, 1), (self.element(of, at), of.operands[2]))
            inner = inner[1:]
        return self._slice(of, inner[0]) if inner else of

    def _slice(self, array: Value, part: ast.expr) -> Value:
        assert isinstance(part, ast.Slice) and part.step is None
        extent = array.operands[1]
        start = self._within(part.lower, extent) if part.lower else "0"
        stop = self._within(part.upper, extent) if part.upper else extent
        length = self.new(f"sub nsw i64 {stop}, {start}")
        length = self.new(f"call i64 @llvm.smax.i64(i64 {length}, i64 0)")
        return Value(array.kind, (self.element(array, start), length))

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
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Value(TRUTH, (self.new(f"xor i1 {self.truth(node.operand)}, true"),))
        of = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return of
        assert isinstance(node.op, ast.USub), ast.unparse(node)
        if of.kind in (FLOAT, SINGLE):
            assert isinstance(of.kind, Number)
            return Value(of.kind, (self.new(f"fneg {of.kind.llvm} {of.text}"),))
        return self.binary(ast.Sub(), constant(0), of)

    def _compare(self, node: ast.Compare) -> Value:
        values = [self.value(one) for one in (node.left, *node.comparators)]
        held = [
            self.compared(COMPARE[type(op)], *pair)
            for op, pair in zip(node.ops, zip(values, values[1:], strict=False), strict=True)
        ]
        all_held = held[0]
        for one in held[1:]:
            all_held = self.new(f"and i1 {all_held}, {one}")
        return Value(TRUTH, (all_held,))

    def _boolop(self, node: ast.BoolOp) -> Value:
        """As Python: what stands behind is evaluated only where it matters."""
        end, held = self.label(), self.slot("i1")
        for number, one in enumerate(node.values):
            truth = self.truth(one)
            self.lines.append(f"  store i1 {truth}, ptr {held}")
            following = self.label() if number < len(node.values) - 1 else end
            yes, no = (following, end) if isinstance(node.op, ast.And) else (end, following)
            self.lines.append(f"  br i1 {truth}, label %{yes}, label %{no}")
            self.lines.append(f"{following}:")
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
            return self.most(function is max, values)
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
        typed = [
            f"{one} {part}" for one, part in zip(parts(whole.kind), whole.operands, strict=True)
        ]
        llvm, count = returned(kind), len(parts(kind))
        if not count:
            self.lines.append(f"  call void @{name}({', '.join(typed)})")
            return Value(kind, ())
        found = self.new(f"call {llvm} @{name}({', '.join(typed)})")
        if count == 1:
            return Value(kind, (found,))
        return Value(
            kind, tuple(self.new(f"extractvalue {llvm} {found}, {k}") for k in range(count))
        )
