"""Values of kernels at compile time: numbers and vectors as LLVM values, tuples and records of
these, and values that are known already: integers, functions, classes."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.types import containers

_KNOWN = {bool: types.boolean, int: types.int64, float: types.float64}
_KNOWN |= {
    np.float32: types.float32,
    np.float64: types.float64,
    np.bool_: types.boolean,
    np.int32: types.int32,
    np.int64: types.int64,
    np.uint16: types.uint16,
    np.uint32: types.uint32,
    np.uint64: types.uint64,
}
NONE = types.none
I1, I64, VOID = ir.IntType(1), ir.IntType(64), ir.VoidType()


class Value:
    """The value of a name or an expression.

    Attributes:
      kind: its numba type; None for a function or another Python object.
      text: LLVM's value of a number, vector or buffer; None for others.
      items: of a tuple or record.
      known: a known number or boolean, or a Python object; None if unknown.
    """

    __slots__ = ("kind", "text", "items", "known")

    def __init__(
        self,
        kind: Any,
        text: Any = None,
        items: "Sequence[Value] | None" = None,
        known: Any = None,
    ) -> None:
        self.kind, self.text, self.items, self.known = kind, text, items, known

    @property
    def key(self) -> Any:
        """Equal for values that can share a compiled function."""
        if self.items is not None:
            record = getattr(self.kind, "instance_class", None)
            return record, tuple(item.key for item in self.items)
        if self.kind is None:
            return "object", id(self.known)
        return self.kind, self.known

    def leaves(self) -> "Iterator[Value]":
        """The parts that are passed as LLVM values: neither tuples nor known values."""
        if self.items is not None:
            for item in self.items:
                yield from item.leaves()
        elif self.kind is not None and self.kind != NONE and self.known is None:
            yield self

    def rebuilt(self, texts: Iterator[Any]) -> "Value":
        """The same value with other leaves."""
        if self.items is not None:
            return Value(self.kind, items=[item.rebuilt(texts) for item in self.items])
        if next(self.leaves(), None) is None:
            return self
        return Value(self.kind, next(texts))

    def forgotten(self) -> "Value":
        """The same value with no number known."""
        if self.items is not None:
            return Value(self.kind, items=[item.forgotten() for item in self.items])
        return self if self.kind is None else Value(self.kind, self.text)


NOTHING = Value(NONE)


def row(items: Sequence[Value], record: type | None = None) -> Value:
    """A tuple or a record of values."""
    kinds = [item.kind if item.kind is not None else NONE for item in items]
    return Value(containers.BaseTuple.from_types(kinds, record or tuple), items=list(items))


def constant(thing: Any) -> Value:
    """A Python object as a kernel's value."""
    kind = _KNOWN.get(type(thing))
    if kind is not None:
        if type(thing) is int and thing >= 2**63:
            kind = types.uint64
        return number(kind, thing)
    if thing is None:
        return NOTHING
    if isinstance(thing, tuple):
        record = type(thing) if hasattr(thing, "_fields") else None
        return row([constant(item) for item in thing], record)
    return Value(None, known=thing)


def module_of(name: str) -> ir.Module:
    """A module without functions."""
    return ir.Module(name)


def function_of(module: ir.Module, name: str, kinds: Sequence[ir.Type]) -> ir.Function:
    """A function without blocks; it returns nothing until `set_return_types` is called."""
    return ir.Function(module, ir.FunctionType(VOID, kinds), name)


def set_return_types(function: ir.Function, kinds: Sequence[ir.Type]) -> None:
    """Make a function return values of these types."""
    if kinds:
        kind = kinds[0] if len(kinds) == 1 else together(kinds)
        function.ftype.return_type = kind
        function.return_value = ir.values.ReturnValue(function, kind)


def builder_at(block: ir.Block) -> ir.IRBuilder:
    """A builder that appends instructions to a block."""
    return ir.IRBuilder(block)


def undefined(kind: ir.Type) -> ir.Constant:
    """An LLVM value that is yet to be set."""
    return ir.Constant(kind, ir.Undefined)


def together(kinds: Sequence[ir.Type]) -> ir.Type:
    """The type in which an LLVM function returns several values."""
    return ir.LiteralStructType(kinds)


def number(kind: Any, value: Any) -> Value:
    """A known number."""
    if kind == types.boolean:
        return Value(kind, ir.Constant(I1, int(value)), known=bool(value))
    if isinstance(kind, types.Integer):
        text = ir.Constant(ir.IntType(kind.bitwidth), int(value))  # type: ignore[attr-defined]
        return Value(kind, text, known=int(value) if kind == types.int64 else None)
    real = ir.FloatType() if kind == types.float32 else ir.DoubleType()
    return Value(kind, ir.Constant(real, float(value)))


def parameters_of(function: Any) -> list[str]:
    """Names of a function's parameters."""
    code = function.__code__
    assert not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS), function
    return list(code.co_varnames[: code.co_argcount])
