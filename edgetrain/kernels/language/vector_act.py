"""The activations of language/act.py on vectors of 16: the same operations, so the same bits."""

from llvmlite import ir

from . import mathf
from .act import (
    CLIP,
    HALF,
    HARDSWISH,
    LEAKY,
    NONE,
    ONE,
    RELU,
    SIGMOID,
    SIXTH,
    THIRD,
    THREE,
    ZERO,
)
from .inlining import inline
from .prim import I32
from .vector import V16, VECTOR, WIDTH, constant, define, fused, vfma, vmul, vsplat, vsub

_INTS = ir.VectorType(I32, WIDTH)


def _number(value) -> ir.Constant:
    return constant(float(value))


def _below(builder, a, b, yes, no):
    return builder.select(builder.fcmp_ordered("<", a, b), yes, no)


def _scales(builder, shifted):
    """2^(n >> 1) and 2^(n - (n >> 1)) for the n of a sum with MAGIC."""

    def each(value):
        return ir.Constant(_INTS, [value] * WIDTH)

    n = builder.sub(builder.bitcast(shifted, _INTS), each(0x4B400000))
    low = builder.ashr(n, each(1))
    for part in (low, builder.sub(n, low)):
        yield builder.bitcast(builder.shl(builder.add(part, each(127)), each(23)), VECTOR)


def _exp(builder, x):
    """mathf.exp."""
    b, m = builder, mathf
    x = _below(b, _number(m.EXP_MAX), x, _number(m.EXP_MAX), x)
    x = _below(b, x, _number(m.EXP_MIN), _number(m.EXP_MIN), x)
    shifted = fused(b, x, _number(m.LOG2E), _number(m.MAGIC))
    n = b.fsub(shifted, _number(m.MAGIC))
    r = fused(b, n, _number(-m.LN2_HI), x)
    r = fused(b, n, _number(-m.LN2_LO), r)
    p = _number(m.E7)
    for coefficient in (m.E6, m.E5, m.E4, m.E3, m.E2):
        p = fused(b, p, r, _number(coefficient))
    p = b.fadd(fused(b, p, b.fmul(r, r), r), _number(m.ONE))
    low, high = _scales(b, shifted)
    return b.fmul(b.fmul(p, low), high)


def _sigmoid(builder, args):
    x, zero, one = args[0], _number(0), _number(1)
    ones = ir.Constant(_INTS, [0x80000000] * WIDTH)
    negative = builder.bitcast(builder.or_(builder.bitcast(x, _INTS), ones), VECTOR)
    e = _exp(builder, negative)
    return builder.fdiv(_below(builder, x, zero, e, one), builder.fadd(one, e))


def _at_most(builder, args):
    """lanes of c where a <= b, else d."""
    a, b, c, d = args
    return builder.select(builder.fcmp_ordered("<=", a, b), c, d)


def _above(builder, args):
    """lanes of c where a > b, else d."""
    a, b, c, d = args
    return builder.select(builder.fcmp_ordered(">", a, b), c, d)


_sigmoids = define(V16(V16), _sigmoid)
_where_le = define(V16(V16, V16, V16, V16), _at_most)
_where_gt = define(V16(V16, V16, V16, V16), _above)


@inline
def _clipped(z, low, high):
    top = _where_gt(z, high, high, z)
    return _where_gt(low, z, low, top)


@inline
def vact_value(code, z, lo, hi):
    """act.act_value; lo and hi are float32."""
    zero = vsplat(ZERO)
    if code == NONE:
        return z
    if code == RELU:
        return _where_le(z, zero, zero, z)
    if code == CLIP:
        return _clipped(z, vsplat(lo), vsplat(hi))
    if code == HARDSWISH:
        return vmul(z, _clipped(vfma(z, vsplat(SIXTH), vsplat(HALF)), zero, vsplat(ONE)))
    if code == LEAKY:
        return _where_gt(z, zero, z, vmul(z, vsplat(lo)))
    s = _sigmoids(z)
    return s if code == SIGMOID else vmul(z, s)


@inline
def vact_slope(code, z, lo, hi):
    """act.act_slope; lo and hi are float32."""
    zero, one = vsplat(ZERO), vsplat(ONE)
    if code == NONE:
        return one
    if code == RELU:
        return _where_le(z, zero, zero, one)
    if code == CLIP:
        return _where_le(z, vsplat(lo), zero, _where_le(vsplat(hi), z, zero, one))
    if code == HARDSWISH:
        inner = vfma(z, vsplat(THIRD), vsplat(HALF))
        three = vsplat(THREE)
        return _where_le(z, vsub(zero, three), zero, _where_le(three, z, one, inner))
    if code == LEAKY:
        return _where_gt(z, zero, one, vsplat(lo))
    s = _sigmoids(z)
    rest = vsub(one, s)
    return vmul(s, rest) if code == SIGMOID else vmul(s, vfma(z, rest, one))
