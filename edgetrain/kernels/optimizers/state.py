"""The scale of an optimizer's state in fp16: 2 to the power of an exponent in the control block.

Moments are as small as gradients, and updates work on the mean gradient, which no longer contains
the loss scale: unscaled, fp16 loses moments when gradients are below 1e-6. So short formats store
them times a power of two; loads divide and stores multiply by it, exactly. It starts at the loss
scale and changes at the end of a step: halved if a stored number is above 2^10, doubled if none is
above 2^9, times 2^8 if none is above 2. So a state may grow by a factor of 64 in one step; numbers
beyond fp16's range are then stored as its largest number, and the scale falls by 2^8. In formats
with another range, the limits are as far below the largest number. An update after each gradient
(fused.py) has the same bits, because nothing here needs the norm of all gradients.

Other formats hold moments unchanged. Source: Sohoni et al. 2019, Low-Memory Neural Network
Training, section 4.3.1.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.mathf import sqrt
from ..language.number import where
from ..language.packed import Packed, get, largest, loader, put, storer
from ..language.prim import (
    bits_float,
    float_bits,
    ld_f64,
    ld_i64,
    ld_u8,
    st_i64,
    st_u8,
    u32,
)
from ..language.random_store import drawn_stores
from ..language.vector import ints, loads_first, stores, vsum
from ..registry import kernel

STATE, NEXT, PEAKS = control.STATE_EXPONENT, control.NEXT_EXPONENT, control.STATE_PEAKS
# Bytes of PEAKS: a number was stored; one above each limit was. Threads write nothing else there.
SEEN, LOW, MIDDLE, LARGE, HUGE = range(5)
_BELOW = 14, 6, 5, 0  # of each limit: binades below that of the largest number
LEAP = 8  # step of an exponent that is far too small or too large
LEAST, MOST = -24, 64
ZERO, ONE = np.float32(0), np.float32(1)


class StateScale(NamedTuple):
    """Factors for a short format's numbers, when they are loaded (down) and stored (up)."""

    down: Any
    up: Any
    ctl: Any


@inline
def _power(exponent):
    return bits_float(u32((exponent + 127) << 23))


@inline
def state_scale(ctl):
    """The StateScale of this update."""
    return StateScale(_power(-ld_i64(ctl, STATE)), _power(ld_i64(ctl, NEXT)), ctl)


@inline
def stored_scale(ctl):
    """The StateScale for reading what this update has already stored."""
    return StateScale(_power(-ld_i64(ctl, NEXT)), _power(ld_i64(ctl, NEXT)), ctl)


@inline
def _mark(ctl, byte):
    if ld_u8(ctl, 8 * PEAKS + byte) == 0:
        st_u8(ctl, 8 * PEAKS + byte, 1)


@inline
def _note(ctl, low, middle, large, huge):
    """Record whether some of what was stored is above each limit."""
    _mark(ctl, SEEN)
    if low:
        _mark(ctl, LOW)
    if middle:
        _mark(ctl, MIDDLE)
    if large:
        _mark(ctl, LARGE)
    if huge:
        _mark(ctl, HUGE)


class _Limits(NamedTuple):
    """Bits of the limits, float32, in the order of the bytes of PEAKS."""

    low: int
    middle: int
    large: int
    huge: int


def _limits(storage) -> _Limits:
    """The limits of a format; for fp16, 2, 2^9, 2^10 and 2^15."""
    top = math.frexp(storage.largest)[1] - 1
    return _Limits(*((top - below + 127) << 23 for below in _BELOW))


@functools.cache
def _within(storage):
    """Inline (number or vector) -> clamped to the range of a format."""
    greatest = np.float32(storage.largest)

    @inline
    def within(value):
        value = where(value < -greatest, -greatest, value)
        return where(value > greatest, greatest, value)

    return within


def is_scaled(storage) -> bool:
    """Whether a format holds moments times the scale."""
    return storage.short_range and not isinstance(storage, Packed)


def moments(S, upper=False):
    """(inline load, inline store) for runs of a moment: like `loader` and `storer`, with a
    StateScale as the last argument."""
    load, store, within = loader(S), storer(S, upper=upper), _within(S)
    low_bits, middle_bits, large_bits, huge_bits = _limits(S)
    if not is_scaled(S):

        @inline
        def load_plain(buffer, address, first, count, by):
            load(buffer, address, first, count)

        @inline
        def store_plain(address, first, count, buffer, key, by):
            store(address, first, count, buffer, key)

        return load_plain, store_plain

    @inline
    def load_scaled(buffer, address, first, count, by):
        load(buffer, address, first, count)
        for j in range(count):
            put(buffer, j, get(buffer, j) * by.down)

    @inline
    def store_scaled(address, first, count, buffer, key, by):
        for j in range(count):
            put(buffer, j, within(get(buffer, j) * by.up))
        peak = largest(buffer, count)
        low, middle = peak > low_bits, peak > middle_bits
        _note(by.ctl, low, middle, peak > large_bits, peak > huge_bits)
        store(address, first, count, buffer, key)

    return load_scaled, store_scaled


