"""Expressions of kernels as LLVM instructions.

Operators mean what they mean in numba, which chooses types and instructions by the operands' types.
Known values produce no instructions, so branches that a kernel never takes produce no code.
"""

import ast
import builtins
import operator
import types as python
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import TypingError
from numba.core.extending import _Intrinsic
from numba.core.types import containers

from ..language.inlining import Inline
from .values import I1, NONE, NOTHING, Value, constant, number, row

_BINARY: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type, Callable] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type, Callable] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# If the operands are known integers or booleans, so is the result.
_FOLDED: set[Any] = {operator.add, operator.sub, operator.mul, operator.and_, operator.or_}
_FOLDED |= {operator.xor, operator.lshift, operator.rshift, operator.pow, operator.neg}
_FOLDED |= {*_COMPARE.values()}
_CASTS: dict[Any, Any] = {np.float32: types.float32, np.float64: types.float64}
_CASTS |= {np.int64: types.int64}
_CASTS |= {np.uint32: types.uint32, np.int32: types.int32, np.uint64: types.uint64}


class Expressions:
    """The instructions of one function being compiled.

    Args:
      module: the kernel's, which makes the functions that are called (functions.py).
      function: the Python function.
      builder: where instructions are written.
    """

    def __init__(self, module: Any, function: python.FunctionType, builder: Any) -> None:
        self.module, self.builder = module, builder
        self.names: dict[str, Any] = vars(builtins) | function.__globals__
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.names |= {name: cell.cell_contents for name, cell in cells}
        self.variables: dict[str, Value] = {}

    def value(self, node: ast.expr) -> Value:
        """An expression's value."""
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def block(self, name: str = "") -> Any:
        return self.builder.append_basic_block(name)

    def slot(self, kind: Any) -> Any:
        """Allocate memory in the function's frame."""
        with self.builder.goto_entry_block():
            return self.builder.alloca(kind)

    def cast(self, value: Value, kind: Any) -> Value:
        """Convert a value to another numba type, as numba would.

        Tuples and records are converted item by item. A known float stays known.

        Raises:
          TypingError: the value is a function or None.
        """
        if value.kind == kind:
            return value
        if value.items is not None:
            made = [self.cast(*pair) for pair in zip(value.items, kind, strict=True)]
            return Value(kind, items=made)
        if value.kind is None or value.kind == NONE:
            raise TypingError(f"{value.known!r} is not {kind}")
        if value.known is not None and kind in (types.float64, types.float32):
            return number(kind, value.known)
        text = self.module.target.cast(self.builder, value.text, value.kind, kind)
        return Value(kind, text)

    def operand(self, value: Value) -> Any:
        """A value in the form that numba's intrinsics take: a tuple as one LLVM struct."""
        if value.items is None:
            return value.text
        parts = [self.operand(item) for item in value.items]
        return self.module.target.make_tuple(self.builder, value.kind, parts)

    def taken(self, kind: Any, text: Any) -> Value:
        """An intrinsic's result as a value; the inverse of `operand`."""
        if kind in (NONE, types.void):
            return NOTHING
        if not isinstance(kind, containers.BaseTuple):
            return Value(kind, text)
        parts = [self.builder.extract_value(text, k) for k in range(len(kind))]
        return Value(kind, items=[self.taken(*pair) for pair in zip(kind, parts, strict=True)])

    def truth(self, value: Value) -> Any:
        """Whether a value counts as true, as an LLVM i1."""
        if value.items is not None:
            return I1(int(bool(value.items)))
        return self.cast(value, types.boolean).text

    def branch(self, node: ast.expr, yes: Any, no: Any) -> None:
        """Branch to `yes` or `no`, depending on an expression."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.branch(node.operand, no, yes)
        elif isinstance(node, ast.BoolOp):
            for item in node.values[:-1]:
                following = self.block()
                if isinstance(node.op, ast.And):
                    self.branch(item, following, no)
                else:
                    self.branch(item, yes, following)
                self.builder.position_at_end(following)
            self.branch(node.values[-1], yes, no)
        else:
            result = self.value(node)
            if result.known is not None:
                self.builder.branch(yes if result.known else no)
            else:
                self.builder.cbranch(self.truth(result), yes, no)

    def decided(self, node: ast.expr) -> bool | None:
        """Whether an expression holds; None if that takes an instruction to find out."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.decided(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            ends = isinstance(node.op, ast.Or)
            for item in node.values:
                held = self.decided(item)
                if held is None or held == ends:
                    return held
            return not ends
        if isinstance(node, ast.Compare):
            pairs = [node.left, *node.comparators]
            if not all(map(self._is_simple, pairs)):
                return None
        elif not self._is_simple(node):
            return None
        result = self.value(node)
        if result.items is not None:
            return bool(result.items)
        return None if result.known is None else bool(result.known)

    def _is_simple(self, node: ast.expr) -> bool:
        """Whether evaluating the node has no side effects and takes no instruction."""
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.operand, ast.Constant)
        if isinstance(node, ast.Attribute):
            return self._is_simple(node.value)
        return isinstance(node, (ast.Constant, ast.Name))

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        result = self.variables.get(node.id)
        if result is not None:
            return self.read(result)
        if node.id not in self.names:
            raise TypingError(f"{node.id} is read before it is assigned")
        return constant(self.names[node.id])

    def read(self, variable: Value) -> Value:
        """A variable's current value."""
        return variable

    def _attribute(self, node: ast.Attribute) -> Value:
        return self._member(self.value(node.value), node.attr)

    @staticmethod
    def _member(of: Value, name: str) -> Value:
        """A record's field, or an attribute of a Python object."""
        if of.items is None:
            return constant(getattr(of.known, name))
        fields = getattr(of.kind, "fields", ())
        if name not in fields:
            raise TypingError(f"Unknown attribute '{name}' of {of.kind}")
        return of.items[fields.index(name)]

    def _tuple(self, node: ast.Tuple) -> Value:
        return row([self.value(item) for item in node.elts])

    def _subscript(self, node: ast.Subscript) -> Value:
        of = self.value(node.value)
        if of.items is None:
            return constant(of.known[self.value(node.slice).known])
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if item is None else self.value(item).known
                for item in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            return row(of.items[slice(*bounds)])
        index = self.value(node.slice)
        if index.known is not None:
            return of.items[index.known]
        return self._chosen(list(of.items), index.text)

    def _chosen(self, items: list[Value], index: Any) -> Value:
        """One of several numbers, selected by index."""
        end, blocks = self.block(), [self.block() for _ in items]
        places = self.builder.switch(index, blocks[-1])
        texts = [item.text for item in items]
        for k, block in enumerate(blocks):
            if k < len(blocks) - 1:
                places.add_case(k, block)
            self.builder.position_at_end(block)
            self.builder.branch(end)
        self.builder.position_at_end(end)
        result = self.builder.phi(texts[0].type)
        for text, block in zip(texts, blocks, strict=True):
            result.add_incoming(text, block)
        return Value(items[0].kind, result)

    def _binop(self, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def binary(self, symbol: ast.operator, left: Value, right: Value) -> Value:
        """Apply a binary operator."""
        if left.items is not None and right.items is not None and isinstance(symbol, ast.Add):
            return row([*left.items, *right.items])
        return self.called(_BINARY[type(symbol)], [left, right])

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            held = self.value(node.operand)
            if held.known is not None:
                return number(types.boolean, not held.known)
            return Value(types.boolean, self.builder.not_(self.truth(held)))
        if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
            return constant(-node.operand.value)  # type: ignore[operator]
        return self.called(_UNARY[type(node.op)], [self.value(node.operand)])

    def _compare(self, node: ast.Compare) -> Value:
        values = [self.value(item) for item in (node.left, *node.comparators)]
        held = []
        for symbol, a, b in zip(node.ops, values, values[1:], strict=False):
            if isinstance(symbol, (ast.Is, ast.IsNot)):
                same = a.known is b.known and a.kind == b.kind
                held.append(number(types.boolean, same == isinstance(symbol, ast.Is)))
            elif isinstance(symbol, (ast.In, ast.NotIn)):
                held.append(self._one_of(a, b, isinstance(symbol, ast.NotIn)))
            else:
                held.append(self.called(_COMPARE[type(symbol)], [a, b]))
        result = held[0]
        for item in held[1:]:
            result = Value(types.boolean, self.builder.and_(result.text, item.text))
        return result

    def _one_of(self, value: Value, items: Value, turned: bool) -> Value:
        result = I1(0)
        for item in items.items or ():
            result = self.builder.or_(result, self.called(operator.eq, [value, item]).text)
        return Value(types.boolean, self.builder.not_(result) if turned else result)

    def _boolop(self, node: ast.BoolOp) -> Value:
        decided = self.decided(node)
        if decided is not None:
            return number(types.boolean, decided)
        yes, no, end = self.block(), self.block(), self.block()
        self.branch(node, yes, no)
        for block in (yes, no):
            self.builder.position_at_end(block)
            self.builder.branch(end)
        self.builder.position_at_end(end)
        result = self.builder.phi(I1)
        result.add_incoming(I1(1), yes)
        result.add_incoming(I1(0), no)
        return Value(types.boolean, result)

    def _ifexp(self, node: ast.IfExp) -> Value:
        decided = self.decided(node.test)
        if decided is not None:
            return self.value(node.body if decided else node.orelse)
        yes, no, end = self.block(), self.block(), self.block()
        self.branch(node.test, yes, no)
        ways = []
        for block, inner in ((yes, node.body), (no, node.orelse)):
            self.builder.position_at_end(block)
            ways.append((self.value(inner).forgotten(), self.builder.block))
        kind = self.common([value for value, _ in ways])
        leaves = []
        for value, block in ways:
            self.builder.position_at_end(block)
            made = self.cast(value, kind)
            leaves.append((list(made.leaves()), made))
            self.builder.branch(end)
        self.builder.position_at_end(end)
        joined = []
        for pair in zip(*(leaf for leaf, _ in leaves), strict=True):
            result = self.builder.phi(pair[0].text.type)
            for item, (_, block) in zip(pair, ways, strict=True):
                result.add_incoming(item.text, block)
            joined.append(result)
        return leaves[0][1].rebuilt(iter(joined))

    def common(self, values: list[Value]) -> Any:
        """The common type of the values."""
        first, *others = (value.kind for value in values)
        for other in others:
            if other != first:
                first = self.module.typing.unify_types(first, other)
                if first is None or first == types.undefined:
                    raise TypingError(f"values of {', '.join(str(v.kind) for v in values)}")
        return first

    def _call(self, node: ast.Call) -> Value:
        function = self.value(node.func)
        if function.kind is not None:
            raise TypingError(f"{ast.unparse(node.func)} is not a function")
        values: list[Value] = []
        for item in node.args:
            if isinstance(item, ast.Starred):
                values += self.value(item.value).items or ()
            else:
                values.append(self.value(item))
        named = {item.arg or "": self.value(item.value) for item in node.keywords}
        return self.called(function.known, values, named)

    def called(
        self, function: Any, values: list[Value], named: dict[str, Value] | None = None
    ) -> Value:
        """The result of a call."""
        if isinstance(function, Inline):
            return self.module.call(self, function.py_func, values, named or {})
        assert not named, function
        if isinstance(function, _Intrinsic):
            outlined = getattr(function, "outlined", None)
            if outlined is not None:
                return self.module.call_outlined(self, outlined, values)
            return self._emitted(function, values)
        if isinstance(function, type) and hasattr(function, "_fields"):
            return row(values, function)
        if function is tuple:
            return values[0]
        if function is len and values[0].items is not None:
            return constant(len(values[0].items))
        if function is getattr:
            return self._member(values[0], values[1].known)
        if function in (min, max):
            return self._most(operator.lt if function is min else operator.gt, values)
        if function in (int, float, bool):
            typed, _ = self.module.known(function, (values[0].kind,))
            return self.cast(values[0], typed.return_type)
        if function in _CASTS:
            return self.cast(values[0], _CASTS[function])
        return self._of_numba(function, values)

    def _most(self, before: Callable, values: list[Value]) -> Value:
        """Python's min or max: the first of equal values, and NaN is never less."""
        kind = self.common(values)
        result, *others = (self.cast(value, kind) for value in values)
        for other in others:
            chosen = self.called(before, [other, result])
            if chosen.known is not None:
                result = other if chosen.known else result
            else:
                result = Value(kind, self.builder.select(chosen.text, other.text, result.text))
        return result

    def _emitted(self, intrinsic: Any, values: list[Value]) -> Value:
        """The instructions of an intrinsic (language/)."""
        kinds = tuple(value.kind for value in values)
        typed, codegen = self.module.intrinsic(intrinsic, kinds)
        made = [self.operand(self.cast(*pair)) for pair in zip(values, typed.args, strict=True)]
        return self.taken(typed.return_type, codegen(self.module.target, self.builder, typed, made))

    def _of_numba(self, function: Any, values: list[Value]) -> Value:
        if function in _FOLDED and all(
            value.known is not None and value.kind in (types.int64, types.boolean)
            for value in values
        ):
            result = constant(function(*(value.known for value in values)))
            if result.kind == types.boolean or abs(result.known) < 2**62:
                return result
        if any(value.kind is None or value.items is not None for value in values):
            raise TypingError(f"{function} of {[value.kind for value in values]}")
        typed, make = self.module.known(function, tuple(value.kind for value in values))
        made = [self.cast(*pair).text for pair in zip(values, typed.args, strict=True)]
        return Value(typed.return_type, make(self.builder, made))
