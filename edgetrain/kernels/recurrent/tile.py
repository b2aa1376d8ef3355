"""Products of a few rows with a weight matrix that is read in place: inner loops of recurrences.

Each step of a recurrence multiplies a small batch by the same large matrix, so packing would cost
more than it saves. `dots` reads rows of the matrix along the contracted axis, `outer` across it.
Rows and columns of a tile beyond the last repeat the last one: they compute and store the same
numbers twice. Vectors are 16 floats; an element of a result is the same whatever tile, thread or
processor computes it.
"""

import functools
from typing import NamedTuple

from ..language.calls import outline
from ..language.inlining import inline
from ..language.tile import TALL, dot_tile, outer_tile


class Factor(NamedTuple):
    """A matrix whose element (i, j) is `offset` + i * row + j * step elements after an address."""

    address: int
    offset: int
    row: int
    step: int


@functools.cache
def dots(storage):
    """(h, rows, w, columns, terms, out, out_step): out[r, c] = h[r] . w[c].

    h and out are float32; rows of h are readable, and 0, up to a multiple of 16 elements. Order: 16
    chains of fma, each over every 16th term, added by halves.
    """
    quad, single = dot_tile(storage, TALL), dot_tile(storage, 1)
    nbytes = storage.nbytes

    def product(h, h_step, rows, w, w_step, columns, k, out, out_step):
        if rows == 1:
            for c in range(0, columns, 16):
                last = min(15, columns - 1 - c)
                single(h, h_step, 0, w + c * w_step * nbytes, w_step, last, k, out + 4 * c, 0)
        else:
            for c in range(0, columns, 4):
                last, place = min(3, columns - 1 - c), w + c * w_step * nbytes
                for r in range(0, rows, 4):
                    left, bottom = h + 4 * r * h_step, min(3, rows - 1 - r)
                    to = out + 4 * (r * out_step + c)
                    quad(left, h_step, bottom, place, w_step, last, k, to, out_step)

    product = outline(f"et_recurrent_dots_{storage.name}", product)

    @inline
    def multiply(h, rows, w, columns, terms, out, out_step):
        left, right = h.address + 4 * h.offset, w.address + w.offset * nbytes
        product(left, h.row, rows, right, w.row, columns, terms, out, out_step)

    return multiply


@functools.cache
def outer(left, right):
    """(a, rows, w, columns, terms, out, out_step): out[r, c] += sum over i of a[r, i] * w[i, c].

    Columns of w are contiguous; out is float32 and writable up to a multiple of 16 columns. Order:
    a chain of fma, then out.
    """
    wide, narrow = outer_tile(left, right, 4), outer_tile(left, right, 1)
    lbytes, rbytes = left.nbytes, right.nbytes

    def product(a, a_row, a_step, rows, w, w_step, columns, terms, out, out_step):
        c = 0
        while c < columns:
            step, right_at = 64 if c + 64 <= columns else 16, w + c * rbytes
            for r in range(0, rows, 4):
                last, source = min(3, rows - 1 - r), a + r * a_row * lbytes
                to = out + 4 * (r * out_step + c)
                if step == 64:
                    wide(source, a_row, a_step, last, right_at, w_step, 64, terms, to, out_step)
                else:
                    rest = columns - c
                    narrow(source, a_row, a_step, last, right_at, w_step, rest, terms, to, out_step)
            c += step

    product = outline(f"et_recurrent_outer_{left.name}_{right.name}", product)

    @inline
    def multiply(a, rows, w, columns, terms, out, out_step):
        source, weights = a.address + a.offset * lbytes, w.address + w.offset * rbytes
        product(source, a.row, a.step, rows, weights, w.row, columns, terms, out, out_step)

    return multiply
