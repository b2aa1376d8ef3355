"""The frame of an update: what optimizers share, around the arithmetic of one (rule.py).

Arithmetic is float32. A thread processes runs of 64 weights, the length of 8-bit blocks, in
buffers, or vectors from memory to memory, with the same bits. Numbers stored in fp16 or in blocks
are rounded stochastically, depending on their position. A skipped update writes no weight and no
state; gradients become 0 either way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import control
from ..language.block import first as part
from ..language.inlining import inline
from ..language.packed import LENGTH, Packed, get, loader, new, put, storer
from ..language.packed import zero as zero_blocks
from ..language.prim import Storage, div, hash32, ld_f64, ld_i64, mix, st_f64
from ..language.random_store import PASS, counter, drawn_stores
from ..language.rng import stream
from ..language.vector import WIDTH, ints, loads_first, stores, vsplat
from .spans import LAYER, WHOLE, Span
from .state import (
    Lanes,
    moments,
    plain_vectors,
    second_moments,
    second_vectors,
    state_scale,
    vectors,
)
from .states import CHUNKS, MOMENT, PLAIN, SQUARE, State

if TYPE_CHECKING:
    from .rule import Rule

ZERO = np.float32(0)
LR, SKIP, GRAD_FACTOR = control.LR, control.SKIP, control.GRAD_FACTOR


class _Runs(NamedTuple):
    """Inline functions on all states of an optimizer together; buffers and numbers are tuples, one
    per state. The buffers belong to the kernel's own frame: no helper returns one.

    Attributes:
      load: (args, buffers, i, count, scale).
      store: (args, buffers, i, count, key, last, scale); `last` is the key of the previous number.
      read: (args, buffers, j) -> number j of each.
      write: (buffers, j, numbers).
    """

    load: Callable
    store: Callable
    read: Callable
    write: Callable


@inline
def _no_load(args, buffers, i, count, scale):
    pass


@inline
def _no_store(args, buffers, i, count, key, last, scale):
    pass


@inline
def _no_numbers(args, buffers, j):
    return ()


@inline
def _no_write(buffers, j, numbers):
    pass


def _runs(
    rule: "Rule", states: tuple[State, ...], before: Storage, storages: tuple[Storage, ...]
) -> _Runs:
    """Functions of the first state, followed by those of the others; `before`: storage of the
    previous number."""
    if not states:
        return _Runs(_no_load, _no_store, _no_numbers, _no_write)
    (state, *_), storage = states, storages[0]
    rest = _runs(rule, states[1:], storage, storages[1:])
    salt, (address, is_there) = state.stream, _place(states, rule)
    shared, upper = _part(len(rule.states) - len(states), before, storage)
    load_one, store_one = _run_of(state.kind, storage, upper)
    load_rest, store_rest, read_rest, write_rest = rest

    @inline
    def load(args, buffers, i, count, scale):
        if is_there(args):
            load_one(buffers[0], address(args), i, count, scale)
        load_rest(args, buffers[1:], i, count, scale)

    @inline
    def store(args, buffers, i, count, key, last, scale):
        bits = last if shared else hash32(key, salt)
        if is_there(args):
            store_one(address(args), i, count, buffers[0], bits, scale)
        store_rest(args, buffers[1:], i, count, key, bits, scale)

    @inline
    def read(args, buffers, j):
        number = get(buffers[0], j) if is_there(args) else ZERO
        return (number,) + read_rest(args, buffers[1:], j)

    @inline
    def write(buffers, j, numbers):
        put(buffers[0], j, numbers[0])
        write_rest(buffers[1:], j, numbers[1:])

    return _Runs(load, store, read, write)


def _place(states: tuple[State, ...], rule: "Rule") -> tuple[Callable, Callable]:
    """Inline (args) -> address of the first of these states, and (args) -> whether it exists."""
    field = 2 + len(rule.states) - len(states)  # of the record: w and g come first

    @inline
    def address(args):
        return args[field]

    @inline
    def is_there(args):
        return address(args) != 0

    return address, is_there if states[0].optional else inline(lambda args: True)


def _part(place: int, before: Storage, storage: Storage) -> tuple[bool, bool]:
    """Whether the state at a place is rounded by the random numbers of the previous number, and
    whether by the upper bits of its random numbers. The weight counts as the number at place -1.

    The weight and the state at place 0 share an element's random number, and so do places 1 and 2,
    3 and 4: the former takes its upper bits, the latter the lower ones. Formats that need more than
    half of the bits have a random number of their own.
    """
    if place % 2:
        return False, _is_half(storage)
    return _is_half(before) and _is_half(storage), False


def _is_half(storage: Storage) -> bool:
    return storage.random_bits <= 16


def _run_of(kind: str, storage: Storage, upper: bool) -> tuple[Callable, Callable]:
    """(load, store) of runs of a state, like those of `moments`."""
    if kind == MOMENT:
        return moments(storage, upper)
    if kind == SQUARE:
        return second_moments(storage, upper)
    load_plain, store_plain = loader(storage), storer(storage, upper=upper)

    @inline
    def load(buffer, address, first, count, scale):
        load_plain(buffer, address, first, count)

    @inline
    def store(address, first, count, buffer, key, scale):
        store_plain(address, first, count, buffer, key)

    return load, store


def _update(rule: "Rule", span: Span, W: Storage, G: Storage, *storages: Storage) -> Callable:
    """Update runs of weights: all of them, or a layer's."""
    of, gradients, nbytes = span.of, span.gradients, G.nbytes
    load_w, load_g, zero = loader(W), loader(G), zeroing(G)
    store_w = storer(W, upper=_is_half(W))
    load, store, read, write = _runs(rule, tuple(rule.states), W, storages)
    per_step, update = _arithmetic(rule)

    def run(thread, nthreads, args):
        (lo, hi), grads = of(args, thread, nthreads), gradients(args, nbytes)
        if ld_i64(args.ctl, SKIP) != 0:
            zero(grads, lo, hi)
            return
        key, factor = stream(args.ctl, args.key), np.float32(ld_f64(args.ctl, GRAD_FACTOR))
        by, scale = per_step(args, ld_f64(args.ctl, LR)), state_scale(args.ctl)
        w, g, kept = new(), new(), (new(), new(), new(), new())
        for i in range(lo, hi, LENGTH):
            m = min(LENGTH, hi - i)
            load_w(w, args.w, i, m)
            load_g(g, grads, i, m)
            load(args, kept, i, m, scale)
            for j in range(m):
                mean = get(g, j) * factor
                moved, numbers = update(args, by, get(w, j), mean, read(args, kept, j))
                put(w, j, moved)
                write(kept, j, numbers)
            store_w(args.w, i, m, w, key)
            store(args, kept, i, m, key, key, scale)
        zero(grads, lo, hi)

    return run


