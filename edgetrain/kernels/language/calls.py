"""Functions that kernels call: their own non-inlined functions, and C functions by address.

A record (a NamedTuple) is passed to a kernel's own function field by field, as if the fields were
parameters. Addresses are int64.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .prim import I32, I64, POINTER
from .vector import define


def _kind(annotation: Any) -> types.Type:
    """A parameter's numba type: a tuple of field types for a record, else float32 or int64."""
    if not hasattr(annotation, "_fields"):
        return types.float32 if annotation is np.float32 else types.int64
    fields = [_kind(field) for field in get_type_hints(annotation).values()]
    return types.BaseTuple.from_types(fields, annotation)


def _intrinsic(name: str, parameters: dict[str, Any], emit):
    """An intrinsic with these parameters (name: annotation) that calls the function `name`.

    emit(context, builder, kinds, values) writes the function's body.
    """
    kinds = [_kind(annotation) for annotation in parameters.values()]
    signature = types.void(*kinds)
    scope: dict = {}

    def codegen(context, builder, sig, args):
        packer = context.get_arg_packer(kinds)
        function = builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), packer.argument_types)
            function = ir.Function(builder.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            inner = ir.IRBuilder(function.append_basic_block("entry"))
            emit(context, inner, kinds, packer.from_arguments(inner, function.args))
            inner.ret_void()
        builder.call(function, packer.as_arguments(builder, args))
        return context.get_dummy_value()

    exec(
        f"def operation(typingctx, {', '.join(parameters)}):\n    return signature, codegen\n",
        {"signature": signature, "codegen": codegen},
        scope,
    )
    return intrinsic(scope["operation"])


class Outlined(NamedTuple):
    """A function that kernels call, and the types of its arguments."""

    name: str
    function: Callable
    kinds: Sequence[types.Type]


def outline(name: str, function):
    """An intrinsic that calls a Python function; parameters without annotation are int64.

    The function is compiled once per kernel. Large kernels compile faster that way, and keep more
    registers free. `name` begins with et_ and must be unique to the function.
    """
    code, hints = function.__code__, get_type_hints(function)
    parameters = {p: hints.get(p, int) for p in code.co_varnames[: code.co_argcount]}
    kinds = [_kind(annotation) for annotation in parameters.values()]

    def emit(context, builder, kinds, values):
        signature = types.void(*kinds)
        compiled = context.compile_subroutine(builder, function, signature)
        context.call_internal_no_propagate(builder, compiled.fndesc, signature, values)

    made = _intrinsic(name, parameters, emit)
    made.outlined = Outlined(name, function, kinds)
    return made


def emitted(name: str, parameters: dict[str, Any], emit):
    """An intrinsic that calls a function written by emit(builder, *values), with records as fields.

    The inner loops need every register: inlined in a large kernel, they would spill.
    """

    def write(context, builder, kinds, values):
        fields = [
            kind.instance_class(*(builder.extract_value(value, i) for i in range(len(kind))))
            if isinstance(kind, types.BaseNamedTuple)
            else value
            for kind, value in zip(kinds, values, strict=True)
        ]
        emit(builder, *fields)

    return _intrinsic(name, parameters, write)


# C types of parameters and results; in kernels, each is an int64.
_C = {"void": ir.VoidType(), "void*": POINTER, "int": I32, "uint32_t": I32, "int64_t": I64}


def _given(builder, value, kind):
    if kind is POINTER:
        return builder.inttoptr(value, POINTER)
    return builder.trunc(value, I32) if kind is I32 else value


@functools.cache
def c_function(result: str, *parameters: str):
    """(address, ...) -> result of the C function at an address: `int` as int64, nothing for `void`.

    Args:
      result, parameters: C types: void, void*, int, uint32_t, int64_t.
    """
    back, kinds = _C[result], [_C[name] for name in parameters]

    def emit(builder, args):
        target = builder.inttoptr(args[0], ir.FunctionType(back, kinds).as_pointer())
        given = [_given(builder, v, kind) for v, kind in zip(args[1:], kinds, strict=True)]
        value = builder.call(target, given)
        if result == "void":
            return None
        return builder.sext(value, I64) if back is I32 else value

    returned = types.void if result == "void" else types.int64
    return define(returned(*[types.int64] * (1 + len(kinds))), emit)


# (address, base, args, thread, nthreads): a kernel's entry
call_entry = c_function("void", *["int64_t"] * 4)


def _pointer_place(builder, address, index):
    return builder.gep(builder.inttoptr(address, POINTER), [index], source_etype=POINTER)


def _load_pointer(builder, args):
    return builder.ptrtoint(builder.load(_pointer_place(builder, *args), typ=POINTER), I64)


def _store_pointer(builder, args):
    place = _pointer_place(builder, *args[:2])
    builder.store(builder.inttoptr(args[2], POINTER), place)


# pointer number `index` of an array `void *[]`, as an address
load_pointer = define(types.int64(types.int64, types.int64), _load_pointer)
# (array, index, address)
store_pointer = define(types.void(types.int64, types.int64, types.int64), _store_pointer)


def _shared(builder, address):
    """Pointer to a 32-bit word shared by several threads."""
    return builder.inttoptr(address, I32.as_pointer())


@functools.cache
def load_shared(ordering: str):
    """(address) -> int32 that other threads write; with seq_cst, it is loaded after all earlier
    stores of this thread."""

    def emit(builder, args):
        place = _shared(builder, args[0])
        if ordering == "seq_cst":
            builder.fence(ordering)
        kind = "monotonic" if ordering == "seq_cst" else ordering
        return builder.sext(builder.load_atomic(place, kind, 4, typ=I32), I64)

    return define(types.int64(types.int64), emit)


@functools.cache
def store_shared(ordering: str):
    """(address, value): store an int32 that other threads read."""

    def emit(builder, args):
        place = _shared(builder, args[0])
        builder.store_atomic(builder.trunc(args[1], I32), place, ordering, 4)

    return define(types.void(types.int64, types.int64), emit)


@functools.cache
def add_shared(ordering: str):
    """(address, number) -> the int32 at an address before the number is added to it."""

    def emit(builder, args):
        place, number = _shared(builder, args[0]), builder.trunc(args[1], I32)
        return builder.sext(builder.atomic_rmw("add", place, number, ordering), I64)

    return define(types.int64(types.int64, types.int64), emit)
