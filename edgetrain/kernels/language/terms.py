"""Blocks of terms g(..., dy) of binary functions' gradients, for language/reduction.py."""

from .block import get, put
from .inlining import inline
from .pairs import GRADIENT
from .strided import filler


@inline
def _only_dy(a, b, dy):
    return (dy,)


@inline
def _with_a(a, b, dy):
    return a, dy


@inline
def _with_b(a, b, dy):
    return b, dy


@inline
def _all(a, b, dy):
    return a, b, dy


_PACKERS = {"": _only_dy, "a": _with_a, "b": _with_b, "ab": _all}


def packer(reads: str):
    """The function (a, b, dy) -> tuple of the values that a gradient reads, dy last."""
    return _PACKERS[reads]


def term(name, reads, A, B, S):
    """block(...) of `reduction` for gradient `name`. Its operands are packed, but its three buffers
    are not: they are in the kernel's frame, and a helper that packed them would return pointers."""
    slope, fill_dy = GRADIENT[name], filler(S.ld)
    if reads == "":

        def block(buffers, addresses, origins, start, m, dims, steps):
            _, _, out = buffers
            fill_dy(out, addresses[0], origins[0], start, m, dims, steps[0])
            for j in range(m):
                put(out, j, slope(get(out, j)))

    elif len(reads) == 1:
        fill = filler((A if reads == "a" else B).ld)

        def block(buffers, addresses, origins, start, m, dims, steps):
            values, _, out = buffers
            fill(values, addresses[0], origins[0], start, m, dims, steps[0])
            fill_dy(out, addresses[1], origins[1], start, m, dims, steps[1])
            for j in range(m):
                put(out, j, slope(get(values, j), get(out, j)))

    else:
        fill_a, fill_b = filler(A.ld), filler(B.ld)

        def block(buffers, addresses, origins, start, m, dims, steps):
            left, right, out = buffers
            fill_a(left, addresses[0], origins[0], start, m, dims, steps[0])
            fill_b(right, addresses[1], origins[1], start, m, dims, steps[1])
            fill_dy(out, addresses[2], origins[2], start, m, dims, steps[2])
            for j in range(m):
                put(out, j, slope(get(left, j), get(right, j), get(out, j)))

    return block