def _arithmetic(rule: "Rule") -> tuple[Callable, Callable]:
    """Inline (per_step, update); with sums, `per_step` includes `settle`."""
    result = rule.arithmetic()
    per_step, update = inline(result.per_step), inline(result.update)
    if not rule.sums:
        return per_step, update
    assert result.settle is not None
    settle, totals = inline(result.settle), _totals(rule.sums)

    @inline
    def settled(args, rate):
        return settle(args, per_step(args, rate), totals(args.sums))

    return settled, update


def _totals(count: int) -> Callable:
    """Inline (sums) -> `count` totals of CHUNKS partial sums, each added in order."""
    if count == 0:
        return inline(lambda sums: ())
    before, first = _totals(count - 1), (count - 1) * CHUNKS

    @inline
    def totals(sums):
        total = 0.0
        for chunk in range(CHUNKS):
            total += ld_f64(sums, first + chunk)
        return before(sums) + (total,)

    return totals


def whole(rule: "Rule", *storages: Storage) -> Callable:
    """Update all of a weight, in any formats."""
    return _update(rule, WHOLE, *storages)


def layer(rule: "Rule", *storages: Storage) -> Callable:
    """Update a layer's slots of the pool (spans.py)."""
    return _update(rule, LAYER, *storages)


def sums(rule: "Rule", W: Storage, G: Storage, *storages: Storage) -> Callable:
    """Sum `terms` of all weights into args.sums, in fixed chunks, each in order. Threads split
    chunks."""
    load_w, load_g = loader(W), loader(G)
    load, _, read, _ = _runs(rule, tuple(rule.states), W, storages)
    result = rule.arithmetic()
    assert result.terms is not None
    per_step, terms, (zeros, add, put_sums) = (
        inline(result.per_step),
        inline(result.terms),
        _sums(rule.sums),
    )

    def run(thread, nthreads, args):
        if ld_i64(args.ctl, SKIP) != 0:
            return
        factor = np.float32(ld_f64(args.ctl, GRAD_FACTOR))
        by, scale = per_step(args, ld_f64(args.ctl, LR)), state_scale(args.ctl)
        w, g, kept = new(), new(), (new(), new(), new(), new())
        for chunk in range(div(CHUNKS * thread, nthreads), div(CHUNKS * (thread + 1), nthreads)):
            result, end = zeros(), part(args.n, chunk + 1, CHUNKS)
            for i in range(part(args.n, chunk, CHUNKS), end, LENGTH):
                m = min(LENGTH, end - i)
                load_w(w, args.w, i, m)
                load_g(g, args.g, i, m)
                load(args, kept, i, m, scale)
                for j in range(m):
                    numbers = terms(args, by, get(w, j), get(g, j) * factor, read(args, kept, j))
                    result = add(result, numbers)
            put_sums(args.sums, chunk, result)

    return run


