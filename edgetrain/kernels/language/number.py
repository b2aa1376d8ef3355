"""Numbers and vectors of numbers: one arithmetic for both.

A vector is an ordinary local variable of a kernel with the operators of a number: `+ - * /`, `-x`,
comparisons, which give a mask, and `& | ~` of masks. Integer lanes have `+ - *`, `& | ^ << >>` and
comparisons, and wrap around; `>>` and `<` are signed if the type is. A number combined with a
vector is used in every lane. `where`, `fma` and intrinsics made by `lanewise` take either, so a
function written once works for float32 and for vectors of it, with the same bits in each lane: LLVM
splits a vector if registers are narrower. Only `shuffled` and `lane` cross lanes.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Sequence

from llvmlite import ir
from numba import types
from numba.core import datamodel
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, register_model

F32, F64, F16 = ir.FloatType(), ir.DoubleType(), ir.HalfType()
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_LLVM = {
    types.float16: F16, types.float32: F32, types.float64: F64, types.boolean: ir.IntType(1),
    types.int8: I8, types.uint8: I8, types.int16: I16, types.uint16: I16, types.int32: I32,
    types.uint32: I32, types.int64: I64, types.uint64: I64,
}  # fmt: skip
_KINDS = {str(kind): kind for kind in _LLVM}


class Vector(types.Type):
    """A vector of `width` numbers of a type, or of booleans (a mask)."""

    def __init__(self, element: types.Type, width: int) -> None:
        super().__init__(name=f"{element}x{width}")
        self.element, self.width = element, width


def vector_of(kind: Vector) -> ir.VectorType:
    """The LLVM type of a vector."""
    return ir.VectorType(_LLVM[kind.element], kind.width)


@register_model(Vector)
class _VectorModel(datamodel.PrimitiveModel):
    def __init__(self, manager, fe_type) -> None:
        super().__init__(manager, fe_type, vector_of(fe_type))


def of(value, element) -> ir.Type:
    """The LLVM type with `element` in each of the value's lanes."""
    count = getattr(value.type, "count", 0)
    return ir.VectorType(element, count) if count else element


def like(value, number) -> ir.Constant:
    """A constant number in each lane of the value's type."""
    count = getattr(value.type, "count", 0)
    return ir.Constant(value.type, [number] * count if count else number)


def copies(builder, scalar, width: int):
    """A vector of copies of a scalar."""
    nothing = ir.Constant(ir.VectorType(scalar.type, width), ir.Undefined)
    first = builder.insert_element(nothing, scalar, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, width), [0] * width)
    return builder.shuffle_vector(first, nothing, zeros)


def _fits(number, vector) -> bool:
    """Whether a number can be used in every lane: it has the lanes' type, or both are integers and
    it is at least as wide; its low bits are taken."""
    integers = isinstance(vector.element, types.Integer) and isinstance(number, types.Integer)
    return number == vector.element or integers and number.bitwidth >= vector.element.bitwidth


def _common(kinds):
    """The common type of these numbers and vectors; None if they do not fit together."""
    vectors = {kind for kind in kinds if isinstance(kind, Vector)}
    if not vectors:
        return kinds[0] if len(set(kinds)) == 1 else None
    if len(vectors) > 1:
        return None
    (widest,) = vectors
    return widest if all(kind == widest or _fits(kind, widest) for kind in kinds) else None


def _in_every_lane(builder, number, vector):
    element = _LLVM[vector.element]
    low = number if number.type == element else builder.trunc(number, element)
    return copies(builder, low, vector.width)


def _spread(builder, kinds, values, common):
    """The values converted to the type `common`."""
    wide = isinstance(common, Vector)
    return [
        _in_every_lane(builder, value, common) if wide and kind != common else value
        for kind, value in zip(kinds, values, strict=True)
    ]


def _intrinsic(count: int, definition: Callable, text: str):
    """An intrinsic with `count` operands; `definition` takes their types."""

    def typed(typingctx, *kinds):
        return definition(*kinds)

    names = ("typingctx", *"abcdefgh"[:count])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    vars(typed).update(__signature__=given)
    typed.__doc__ = text
    return intrinsic(typed)


def _element(kind):
    return kind.element if isinstance(kind, Vector) else kind


