"""Intrinsics called from plain Python.

An intrinsic is typed as in numba and emits its instructions once for these types; they are then
interpreted (instructions.py). Values are numpy's numbers, tuples, records, `Vector` and `Address`.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target

from ..language import number
from .instructions import Machine, Translation
from .lanes import Lanes, Partly, lanewise

_KINDS = {
    int: types.int64, float: types.float64, bool: types.boolean, np.bool_: types.boolean,
    np.int64: types.int64, np.uint32: types.uint32, np.uint16: types.uint16,
    np.float32: types.float32, np.float64: types.float64, np.int32: types.int32,
    np.uint64: types.uint64, np.uint8: types.uint8,
}  # fmt: skip
_NUMBERS = {kind: value for value, kind in _KINDS.items() if value not in (int, float, bool)}


class Address(int):
    """Address of a buffer on the stack; numba's voidptr."""


def kind_of(value: Any) -> types.Type:
    """numba's type of a value."""
    result = _KINDS.get(type(value))
    if result is not None:
        return result
    if isinstance(value, Vector):
        return value.kind
    if isinstance(value, Partly):
        return _KINDS[value.dtype.type]
    if isinstance(value, Address):
        return types.voidptr
    if isinstance(value, tuple):
        record = hasattr(value, "_fields")
        members = [kind_of(member) for member in value]
        return types.BaseTuple.from_types(members, type(value) if record else tuple)
    raise TypeError(f"{type(value).__name__} {value!r} can't be used in kernels")


def _same(value: Any) -> Any:
    return value


def lowering(kind: types.Type) -> Callable:
    """The function that converts a value for instructions, as numba does."""
    if isinstance(kind, types.BaseTuple):
        members = [lowering(member) for member in kind]
        return lambda value: tuple(m(v) for m, v in zip(members, value, strict=True))
    if isinstance(kind, number.Vector):
        return lambda vector: vector.lanes
    if kind == types.voidptr:
        return np.int64
    wanted = _NUMBERS[kind]
    if np.dtype(wanted).kind != "u":
        return lanewise(wanted)
    signed = f"i{np.dtype(wanted).itemsize}"
    return lanewise(lambda value: wanted(value).view(signed))


def raising(kind: types.Type) -> Callable:
    """The function that converts an instruction's value for kernels."""
    if kind in (types.none, types.void):
        return lambda value: None
    if isinstance(kind, types.BaseTuple):
        members = [raising(member) for member in kind]
        record = getattr(kind, "instance_class", lambda *values: values)
        return lambda value: record(*(m(v) for m, v in zip(members, value, strict=True)))
    if isinstance(kind, number.Vector):
        return lambda lanes: Vector(lanes, kind)
    if kind == types.voidptr:
        return Address
    wanted = _NUMBERS[kind]
    return lanewise(lambda value: value.view(wanted)) if np.dtype(wanted).kind == "u" else _same


class _Context:
    """numba's target context for intrinsics, but calls of Python functions stay Python calls."""

    def __init__(self, interpreted: Callable) -> None:
        self._interpreted, self._target = interpreted, _target()
        self.outside: dict[str, Callable] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def compile_subroutine(self, builder, function, signature, **options):
        return _Subroutine(self._interpreted(function))

    def call_internal_no_propagate(self, builder, compiled, signature, values):
        name = f"python.{len(self.outside)}"
        kinds = [self._target.get_value_type(kind) for kind in signature.args]
        declared = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), kinds), name)

        members = [raising(kind) for kind in signature.args]

        def call(*numbers):
            compiled.function(*(m(v) for m, v in zip(members, numbers, strict=True)))

        self.outside[name] = call
        return None, builder.call(declared, values)


class _Subroutine:
    def __init__(self, function: Callable) -> None:
        self.function, self.fndesc = function, self


@functools.cache
def _target():
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    return cpu_target.target_context


def _intrinsic(intrinsic, kinds):
    """Signature and code of an intrinsic for these operand types; None if it doesn't take them."""
    return intrinsic._defn(cpu_target.typing_context, *kinds)


def _operator(symbol, kinds):
    """The same for an operator that the language defines for vectors."""
    target = _target()
    typed = cpu_target.typing_context.resolve_function_type(symbol, tuple(kinds), {})
    if typed is None:
        return None
    implementation = target.get_function(symbol, typed)

    def codegen(context, builder, sig, args):
        with target.push_code_library(None):  # nothing is linked
            return implementation(builder, args)

    return typed, codegen


