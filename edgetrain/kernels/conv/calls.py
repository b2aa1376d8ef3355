"""Functions of their own, not inlined, that take records (conv/records.py) and numbers.

A record is passed as its numbers, one by one, as if they were the function's parameters.
"""

from typing import Any, get_type_hints

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _kind(annotation: Any) -> types.Type:
    """A parameter's type: a record's by its fields, float32, else int64."""
    if not hasattr(annotation, "_fields"):
        return types.float32 if annotation is np.float32 else types.int64
    fields = [_kind(field) for field in get_type_hints(annotation).values()]
    return types.BaseTuple.from_types(fields, annotation)


def _intrinsic(name: str, parameters: dict[str, Any], emit):
    """An intrinsic of these parameters (name: annotation) that calls the function `name`.

    emit(context, builder, kinds, values) writes its body.
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


def outline(name: str, function):
    """An intrinsic that calls a Python function; parameters without annotation are int64.

    It is compiled once for a kernel, which keeps large kernels quick to compile and their
    registers free. `name` begins with et_ and is the function's alone.
    """
    code, hints = function.__code__, get_type_hints(function)
    parameters = {p: hints.get(p, int) for p in code.co_varnames[: code.co_argcount]}

    def emit(context, builder, kinds, values):
        signature = types.void(*kinds)
        compiled = context.compile_subroutine(builder, function, signature)
        context.call_internal_no_propagate(builder, compiled.fndesc, signature, values)

    return _intrinsic(name, parameters, emit)


def emitted(name: str, parameters: dict[str, Any], emit):
    """An intrinsic that calls a function written by emit(builder, *values), records by field.

    The inner loops need every register: inlined in a large kernel they spill.
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
