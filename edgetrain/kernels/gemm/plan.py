"""How gemm runs a product: axes with even strides are merged, and c is split into tiles."""

import functools
from typing import NamedTuple

from ..language.inlining import inline
from ..language.prim import div, mod
from .panels import KC, MT, SMALL

BAND_FLOATS = 1 << 17  # floats of a that consecutive tiles share


class Side(NamedTuple):
    """One of the two factors: its address, and its strides along the batches, its own axis of the
    result, and the contracted axes."""

    address: int
    z1: int
    z2: int
    step: int
    k2: int
    k: int


class Product(NamedTuple):
    """A product with its axes merged.

    Attributes:
      a, b: the factors.
      z1, z2, m, n: batches, rows and columns of the result.
      k2, k: terms of each element.
      cz2: stride of batches z2 in c.
      even: consecutive rows that are evenly spaced in c.
      bias_step: stride of the bias.
      small: whether it is computed on the stack.
    """

    a: Side
    b: Side
    z1: int
    z2: int
    m: int
    n: int
    k2: int
    k: int
    cz2: int
    even: int
    bias_step: int
    small: bool


class Tiling(NamedTuple):
    """Tiles of at most mt x nt elements, tm x tn of them in a batch, processed in bands of `band`
    rows of tiles."""

    mt: int
    nt: int
    tm: int
    tn: int
    band: int


FEWEST = 4 * KC  # least terms of a long sum that are added to every tile before the next ones


@functools.cache
def merger(swappable: bool):
    """Inline (args) -> the `Product` of gemm's operands.

    swappable: both factors have the same storage, so that either may be the left one.
    """

    @inline
    def merge(args):
        m, n, k2, terms, bias_step, is_one = args.m, args.n, args.k2, args.k, 1, args.z2 == 1
        z1, z2, cz2 = (1, args.z1, args.cz1) if is_one else (args.z1, args.z2, args.cz2)
        small = z1 * z2 * m * n * k2 * terms <= SMALL
        # merge the contracted axes
        merged = terms == 1 or (args.ak2 == terms * args.ak and args.bk2 == terms * args.bk)
        az2, bz2 = (args.az1, args.bz1) if is_one else (args.az2, args.bz2)
        a = Side(args.a, args.az1, az2, args.am, args.ak2, args.ak2 if terms == 1 else args.ak)
        b = Side(args.b, args.bz1, bz2, args.bn, args.bk2, args.bk2 if terms == 1 else args.bk)
        terms, k2 = (terms * k2, 1) if merged else (terms, k2)
        if swappable and n == 1 and args.cm == 1:
            # a column of results is contiguous like a row: compute it as one
            a, b, n, m, bias_step = b, a, m, 1, 0
        # batches that share b become rows; `even` of them are evenly spaced in c
        even = m
        if b.z2 == 0 and a.z2 == m * a.step and (cz2 == m * args.cm or m < MT and not small):
            even = m * z2 if cz2 == m * args.cm else m
            m, z2 = m * z2, 1
        if z2 == 1 and b.z1 == 0 and a.z1 == m * a.step and args.cz1 == m * args.cm and even == m:
            m, z1 = m * z1, 1
            even = m
        return Product(a, b, z1, z2, m, n, k2, terms, cz2, even, bias_step, small)

    return merge


@inline
def tiled(p: Product, mt, nt, nthreads, terms):
    """The `Tiling` with tiles of at most mt x nt, smaller if some threads would have none; `terms`:
    terms of an element that are computed at once."""
    while p.z1 * p.z2 * div(p.m + mt - 1, mt) * div(p.n + nt - 1, nt) < nthreads and mt > 8:
        mt, nt = (mt, nt >> 1) if nt > 32 else (mt >> 1, nt)
    tm, tn = div(p.m + mt - 1, mt), div(p.n + nt - 1, nt)
    mt = div(div(p.m + tm - 1, tm) + 7, 8) * 8  # tiles of equal height
    # tiles of a band are visited column by column: its part of a stays in L2
    band = max(1, min(4, div(BAND_FLOATS, mt * terms)))
    if p.m * terms <= 2 * BAND_FLOATS or mt * terms > 2 * BAND_FLOATS:
        band = tm  # all of a fits; or no part of a does, then that of b stays
    return Tiling(mt, nt, tm, tn, band)


@inline
def at_once(p: Product, mt):
    """Terms that are added to every tile before the next terms are: all of them, unless sums are so
    long that neither factor's part would stay in L2."""
    rows = min(p.m, 2 * mt)
    if p.k2 > 1 or p.even < p.m or min(p.m, mt) * p.k <= 2 * BAND_FLOATS:
        return p.k
    return max(FEWEST, div(BAND_FLOATS, rows * KC) * KC)


@inline
def tile_at(p: Product, t: Tiling, task):
    """(batch z1, batch z2, first row, first column) of tile number `task`."""
    z, rest = div(task, t.tm * t.tn), mod(task, t.tm * t.tn)
    first = div(rest, t.band * t.tn) * t.band
    height, within = min(t.band, t.tm - first), rest - first * t.tn
    i, j = (first + mod(within, height)) * t.mt, div(within, height) * t.nt
    return div(z, p.z2), mod(z, p.z2), i, j
