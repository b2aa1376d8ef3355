"""Rows of layer, RMS and group normalisation (layer.py): their addresses and sizes."""

from typing import NamedTuple

from ..language.inlining import inline
from ..language.prim import div, mod

BLOCK = 1024  # elements of a row between two additions to a float64 sum
UNCACHED = 1 << 20  # elements that no cache is expected to hold: they are prefetched
TOGETHER = 4  # rows that vectors sum together


class Rows(NamedTuple):
    """Number and shape of the rows, and the addresses of their statistics.

    A row is one of the `groups` of an image: c channels of s pixels. Without means (RMS) their
    address is 0.
    """

    means: int
    inverses: int
    total: int
    groups: int
    c: int
    s: int


@inline
def layer(args):
    """Rows of layer normalisation."""
    return Rows(args.stat, args.stat + 4 * args.rows, args.rows, 1, args.n, 1)


@inline
def rms(args):
    """Rows of RMS normalisation."""
    return Rows(0, args.stat, args.rows, 1, args.n, 1)


@inline
def group(args):
    """Rows of group normalisation: one per group of an image."""
    rows = args.n * args.groups
    return Rows(
        args.stat, args.stat + 4 * rows, rows, args.groups, div(args.c, args.groups), args.s
    )


@inline
def first_channel(rows, row):
    """The first channel of a row."""
    return mod(row, rows.groups) * rows.c


@inline
def part(rows, thread, nthreads):
    """A thread's first row, and the one after its last."""
    return div(rows.total * thread, nthreads), div(rows.total * (thread + 1), nthreads)


@inline
def beta(args):
    """Address of the shift."""
    return args.beta


@inline
def dbeta(args):
    """Address of the shift's gradient."""
    return args.dbeta


@inline
def no_shift(args):
    """Replaces `beta` and `dbeta` in kernels without a shift."""
    return 0


def fetcher(S, vectors):
    """Inline (address, element): prefetch the element if vectors are used."""
    from ..language.vector import prefetch

    nbytes = S.nbytes

    @inline
    def fetch(address, index):
        prefetch(address + nbytes * index)

    @inline
    def none(address, index):
        return None

    return fetch if vectors else none
