"""Sums of gemm go to c: scaled, with a bias, added to what is there, rounded."""

import functools
from typing import NamedTuple

from .jit import inline
from .random_store import random_stores
from .words.prim import FP32, div, mod
from .words.vector import WIDTH, loads, loads_first, stores, vadd, vmul, vsplat


class Lines(NamedTuple):
    """Where rows of a tile lie in c: number `first` and those after it from element `start` on;
    `even` of them are k.cm apart, the next ones `step` further."""

    start: int
    first: int
    even: int
    step: int


@functools.cache
def finisher(C):
    """Inline (k, tile, row, rows, columns, lines, bias, bias step, key): a tile goes to c."""
    ld32, vld32, vld32_first = FP32.ld, loads(FP32), loads_first(FP32)
    vld, vfirst, vst, put = loads(C), loads_first(C), stores(C), random_stores(C)

    @inline
    def line(k, tile, at, columns, to, bias, bias_step, random_key):
        alpha = vsplat(k.alpha)
        for j in range(0, columns, WIDTH):
            count = columns - j
            v = vmul(alpha, vld32(tile, at + j))
            if bias != 0 and bias_step == 0:
                v = vadd(v, vsplat(ld32(bias, 0)))
            elif bias != 0 and count >= WIDTH:
                v = vadd(v, vld32(bias, j))
            elif bias != 0:
                v = vadd(v, vld32_first(bias, j, count))
            if k.acc != 0 and count >= WIDTH:
                v = vadd(vld(k.c, to + j), v)
            elif k.acc != 0:
                v = vadd(vfirst(k.c, to + j, count), v)
            if k.sr != 0:
                put(k.c, to + j, v, count, random_key)
            else:
                vst(k.c, to + j, v, count)

    @inline
    def finish(k, tile, row, rows, columns, lines, bias, bias_step, random_key):
        for i in range(rows):
            at = lines.first + i
            to = lines.start + div(at, lines.even) * lines.step + mod(at, lines.even) * k.cm
            line(k, tile, i * row, columns, to, bias, bias_step, random_key)

    return finish
