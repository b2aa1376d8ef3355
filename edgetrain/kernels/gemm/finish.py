"""Epilogue of gemm: sums are scaled, get a bias, are added to c if asked, rounded and stored."""

import functools
from typing import NamedTuple

from ..language.inlining import inline
from ..language.prim import FP32, div, mod
from ..language.random_store import random_stores
from ..language.vector import WIDTH, loads, loads_first, stores, vsplat


class Lines(NamedTuple):
    """Rows of a tile in c, from row number `first` on. Row 0 begins at element `start`; runs of
    `even` rows are args.cm apart, and a run begins `step` after the previous one."""

    start: int
    first: int
    even: int
    step: int


_vld32, _vfirst32, _vst32 = loads(FP32), loads_first(FP32), stores(FP32)


@functools.cache
def sums_in(C):
    """(inline fetch, inline keep) (args, tile, row, rows, columns, start): copy partial sums
    unchanged from c, from element `start` on, to a tile, and back; no-ops unless c is float32."""

    @inline
    def fetch(args, tile, row, rows, columns, start):
        for i in range(rows):
            for j in range(0, columns, WIDTH):
                value = _vfirst32(args.c, start + i * args.cm + j, columns - j)
                _vst32(tile, i * row + j, value, WIDTH)

    @inline
    def keep(args, tile, row, rows, columns, start):
        for i in range(rows):
            for j in range(0, columns, WIDTH):
                _vst32(args.c, start + i * args.cm + j, _vld32(tile, i * row + j), columns - j)

    @inline
    def nothing(args, tile, row, rows, columns, start):
        pass

    return (fetch, keep) if C.single else (nothing, nothing)


@functools.cache
def finisher(C):
    """Inline (args, tile, row, rows, columns, lines, bias, bias step, key): store a tile in c."""
    ld32, vld32, vld32_first = FP32.ld, loads(FP32), loads_first(FP32)
    vld, vfirst, vst, put = loads(C), loads_first(C), stores(C), random_stores(C)

    @inline
    def line(args, tile, offset, columns, to, bias, bias_step, random_key):
        alpha = vsplat(args.alpha)
        for j in range(0, columns, WIDTH):
            count = columns - j
            v = alpha * vld32(tile, offset + j)
            if bias != 0 and bias_step == 0:
                v = v + ld32(bias, 0)
            elif bias != 0 and count >= WIDTH:
                v = v + vld32(bias, j)
            elif bias != 0:
                v = v + vld32_first(bias, j, count)
            if args.acc != 0 and count >= WIDTH:
                v = vld(args.c, to + j) + v
            elif args.acc != 0:
                v = vfirst(args.c, to + j, count) + v
            if args.sr != 0:
                put(args.c, to + j, v, count, random_key)
            else:
                vst(args.c, to + j, v, count)

    @inline
    def finish(args, tile, row, rows, columns, lines, bias, bias_step, random_key):
        for i in range(rows):
            offset = lines.first + i
            to = (
                lines.start
                + div(offset, lines.even) * lines.step
                + mod(offset, lines.even) * args.cm
            )
            line(args, tile, i * row, columns, to, bias, bias_step, random_key)

    return finish
