"""Products of one term: a column times a row, line by line, as the result lies in memory.

Tiles would go down such a result in short pieces of many lines, and pack what is read once. The
gradient of a linear layer's weights is one, where a microbatch is one sample.
"""

import numpy as np

from .gemm_tile import ADD
from .jit import inline
from .words.prim import FP32, mod
from .words.vector import WIDTH, loads, loads_first, prefetch, stores, vadd, vfma, vsplat

ZERO = np.float32(0)
AHEAD = 1024  # bytes: pages end where processors stop to look ahead by themselves
_ld, _vld, _vfirst, _vst = FP32.ld, loads(FP32), loads_first(FP32), stores(FP32)


@inline
def outer_product(a, own, b, c, row, rows, columns, how):
    """c[rows][columns] (+)= a[rows] * b[columns], float32; each product is rounded as a chain of
    one fma from zero.

    a: its numbers `own` elements apart; c: its lines `row` elements apart; how: SET or ADD.
    """
    whole, none = columns - mod(columns, WIDTH), vsplat(ZERO)
    for i in range(rows):
        number, line = vsplat(_ld(a, i * own)), c + 4 * i * row
        if how == ADD:
            for j in range(0, whole, WIDTH):
                prefetch(line + 4 * j + AHEAD)
                value = vadd(_vld(line, j), vfma(number, _vld(b, j), none))
                _vst(line, j, value, WIDTH)
        else:
            for j in range(0, whole, WIDTH):
                _vst(line, j, vfma(number, _vld(b, j), none), WIDTH)
        if whole < columns:
            count = columns - whole
            value = vfma(number, _vfirst(b, whole, count), none)
            if how == ADD:
                value = vadd(_vfirst(line, whole, count), value)
            _vst(line, whole, value, count)
