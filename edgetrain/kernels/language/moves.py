"""Moves elements within a row, one after the other, to places that have already been read.

In block formats, the current block is kept in a buffer and stored when it is full, rounded
stochastically. Nonzero numbers stay nonzero, because zeros mark gaps.
"""

from collections.abc import Callable, Mapping

from .inlining import inline
from .mathf import ZERO
from .packed import BYTES, LENGTH, Packed, loader, put, storer, zero
from .prim import Storage, st_u8


def clearing(W: Storage) -> Callable:
    """clear(w, e): set element e to 0; the others keep their bits."""
    if isinstance(W, Packed):

        @inline
        def clear_byte(w, e):
            st_u8(w, (e >> 6) * BYTES + (e & 63), 0)

        return clear_byte
    st = W.st

    @inline
    def clear(w, e):
        st(w, e, ZERO)

    return clear


def wiping(W: Storage) -> Callable:
    """wipe(w, count): set the first `count` elements to 0."""
    if isinstance(W, Packed):

        @inline
        def wipe_blocks(w, count):
            zero(w, 0, count)

        return wipe_blocks
    st = W.st

    @inline
    def wipe(w, count):
        for e in range(count):
            st(w, e, ZERO)

    return wipe


def _each(W: Storage) -> Mapping[str, Callable]:
    """For formats of single elements, which need no buffer."""
    st = W.st

    @inline
    def begin(buffer, w, write):
        return

    @inline
    def push(buffer, w, write, value, key):
        st(w, write, value)

    @inline
    def finish(buffer, w, write, key):
        return

    return {"begin": begin, "push": push, "finish": finish}


def _in_blocks(W: Storage, rising: bool, keep: bool) -> Mapping[str, Callable]:
    load, store, ld = loader(W), storer(W, keep=keep), W.ld
    last = LENGTH - 1 if rising else 0  # the place in a block that is written last

    @inline
    def begin(buffer, w, write):
        if (write & 63) != 0:
            load(buffer, w, write - (write & 63), LENGTH)

    @inline
    def push(buffer, w, write, value, key):
        put(buffer, write & 63, value)
        if (write & 63) == last:
            store(w, write - last, LENGTH, buffer, key)

    @inline
    def finish(buffer, w, write, key):
        inside = write & 63
        if inside != 0:
            first = write - inside
            low, high = (inside, LENGTH) if rising else (0, inside)
            for j in range(low, high):
                put(buffer, j, ld(w, first + j))
            store(w, first, LENGTH, buffer, key)

    return {"begin": begin, "push": push, "finish": finish}


def moving(W: Storage, rising: bool, keep: bool = False) -> Mapping[str, Callable]:
    """Functions with which a kernel writes consecutive places of a row, upwards or downwards.

    Call begin(buffer, w, write) first, push(buffer, w, write, value, key) for each place `write`,
    then finish(buffer, w, write, key). begin and finish take a boundary, the place after all lower
    places. If places rise, begin gets the first place to write; if they fall, their end.

    Args:
      keep: nonzero numbers stay nonzero in any storage.
    """
    return _in_blocks(W, rising, keep) if isinstance(W, Packed) else _each(W)
