"""Numbers and vectors of numbers: one arithmetic for both.

A vector is an ordinary local variable of a kernel with the operators of a number: `+ - * /`, `-x`,
comparisons, which give a mask, and `& | ~` of masks. A number beside a vector stands for every
lane. `where`, `fma`, and what `lanewise` makes take either, so that a function written once serves
float32 and vectors of it, with the same bits in each lane: LLVM splits a vector where registers are
narrower, and no operation here crosses lanes.
"""

import inspect
import operator
from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import datamodel
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, register_model

F32, F64, F16 = ir.FloatType(), ir.DoubleType(), ir.HalfType()
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_LLVM = {types.float32: F32, types.float64: F64, types.boolean: ir.IntType(1)}


class Vector(types.Type):
    """A vector of `width` float32, float64 or booleans (a mask)."""

    def __init__(self, element: types.Type, width: int) -> None:
        super().__init__(name=f"{element}x{width}")
        self.element, self.width = element, width


@register_model(Vector)
class _VectorModel(datamodel.PrimitiveModel):
    def __init__(self, manager, fe_type) -> None:
        kind = ir.VectorType(_LLVM[fe_type.element], fe_type.width)
        super().__init__(manager, fe_type, kind)


def of(value, element) -> ir.Type:
    """The LLVM type of as many `element` as a value has lanes."""
    count = getattr(value.type, "count", 0)
    return ir.VectorType(element, count) if count else element


def like(value, number) -> ir.Constant:
    """A number known when the kernel is compiled, in each lane of a type like the value's."""
    count = getattr(value.type, "count", 0)
    return ir.Constant(value.type, [number] * count if count else number)


def copies(builder, scalar, width: int):
    """A vector of copies of a scalar."""
    nothing = ir.Constant(ir.VectorType(scalar.type, width), ir.Undefined)
    first = builder.insert_element(nothing, scalar, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, width), [0] * width)
    return builder.shuffle_vector(first, nothing, zeros)


def _common(kinds):
    """What these numbers and vectors become together; None where they do not fit."""
    vectors = {kind for kind in kinds if isinstance(kind, Vector)}
    if not vectors:
        return kinds[0] if len(set(kinds)) == 1 else None
    if len(vectors) > 1:
        return None
    (one,) = vectors
    return one if {kind for kind in kinds if kind != one} <= {one.element} else None


def _spread(builder, kinds, values, common):
    """The values, each as `common` is."""
    wide = isinstance(common, Vector)
    return [
        copies(builder, value, common.width) if wide and kind != common else value
        for kind, value in zip(kinds, values, strict=True)
    ]


def _intrinsic(count: int, definition: Callable, text: str):
    """An intrinsic of so many operands; `definition` takes their types."""

    def typed(typingctx, *kinds):
        return definition(*kinds)

    names = ("typingctx", *"abcdefgh"[:count])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    vars(typed).update(__signature__=given)
    typed.__doc__ = text
    return intrinsic(typed)


def lanewise(count: int, emit: Callable, text: str = ""):
    """An intrinsic of `count` numbers or vectors; `emit(builder, *values)` is given them alike."""

    def definition(*kinds):
        common = _common(kinds)
        if common is None:
            return None

        def codegen(context, builder, sig, args):
            return emit(builder, *_spread(builder, kinds, args, common))

        return common(*kinds), codegen

    return _intrinsic(count, definition, text)


def _called(builder, name: str, args):
    """LLVM's intrinsic of operands that are all alike."""
    kind = args[0].type
    count = getattr(kind, "count", 0)
    suffix = f"v{count}{kind.element.intrinsic_name}" if count else kind.intrinsic_name
    known = builder.module.globals.get(f"llvm.{name}.{suffix}")
    signature = ir.FunctionType(kind, [kind] * len(args))
    return builder.call(
        known or ir.Function(builder.module, signature, f"llvm.{name}.{suffix}"), args
    )


def llvm_function(name: str):
    """The intrinsic of LLVM of this name, of one number or vector."""
    return lanewise(1, lambda builder, value: _called(builder, name, [value]))


def fused(builder, a, b, c):
    """a * b + c in each lane, rounded once."""
    return _called(builder, "fma", [a, b, c])


fma = lanewise(3, fused, "a * b + c rounded once.")


def _choice(condition, yes, no):
    common = _common((yes, no))
    masked = isinstance(condition, Vector)
    if common is None or not (masked or condition == types.boolean):
        return None
    if masked and not isinstance(common, Vector):
        common = Vector(common, condition.width)

    def codegen(context, builder, sig, args):
        chosen = _spread(builder, (yes, no), args[1:], common)
        return builder.select(args[0], *chosen)

    return common(condition, yes, no), codegen


where = _intrinsic(3, _choice, "(condition or mask, a, b) -> a where it holds, else b.")


def _alike(value, number):
    common = _common((value, number))
    if common != value:
        return None

    def codegen(context, builder, sig, args):
        return _spread(builder, (value, number), args, common)[1]

    return common(value, number), codegen


alike = _intrinsic(2, _alike, "(value, number) -> the number, in every lane where value has lanes.")


def _operator(symbol: Callable, emit: Callable, *, compares: bool = False) -> None:
    """Let vectors have a binary operator."""

    @infer_global(symbol)
    class _Typed(AbstractTemplate):
        def generic(self, args, kws):
            if kws or len(args) != 2 or not any(isinstance(kind, Vector) for kind in args):
                return None
            common = _common(args)
            if common is None:
                return None
            result = Vector(types.boolean, common.width) if compares else common
            return signature(result, *args)

    def lowered(context, builder, sig, args):
        return emit(builder, *_spread(builder, sig.args, args, _common(sig.args)))

    for kinds in ((Vector, Vector), (Vector, types.Float), (types.Float, Vector)):
        lower_builtin(symbol, *kinds)(lowered)


def _negation(symbol: Callable, emit: Callable) -> None:
    @infer_global(symbol)
    class _Typed(AbstractTemplate):
        def generic(self, args, kws):
            one = len(args) == 1 and isinstance(args[0], Vector)
            return signature(args[0], *args) if one else None

    lower_builtin(symbol, Vector)(lambda context, builder, sig, args: emit(builder, args[0]))


def _comparison(sign: str, *, ordered: bool = True) -> Callable:
    if ordered:
        return lambda builder, a, b: builder.fcmp_ordered(sign, a, b)
    return lambda builder, a, b: builder.fcmp_unordered(sign, a, b)


_operator(operator.add, lambda builder, a, b: builder.fadd(a, b))
_operator(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_operator(operator.mul, lambda builder, a, b: builder.fmul(a, b))
_operator(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))
for _symbol, _sign in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
):
    _operator(_symbol, _comparison(_sign), compares=True)
_operator(operator.ne, _comparison("!=", ordered=False), compares=True)
_operator(operator.and_, lambda builder, a, b: builder.and_(a, b))
_operator(operator.or_, lambda builder, a, b: builder.or_(a, b))
_negation(operator.neg, lambda builder, value: builder.fneg(value))
_negation(operator.invert, lambda builder, value: builder.not_(value))
