"""Four float64 as a value of kernels, and the sums of vectors that they hold.

Sums have the bits of `vsum` (language/vector.py): halves first. Four at a time their additions fill
vectors, and no sum waits for another.
"""

from llvmlite import ir
from numba import types

from .number import F32, F64, I32, Vector
from .vector import V16, WIDTH, define, shuffle

QUAD = ir.VectorType(F64, 4)


FOUR = Vector(types.float64, 4)


def _lane(k: int):
    return define(types.float64(FOUR), lambda b, args: b.extract_element(args[0], I32(k)))


none = define(FOUR(), lambda b, args: ir.Constant(QUAD, [0.0] * 4))
first, second, third, fourth = (_lane(k) for k in range(4))


def _wide(builder, value):
    return builder.fpext(value, ir.VectorType(F64, WIDTH))


def _eight(builder, value):
    """Lanes j and j + 8, added."""
    wide = _wide(builder, value)
    low, high = (shuffle(builder, wide, wide, range(at, at + 8)) for at in (0, 8))
    return builder.fadd(low, high)


def _halves(builder, a, b, run):
    """Of every run of lanes of a and of b the halves, added; `run` lanes are half a run."""
    count = a.type.count
    lanes = [lane for lane in range(2 * count) if lane % (2 * run) < run]
    low = shuffle(builder, a, b, lanes)
    return builder.fadd(low, shuffle(builder, a, b, [lane + run for lane in lanes]))


def _last(builder, value):
    """Each two lanes added."""
    low = shuffle(builder, value, value, range(0, 8, 2))
    return builder.fadd(low, shuffle(builder, value, value, range(1, 8, 2)))


def _quad_sums(builder, args):
    a, b, c, d = (_eight(builder, value) for value in args)
    ab, cd = _halves(builder, a, b, 4), _halves(builder, c, d, 4)
    return _last(builder, _halves(builder, ab, cd, 2))


def _pair_sums(builder, args):
    a, b = (_eight(builder, value) for value in args)
    ab = _halves(builder, a, b, 4)
    return _last(builder, _halves(builder, ab, ir.Constant(ab.type, [0.0] * 8), 2))


def _quarter_sums(builder, args):
    wide = _wide(builder, args[0])
    low, high = (shuffle(builder, wide, wide, range(at, at + 8)) for at in (0, 8))
    return _last(builder, _halves(builder, low, high, 2))


def _quarters(builder, args):
    value = ir.Constant(ir.VectorType(F32, 4), ir.Undefined)
    for lane, scalar in enumerate(args):
        value = builder.insert_element(value, scalar, I32(lane))
    return shuffle(builder, value, value, [lane // 4 for lane in range(WIDTH)])


# (a, b, c, d) -> vsum of each
quad_sums = define(FOUR(V16, V16, V16, V16), _quad_sums)
# (a, b) -> vsum of each, then two zeros
pair_sums = define(FOUR(V16, V16), _pair_sums)
# (value) -> of every four lanes what vsum makes of them, zeros after them
quarter_sums = define(FOUR(V16), _quarter_sums)
# (a, b, c, d: float32) -> four lanes of each
quarters = define(V16(*[types.float32] * 4), _quarters)