def lanewise(count: int, emit: Callable, text: str = ""):
    """An intrinsic of `count` numbers or vectors; `emit(builder, *values)` gets them converted to
    one type."""

    def definition(*kinds):
        common = _common(kinds)
        if common is None:
            return None

        def codegen(context, builder, sig, args):
            return emit(builder, *_spread(builder, kinds, args, common))

        return common(*kinds), codegen

    return _intrinsic(count, definition, text)


def lanewise_of(kinds: Sequence[str], result: str, emit: Callable, text: str = ""):
    """An intrinsic of numbers of these types, or of vectors of them with equal lane counts.
    `emit(builder, *values)` returns numbers of the type `result`."""
    elements, back = [_KINDS[name] for name in kinds], _KINDS[result]

    def definition(*given):
        widths = {getattr(kind, "width", 0) for kind in given}
        if widths == {0}:
            typed = back(*elements)  # numbers of other types are converted
        elif len(widths) == 1 and [_element(kind) for kind in given] == elements:
            typed = Vector(back, *widths)(*given)
        else:
            return None

        def codegen(context, builder, sig, args):
            return emit(builder, *args)

        return typed, codegen

    return _intrinsic(len(elements), definition, text)


def _called(builder, name: str, args, flags: Sequence[str] = ()):
    """Call LLVM's intrinsic on operands of one type."""
    kind = args[0].type
    count = getattr(kind, "count", 0)
    suffix = f"v{count}{kind.element.intrinsic_name}" if count else kind.intrinsic_name
    known = builder.module.globals.get(f"llvm.{name}.{suffix}")
    signature = ir.FunctionType(kind, [kind] * len(args))
    return builder.call(
        known or ir.Function(builder.module, signature, f"llvm.{name}.{suffix}"),
        args,
        fastmath=flags,
    )


def llvm_function(name: str):
    """LLVM's intrinsic of this name, for one number or vector."""
    return lanewise(1, lambda builder, value: _called(builder, name, [value]))


def fused(builder, a, b, c):
    """a * b + c in each lane, rounded once."""
    return _called(builder, "fma", [a, b, c])


def _always_fused(builder, a, b, c):
    return _called(builder, "fma", [a, b, c], [ALWAYS])


fma = lanewise(3, fused, "a * b + c rounded once, or twice where a Program's arithmetic says so.")
# A flag without effect on this instruction: emission/separate.py skips instructions with it.
ALWAYS = "arcp"
fma_always = lanewise(
    3, _always_fused, "a * b + c rounded once in any arithmetic: most of it cancels."
)


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
    """Give vectors a binary operator. `emit(element)` returns the emitter for lanes of a type, None
    if they have no such operator."""

    @infer_global(symbol)
    class _Typed(AbstractTemplate):
        def generic(self, args, kws):
            if kws or len(args) != 2 or not any(isinstance(kind, Vector) for kind in args):
                return None
            kinds = [types.unliteral(kind) for kind in args]
            common = _common(kinds)
            if common is None or emit(common.element) is None:
                return None
            result = Vector(types.boolean, common.width) if compares else common
            return signature(result, *kinds)

    def lowered(context, builder, sig, args):
        common = _common(sig.args)
        return emit(common.element)(builder, *_spread(builder, sig.args, args, common))

    lower_builtin(symbol, Vector, Vector)(lowered)
    for number in (types.Float, types.Integer, types.Boolean):
        lower_builtin(symbol, Vector, number)(lowered)
        lower_builtin(symbol, number, Vector)(lowered)


def _negation(symbol: Callable, emit: Callable) -> None:
    @infer_global(symbol)
    class _Typed(AbstractTemplate):
        def generic(self, args, kws):
            is_one = len(args) == 1 and isinstance(args[0], Vector)
            return signature(args[0], *args) if is_one and emit(args[0].element) else None

    def lowered(context, builder, sig, args):
        return emit(sig.args[0].element)(builder, args[0])

    lower_builtin(symbol, Vector)(lowered)


def _instruction(floats: str, integers: str, masks: str = "", unsigned: str = "") -> Callable:
    """Selects a builder method by the lanes' type; "" if there is none."""

    def emit(element):
        if isinstance(element, types.Float):
            name = floats
        elif isinstance(element, types.Integer):
            name = integers if element.signed or not unsigned else unsigned
        else:
            name = masks
        return (lambda builder, *values: getattr(builder, name)(*values)) if name else None

    return emit


def _comparison(sign: str) -> Callable:
    def emit(element):
        if isinstance(element, types.Float):
            kind = "fcmp_unordered" if sign == "!=" else "fcmp_ordered"
        elif isinstance(element, types.Integer):
            kind = "icmp_signed" if element.signed else "icmp_unsigned"
        else:
            return None
        return lambda builder, a, b: getattr(builder, kind)(sign, a, b)

    return emit