def _sums(count: int) -> tuple[Callable, Callable, Callable]:
    """Inline (zeros, add, put) on tuples of `count` float64."""
    if count == 0:
        nothing = inline(lambda address, chunk, sums: None)
        return inline(lambda: ()), inline(lambda sums, terms: ()), nothing
    zeros_rest, add_rest, put_rest = _sums(count - 1)

    @inline
    def zeros():
        return (0.0,) + zeros_rest()

    @inline
    def add(sums, terms):
        return (sums[0] + terms[0],) + add_rest(sums[1:], terms[1:])

    @inline
    def put_all(address, chunk, sums):
        st_f64(address, chunk, sums[0])
        put_rest(address + 8 * CHUNKS, chunk, sums[1:])

    return zeros, add, put_all


class _AllLanes(NamedTuple):
    """Like _Runs, for vectors from memory to memory.

    Attributes:
      load: (args, i, count, scale) -> vectors.
      store: (args, i, vectors, count, draw, last, scale, peak) -> the largest magnitudes so far;
        `last` are the random numbers of the previous number.
      note: (args, peak, scale).
    """

    load: Callable
    store: Callable
    note: Callable


class _Draw(NamedTuple):
    """Source of a vector's random numbers: its counter combined with the weight's key; that key."""

    counter: Any
    key: Any


def _lanes(
    rule: "Rule", states: tuple[State, ...], before: Storage, storages: tuple[Storage, ...]
) -> _AllLanes:
    """Functions of the first state, followed by those of the others; `before`: storage of the
    previous number."""
    if not states:

        @inline
        def no_load(args, i, count, scale):
            return ()

        @inline
        def no_store(args, i, numbers, count, draw, last, scale, peak):
            return peak

        @inline
        def no_note(args, peak, scale):
            pass

        return _AllLanes(no_load, no_store, no_note)
    (state, *_), storage = states, storages[0]
    load_rest, store_rest, note_rest = _lanes(rule, states[1:], storage, storages[1:])
    salt, (address, is_there) = state.stream, _place(states, rule)
    shared, upper = _part(len(rule.states) - len(states), before, storage)
    load_one, store_one, note_one = _lanes_of(state.kind, storage, upper)

    @inline
    def load(args, i, count, scale):
        first = load_one(address(args), i, count, scale) if is_there(args) else vsplat(ZERO)
        return (first,) + load_rest(args, i, count, scale)

    @inline
    def store(args, i, numbers, count, draw, last, scale, peak):
        bits = last if shared else mix(draw.counter + (hash32(draw.key, salt) - draw.key))
        if is_there(args):
            peak = store_one(address(args), i, numbers[0], count, bits, scale, peak)
        return store_rest(args, i, numbers[1:], count, draw, bits, scale, peak)

    @inline
    def note(args, peak, scale):
        if is_there(args):
            note_one(peak, scale)
        note_rest(args, peak, scale)

    return _AllLanes(load, store, note)