def second_moments(V, upper=False):
    """(inline load, inline store) for runs of second moments, like `moments`; short formats keep
    square roots.

    The root of g^2 has the range of g, which a scale brings into fp16; g^2 does not. In blocks, a
    nonzero root stays nonzero, or steps would have no limit. The store takes moments and leaves the
    stored numbers, before rounding, in the buffer.
    """
    load, store = moments(V, upper)
    plain = storer(V, keep=True, upper=upper)
    rooted, scaled, st = V.short_range, is_scaled(V), V.st

    @inline
    def load_squares(buffer, address, first, count, by):
        load(buffer, address, first, count, by)
        for j in range(count):
            put(buffer, j, get(buffer, j) * get(buffer, j))

    @inline
    def store_squares(address, first, count, buffer, key, by):
        for j in range(count):
            put(buffer, j, sqrt(get(buffer, j)))
        store(address, first, count, buffer, key, by)

    @inline
    def store_blocks(address, first, count, buffer, key, by):
        for j in range(count):
            put(buffer, j, sqrt(get(buffer, j)))
        plain(address, first, count, buffer, key)

    @inline
    def store_each(address, first, count, buffer, key, by):
        for j in range(count):
            st(address, first + j, get(buffer, j))

    if not rooted:
        return load, store_each
    return load_squares, store_squares if scaled else store_blocks


class Lanes(NamedTuple):
    """Inline functions on vectors of a state.

    Attributes:
      load: (address, i, count, by).
      store: (address, i, value, count, random, by, peak) -> the largest magnitudes so far, as
        bits, starting from `peak`.
      note: (peak, by): record them in the control block.
    """

    load: Callable
    store: Callable
    note: Callable


def vectors(V, upper: bool) -> Lanes:
    """`Lanes` of a moment; `upper` says which part of the random numbers rounds it."""
    load_one, put, within = loads_first(V), drawn_stores(V, upper), _within(V)
    low_bits, middle_bits, large_bits, huge_bits = _limits(V)
    if not is_scaled(V):
        return plain_vectors(V, upper)

    @inline
    def load(address, i, count, by):
        return load_one(address, i, count) * by.down

    @inline
    def store(address, i, value, count, random, by, peak):
        scaled = within(value * by.up)
        put(address, i, scaled, count, random)
        size = ints(scaled) & 0x7FFFFFFF  # NaN is above all limits
        return where(size > peak, size, peak)

    @inline
    def above(peak, limit):
        return vsum(where(peak > limit, ONE, ZERO)) > 0.0

    @inline
    def note(peak, by):
        low, middle = above(peak, low_bits), above(peak, middle_bits)
        _note(by.ctl, low, middle, above(peak, large_bits), above(peak, huge_bits))

    return Lanes(load, store, note)


def plain_vectors(V, upper: bool) -> Lanes:
    """`Lanes` of numbers that are stored unchanged."""
    load_one, put = loads_first(V), drawn_stores(V, upper)

    @inline
    def load(address, i, count, by):
        return load_one(address, i, count)

    @inline
    def store(address, i, value, count, random, by, peak):
        put(address, i, value, count, random)
        return peak

    return Lanes(load, store, _no_note)


@inline
def _no_note(peak, by):
    pass


def second_vectors(V, upper: bool) -> Lanes:
    """`Lanes` of second moments, like `second_moments`."""
    load_root, store_root, note = vectors(V, upper)
    load_one, put = loads_first(V), stores(V)

    @inline
    def load(address, i, count, by):
        root = load_root(address, i, count, by)
        return root * root

    @inline
    def store(address, i, value, count, random, by, peak):
        return store_root(address, i, sqrt(value), count, random, by, peak)

    @inline
    def load_each(address, i, count, by):
        return load_one(address, i, count)

    @inline
    def store_each(address, i, value, count, random, by, peak):
        put(address, i, value, count)
        return peak

    return Lanes(load, store, note) if V.short_range else Lanes(load_each, store_each, note)


@kernel("state_begin", "ctl:m:i64[64]")
def state_begin():
    """Runs before the updates of a step, after ADAM_T advanced: the first update stores with
    LOSS_SCALE."""

    def run(thread, nthreads, args):
        if (
            thread == 0
            and ld_i64(args.ctl, control.SKIP) == 0
            and ld_i64(args.ctl, control.ADAM_T) == 1
        ):
            bits = int(float_bits(np.float32(ld_f64(args.ctl, control.LOSS_SCALE))))
            st_i64(args.ctl, NEXT, (bits >> 23) - 127)

    return run


@kernel("state_end", "ctl:m:i64[64]")
def state_end():
    """Runs after the updates: set the exponent that they stored with, and that of the next update.
    An update that was skipped has stored nothing."""

    @inline
    def peak(ctl, byte):
        return ld_u8(ctl, 8 * PEAKS + byte) != 0

    def run(thread, nthreads, args):
        if thread == 0 and ld_i64(args.ctl, control.SKIP) == 0 and peak(args.ctl, SEEN):
            exponent = ld_i64(args.ctl, NEXT)
            st_i64(args.ctl, STATE, exponent)
            if peak(args.ctl, HUGE):
                exponent -= LEAP
            elif peak(args.ctl, LARGE):
                exponent -= 1
            elif not peak(args.ctl, LOW):
                exponent += LEAP
            elif not peak(args.ctl, MIDDLE):
                exponent += 1
            st_i64(args.ctl, NEXT, max(min(exponent, MOST), LEAST))
            st_i64(args.ctl, PEAKS, 0)

    return run