for _symbol, _emit in (
    (operator.add, _instruction("fadd", "add")),
    (operator.sub, _instruction("fsub", "sub")),
    (operator.mul, _instruction("fmul", "mul")),
    (operator.truediv, _instruction("fdiv", "")),
    (operator.and_, _instruction("", "and_", "and_")),
    (operator.or_, _instruction("", "or_", "or_")),
    (operator.xor, _instruction("", "xor", "xor")),
    (operator.lshift, _instruction("", "shl")),
    (operator.rshift, _instruction("", "ashr", unsigned="lshr")),
):
    _operator(_symbol, _emit)
for _symbol, _sign in (
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
    (operator.eq, "=="),
    (operator.ne, "!="),
):
    _operator(_symbol, _comparison(_sign), compares=True)
_negation(operator.neg, _instruction("fneg", "neg"))
_negation(operator.invert, _instruction("", "not_", "not_"))


def _change_of(source, target) -> str:
    """The instruction that converts numbers of one type to another."""
    to_integer, from_whole = (isinstance(kind, types.Integer) for kind in (target, source))
    if to_integer and from_whole:
        if source.bitwidth == target.bitwidth:
            return "bitcast"
        if source.bitwidth > target.bitwidth:
            return "trunc"
        return "sext" if source.signed else "zext"
    if to_integer:
        return "fptosi" if target.signed else "fptoui"
    if from_whole:
        return "sitofp" if source.signed else "uitofp"
    if source.bitwidth == target.bitwidth:
        return "bitcast"
    return "fptrunc" if source.bitwidth > target.bitwidth else "fpext"


def _turned(element: str, instruction: Callable, text: str):
    kind = _KINDS[element]

    def definition(value):
        name = instruction(_element(value), kind)
        result = Vector(kind, value.width) if isinstance(value, Vector) else kind

        def codegen(context, builder, sig, args):
            return getattr(builder, name)(args[0], of(args[0], _LLVM[kind]))

        return result(value), codegen

    return _intrinsic(1, definition, text)


@functools.cache
def to(element: str):
    """(value) -> the numbers converted to a type, such as float64; to integers, by truncation."""
    return _turned(element, _change_of, "The numbers as those of another type.")


@functools.cache
def bits_as(element: str):
    """(value) -> the same bits as numbers of another type of the same size."""
    return _turned(element, lambda source, target: "bitcast", "Bits as another type.")


@functools.cache
def lanes_of(element: str, width: int, numbers: tuple | None = None):
    """() -> a vector of these numbers; by default 0, 1, 2, .., the lane indices."""
    kind = Vector(_KINDS[element], width)
    given = list(range(width) if numbers is None else numbers)

    def codegen(context, builder, sig, args):
        return ir.Constant(vector_of(kind), given)

    return _intrinsic(0, lambda: (kind(), codegen), "A vector of numbers that are known.")


@functools.cache
def shuffled(lanes: tuple[int, ...]):
    """(a, b) -> these lanes of a and b; b's lanes are numbered after a's."""

    def definition(a, b):
        if not isinstance(a, Vector) or a != b:
            return None

        def codegen(context, builder, sig, args):
            mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
            return builder.shuffle_vector(*args, mask)

        return Vector(a.element, len(lanes))(a, b), codegen

    return _intrinsic(2, definition, "Lanes of two vectors.")


@functools.cache
def lane(number: int):
    """(vector) -> the number in this lane."""

    def definition(value):
        if not isinstance(value, Vector):
            return None

        def codegen(context, builder, sig, args):
            return builder.extract_element(args[0], I32(number))

        return value.element(value), codegen

    return _intrinsic(1, definition, "The number in one lane.")


def _together(*numbers):
    (kind,) = set(numbers) if len(set(numbers)) == 1 else (None,)
    if kind is None or isinstance(kind, Vector):
        return None

    def codegen(context, builder, sig, args):
        value = ir.Constant(ir.VectorType(args[0].type, len(args)), ir.Undefined)
        for number, scalar in enumerate(args):
            value = builder.insert_element(value, scalar, I32(number))
        return value

    return Vector(kind, len(numbers))(*numbers), codegen


together = _intrinsic(4, _together, "(a, b, c, d) -> a vector of four numbers.")