class Running:
    """The machine that is interpreting now, and the function that makes interpreted functions."""

    machine: Machine | None = None
    interpreted: Callable = staticmethod(lambda function: function)


class Intrinsic:
    """An intrinsic of the language, or an operator of vectors, that Python can call.

    Args:
      thing: numba's intrinsic, or the operator.
      definition: (thing, types) -> its signature and code; None if it does not accept these types.
    """

    def __init__(self, thing: Any, definition: Callable = _intrinsic) -> None:
        self.thing, self.definition = thing, definition
        self._known: dict[tuple, tuple[list[Callable], Callable, Callable]] = {}

    def __call__(self, *values: Any) -> Any:
        key = tuple([type(v) if type(v) in _KINDS else kind_of(v) for v in values])
        if key not in self._known:
            self._known[key] = self._translated(tuple(map(kind_of, values)))
        converters, function, result = self._known[key]
        numbers = [convert(v) for convert, v in zip(converters, values, strict=True)]
        return result(function(Running.machine, *numbers))

    def __repr__(self) -> str:
        return f"<intrinsic {getattr(self.thing, '_name', self.thing)}>"

    def _translated(self, kinds: tuple) -> tuple[list[Callable], Callable, Callable]:
        result = self.definition(self.thing, kinds)
        if result is None:
            raise TypeError(
                f"{self!r} does not accept operands of types {', '.join(map(str, kinds))}"
            )
        signature, codegen = result
        context, module = _Context(Running.interpreted), ir.Module()
        given = [context.get_value_type(kind) for kind in signature.args]
        void = signature.return_type in (types.none, types.void)
        back = ir.VoidType() if void else context.get_value_type(signature.return_type)
        function = ir.Function(module, ir.FunctionType(back, given), "word")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        value = codegen(context, builder, signature, function.args)
        builder.ret_void() if void else builder.ret(value)
        run = Translation(function, context.outside, top=True).translated()
        return [lowering(k) for k in signature.args], run, raising(signature.return_type)


intrinsic_of = functools.cache(Intrinsic)


def _infix(symbol: Callable, turned: bool = False) -> Callable:
    """An operator of vectors, as the language defines it (language/number.py)."""
    intrinsic = Intrinsic(symbol, _operator)
    return (lambda self, other: intrinsic(other, self)) if turned else lambda a, b: intrinsic(a, b)


def _prefix(symbol: Callable) -> Callable:
    intrinsic = Intrinsic(symbol, _operator)
    return lambda self: intrinsic(self)


class Vector:
    """A vector of numbers or a mask.

    Attributes:
      lanes: its values; some may be undefined.
      kind: its numba type.
    """

    __slots__ = ("lanes", "kind")
    __array_ufunc__ = None  # numpy's numbers leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, lanes: Lanes, kind: number.Vector) -> None:
        self.lanes, self.kind = lanes, kind

    def __repr__(self) -> str:
        return f"{self.kind.name} {self.lanes}"

    def __bool__(self) -> bool:
        raise TypeError("a vector has no truth value: use `where`")

    __add__, __radd__ = _infix(operator.add), _infix(operator.add, True)
    __sub__, __rsub__ = _infix(operator.sub), _infix(operator.sub, True)
    __mul__, __rmul__ = _infix(operator.mul), _infix(operator.mul, True)
    __truediv__, __rtruediv__ = _infix(operator.truediv), _infix(operator.truediv, True)
    __lt__, __le__ = _infix(operator.lt), _infix(operator.le)
    __gt__, __ge__ = _infix(operator.gt), _infix(operator.ge)
    __eq__, __ne__ = _infix(operator.eq), _infix(operator.ne)  # type: ignore[assignment]
    __and__, __rand__ = _infix(operator.and_), _infix(operator.and_, True)
    __or__, __ror__ = _infix(operator.or_), _infix(operator.or_, True)
    __xor__, __rxor__ = _infix(operator.xor), _infix(operator.xor, True)
    __lshift__, __rshift__ = _infix(operator.lshift), _infix(operator.rshift)
    __neg__, __invert__ = _prefix(operator.neg), _prefix(operator.invert)