def _lanes_of(kind: str, storage: Storage, upper: bool) -> Lanes:
    """`Lanes` of a state."""
    made = {MOMENT: vectors, SQUARE: second_vectors, PLAIN: plain_vectors}
    return made[kind](storage, upper)


def _wide(rule: "Rule", span: Span, W: Storage, G: Storage, *storages: Storage) -> Callable:
    """Like _update with vectors, in one pass that zeroes gradients as it reads them."""
    of, gradients, nbytes = span.of, span.gradients, G.nbytes
    load_w, load_g, store_w = loads_first(W), loads_first(G), drawn_stores(W, _is_half(W))
    store_g = stores(G)
    load, store, note = _lanes(rule, tuple(rule.states), W, storages)
    per_step, update = _arithmetic(rule)

    @inline
    def turn(args, grads, i, count, by, factor, draw, scale, peak):
        """Update `count` weights from i on, at most a vector of them."""
        gradient = load_g(grads, i, count) * factor
        value = load_w(args.w, i, count)
        moved, numbers = update(args, by, value, gradient, load(args, i, count, scale))
        random = mix(draw.counter)
        peak = store(args, i, numbers, count, draw, random, scale, peak)
        store_w(args.w, i, moved, count, random)
        store_g(grads, i, vsplat(ZERO), count)
        return peak

    def run(thread, nthreads, args):
        (lo, hi), grads = of(args, thread, nthreads), gradients(args, nbytes)
        if ld_i64(args.ctl, SKIP) != 0:
            for i in range(lo, hi, WIDTH):
                store_g(grads, i, vsplat(ZERO), hi - i)
            return
        key, factor = stream(args.ctl, args.key), np.float32(ld_f64(args.ctl, GRAD_FACTOR))
        by = per_step(args, ld_f64(args.ctl, LR))
        scale = state_scale(args.ctl)
        peak = ints(vsplat(ZERO))
        full_end, count = lo + ((max(hi - lo, 0) >> 4) << 4), counter(lo, key)
        for i in range(lo, full_end, WIDTH):
            peak = turn(args, grads, i, WIDTH, by, factor, _Draw(count, key), scale, peak)
            count = count + PASS
        if full_end < hi:
            left = hi - full_end
            peak = turn(args, grads, full_end, left, by, factor, _Draw(count, key), scale, peak)
        note(args, peak, scale)

    return run


def wide(rule: "Rule", *storages: Storage) -> Callable:
    """Update all of a weight with vectors."""
    return _wide(rule, WHOLE, *storages)


def wide_layer(rule: "Rule", *storages: Storage) -> Callable:
    """Update a layer's slots of the pool with vectors."""
    return _wide(rule, LAYER, *storages)


def zeroing(G: Storage) -> Callable:
    """Inline (g, lo, hi): zero gradients g[lo:hi]; lo is a multiple of 64."""
    if isinstance(G, Packed):

        @inline
        def zero_packed(g, lo, hi):
            if hi > lo:
                zero_blocks(g, lo, hi - lo)

        return zero_packed
    st = G.st

    @inline
    def zero(g, lo, hi):
        for i in range(lo, hi):
            st(g, i, ZERO)

    return zero
