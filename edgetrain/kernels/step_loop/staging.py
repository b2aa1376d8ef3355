"""Copies raw samples into the arena: converts u8, i32, i64, f16 or f32, scales and checks values.

Scaling is value * factor + shift in float32, with each operation rounded separately, as in
data/source.py. Conversion to fp16 rounds to nearest. A value that is outside its limits or not
finite is found before the model sees it.
"""

import numpy as np

from ..language.inlining import inline
from ..language.prim import FP32, div, ld_i32, ld_i64, ld_u8, mod, st_i32, to_float
from ..registry import kernel
from . import layout
from .floats import load_float, nbytes_of, store_float

I32, I64, U8 = (layout.TYPES.index(name) for name in ("i32", "i64", "u8"))
_ld_f32 = FP32.ld
ZERO, ONE = np.float32(0), np.float32(1)
STAGED, STAGED_TYPE, SIZE = layout.STAGED, layout.STAGED_TYPE, layout.SIZE
RAW_TYPE, FACTOR, SHIFT = layout.RAW_TYPE, layout.FACTOR, layout.SHIFT
CHANNELS, INNER, LIMIT = layout.CHANNELS, layout.INNER, layout.LIMIT
IGNORED, CHECK_IGNORED = layout.IGNORED, layout.CHECK_IGNORED


@inline
def _integer(raw, storage, e):
    if storage == U8:
        return ld_u8(raw, e)
    return ld_i64(raw, e) if storage == I64 else ld_i32(raw, e)


@inline
def _float(raw, storage, e):
    if I32 <= storage <= U8:
        return to_float(_integer(raw, storage, e))
    return load_float(storage, raw, e)


@inline
def _stage_integers(field, to, raw, storage, size):
    limit, ignored = ld_i64(field, LIMIT), ld_i64(field, IGNORED)
    let_through = ld_i64(field, CHECK_IGNORED) != 0
    good = 1
    for e in range(size):
        value = _integer(raw, storage, e)
        inside = limit == 0 or (value >= 0 and value < limit)
        if not inside and not (let_through and value == ignored):
            good = 0
        st_i32(to, e, value)
    return good


@inline
def _stage_floats(field, to, raw, storage, size, staged):
    factors, shifts = ld_i64(field, FACTOR), ld_i64(field, SHIFT)
    channels, inner = ld_i64(field, CHANNELS), ld_i64(field, INNER)
    weights = ld_i64(field, LIMIT) != 0
    good = 1
    for e in range(size):
        value = _float(raw, storage, e)
        if factors != 0:
            channel = mod(div(e, inner), channels)
            value = value * _ld_f32(factors, channel)
            value = value + _ld_f32(shifts, channel)
        store_float(staged, to, e, value)
        value = load_float(staged, to, e)  # a finite value may overflow in its storage
        if value - value != ZERO or (weights and value < ZERO):
            good = 0
    return good


@inline
def stage(field, row, raw):
    """Stage one raw sample in row `row` of a field; 0 if a value was refused.

    `raw` may be the end of the row itself if its elements are not wider than the staged ones.
    """
    staged, storage = ld_i64(field, STAGED_TYPE), ld_i64(field, RAW_TYPE)
    size = ld_i64(field, SIZE)
    to = ld_i64(field, STAGED) + row * size * nbytes_of(staged)
    if staged == I32:
        return _stage_integers(field, to, raw, storage, size)
    return _stage_floats(field, to, raw, storage, size, staged)


@kernel(
    "drive_stage",
    "field=host raw=host stride=size first=size count bad:w:i64[1]",
    check="count >= 0",
)
def drive_stage():
    """Stage `count` raw samples, which start at `raw` and are `stride` bytes apart, as rows first,
    first + 1, ...

    field: address of a field's description (layout.py). bad: the first refused row, or -1.
    """
    from ..language.prim import st_i64

    def run(thread, nthreads, args):
        if thread == 0:
            result = -1
            for i in range(args.count):
                if (
                    stage(args.field, args.first + i, args.raw + i * args.stride) == 0
                    and result < 0
                ):
                    result = args.first + i
            st_i64(args.bad, 0, result)

    return run
