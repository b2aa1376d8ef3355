"""Rewiring of sparse weights in place: small weights are dropped, and as many grow elsewhere.

All sparse layers share one pool of slots, layer after layer (formats/csr.py, conv/csr.py). Kernels
run in this order:

    csr_drop      sets small weights to 0; a weight of 0 is a gap in the pool
    csr_compress  moves optimizer state of the remaining weights to the front of its array
    csr_close     moves the remaining weights together
    csr_share     decides how many weights each layer grows
    csr_grow      moves the weights to their final slots, with new weights, 0, between them
    csr_expand    moves optimizer state to the same slots, 0 for new weights
    csr_reset     or sets all of the state to 0

They share a table of int64 words: a header (write position, weights dropped, unused, threshold as
float64), then for each layer the most weights that it may have, the weights that remain, and the
weights that it grows. Thread 0 does all the work, in a fixed order. Numbers in blocks are rounded
again when they move (language/moves.py).
"""

import numpy as np

from .. import control
from ..language.inlining import inline
from ..language.moves import clearing, moving, wiping
from ..language.packed import new
from ..language.prim import (
    div,
    float_bits,
    hash32,
    ld_f64,
    ld_i32,
    ld_i64,
    mod,
    st_f64,
    st_i32,
    st_i64,
    to_float,
    to_int,
    u32,
)
from ..language.rng import stream
from ..registry import kernel

ZERO, ONE = np.float32(0), np.float32(1)
# Streams for rounding numbers that move, different from the instruction's others.
ROUNDED, EXPANDED = 0x2C1B3C6D, 0x297A2D39

# As in formats/csr.py, which kernels do not import.
WRITE, PRUNED, THRESHOLD, HEADER = 0, 1, 3, 8
CAP, KEPT, GROWN, WORDS = 0, 1, 2, 4

_POOL = "w:m:W[slots] columns:m:I[slots]"
_TABLE = f"table:m:i64[{HEADER}+{WORDS}*layers]"


def _smallest(W):
    """smallest(w, first, last, wanted): (bits of the wanted-th smallest magnitude, how many lie
    strictly below it); bits of positive floats rise with them."""
    ld = W.ld

    @inline
    def smallest(w, first, last, wanted):
        low, high = 0, 0x7FFFFFFF
        while low < high:
            middle, count = (low + high) >> 1, 0
            for e in range(first, last):
                if (float_bits(ld(w, e)) & 0x7FFFFFFF) <= middle:
                    count += 1
            if count >= wanted:
                high = middle
            else:
                low = middle + 1
        below = 0
        for e in range(first, last):
            if (float_bits(ld(w, e)) & 0x7FFFFFFF) < low:
                below += 1
        return low, below

    return smallest


@kernel(
    "csr_drop",
    f"w:m:W[slots] pointers:r:i32[groups+1] {_TABLE} slots groups layers layer fraction:f",
    check="layer >= 0;layer < layers;min(slots, groups) > 0",
    work="32*slots",
    blocks="W",
    writes="w=parameter",
)
def csr_drop(W):
    """Set a layer's small nonzeros to zero.

    fraction 0: magnitudes below the table's threshold; otherwise that fraction of the layer's
    nonzeros, the smallest ones, and the first of equal ones.
    """
    ld, clear = W.ld, clearing(W)
    smallest = _smallest(W)

    def run(thread, nthreads, args):
        if thread != 0:
            return
        first, last = ld_i32(args.pointers, 0), ld_i32(args.pointers, args.groups)
        limit, ties = int(float_bits(np.float32(ld_f64(args.table, THRESHOLD)))), 0
        wanted = to_int(to_float(last - first) * args.fraction)
        if wanted > 0:
            limit, ties = smallest(args.w, first, last, wanted)
            ties = wanted - ties
        elif args.fraction > ZERO:
            limit = 0
        for e in range(first, last):
            size = int(float_bits(ld(args.w, e)) & 0x7FFFFFFF)
            if size < limit:
                clear(args.w, e)
            elif size == limit and ties > 0:
                ties -= 1
                clear(args.w, e)

    return run


@kernel(
    "csr_close",
    f"{_POOL} pointers:m:i32[groups+1] {_TABLE} ctl:r:i64[64] slots "
    "groups layers layer key=compared",
    check="layer >= 0;layer < layers;min(slots, groups) > 0",
    blocks="W",
    writes="w=parameter",
)
def csr_close(W, INDEX):
    """Move a layer's nonzero weights together, right after those of the previous layer.

    Layers run in pool order. Written: pool, columns, pointers, table.
    """
    ld, ldc, stc = W.ld, INDEX.ld, INDEX.st
    begin, push, finish = moving(W, rising=True, keep=True).values()

    def run(thread, nthreads, args):
        if thread != 0:
            return
        buffer, numbers = new(), stream(args.ctl, args.key)
        if args.layer == 0:
            st_i64(args.table, WRITE, 0)
            st_i64(args.table, PRUNED, 0)
        first, last = ld_i32(args.pointers, 0), ld_i32(args.pointers, args.groups)
        read, start = first, ld_i64(args.table, WRITE)
        write = start
        begin(buffer, args.w, start)
        for q in range(args.groups):
            stop = ld_i32(args.pointers, q + 1)
            st_i32(args.pointers, q, write)
            for e in range(read, stop):
                value = ld(args.w, e)
                if value != ZERO:
                    push(buffer, args.w, write, value, numbers)
                    stc(args.columns, write, ldc(args.columns, e))
                    write += 1
            read = stop
        st_i32(args.pointers, args.groups, write)
        if write > start:
            finish(buffer, args.w, write, numbers)
        dropped = (last - first) - (write - start)
        st_i64(args.table, WRITE, write)
        st_i64(args.table, PRUNED, ld_i64(args.table, PRUNED) + dropped)
        st_i64(args.table, HEADER + WORDS * args.layer + KEPT, write - start)
        st_i64(args.table, HEADER + WORDS * args.layer + GROWN, dropped)

    return run


_STATE = {"check": "slots > 0", "blocks": "S W", "writes": "y=state"}


def _pushing(S, rising):
    """Like `moving`, for state; root 1: second moments, which stay nonzero if they are."""
    begin, push, finish = moving(S, rising).values()
    _, push_root, finish_root = moving(S, rising, keep=True).values()

    @inline
    def push_state(buffer, y, write, value, key, root):
        if root != 0:
            push_root(buffer, y, write, value, key)
        else:
            push(buffer, y, write, value, key)

    @inline
    def finish_state(buffer, y, write, key, root):
        if root != 0:
            finish_root(buffer, y, write, key)
        else:
            finish(buffer, y, write, key)

    return begin, push_state, finish_state


@kernel(
    "csr_compress", "y:m:S[slots] w:r:W[slots] ctl:r:i64[64] slots key=compared root=flag", **_STATE
)
def csr_compress(S, W):
    """Move optimizer state of the pool's nonzeros to the front, as `csr_close` moves weights."""
    ld, ldw = S.ld, W.ld
    _, push, finish = _pushing(S, rising=True)

    def run(thread, nthreads, args):
        if thread != 0:
            return
        buffer, numbers, write = new(), stream(args.ctl, args.key), 0
        for e in range(args.slots):
            if ldw(args.w, e) != ZERO:
                push(buffer, args.y, write, ld(args.y, e), numbers, args.root)
                write += 1
        finish(buffer, args.y, write, numbers, args.root)

    return run


@kernel(
    "csr_expand", "y:m:S[slots] w:r:W[slots] ctl:r:i64[64] slots key=compared root=flag", **_STATE
)
def csr_expand(S, W):
    """Move optimizer state at the front to the slots where `csr_grow` put the nonzeros; 0
    elsewhere."""
    ld, ldw = S.ld, W.ld
    begin, push, _ = _pushing(S, rising=False)

    def run(thread, nthreads, args):
        if thread != 0:
            return
        buffer, numbers, read = new(), hash32(stream(args.ctl, args.key), EXPANDED), 0
        begin(buffer, args.y, args.slots)
        for e in range(args.slots):
            if ldw(args.w, e) != ZERO:
                read += 1
        for e in range(args.slots - 1, -1, -1):
            value = ZERO
            if ldw(args.w, e) != ZERO:
                read -= 1
                value = ld(args.y, read)
            push(buffer, args.y, e, value, numbers, args.root)

    return run


@kernel(
    "csr_reset",
    "y:m:S[slots] ctl:r:i64[64] slots least=turns",
    check="slots > 0",
    blocks="S",
    writes="y=state",
)
def csr_reset(S):
    """Reset the pool's optimizer state to 0 in runs of `least` steps or more."""
    wipe = wiping(S)

    def run(thread, nthreads, args):
        if thread == 0 and ld_i64(args.ctl, control.TOTAL_STEPS) >= args.least:
            wipe(args.y, args.slots)

    return run


@inline
def _ratio(a, b, c):
    """floor(a * b / c) below 2^31, for numbers below 2^31: small processors divide only 32 bits."""
    rest, out = a * b, 0
    for bit in range(30, -1, -1):
        if (c << bit) <= rest:
            rest -= c << bit
            out += 1 << bit
    return out


@kernel(
    "csr_share", f"{_TABLE} layers target=size tolerance:f factor:f own=flag", check="layers > 0"
)
def csr_share():
    """Decide how many nonzeros each layer grows: as many as it dropped (own 1), or the dropped ones
    of all layers in proportion to their survivors (a layer that lost all counts as one); what
    exceeds a layer's cap goes to the others in order.

    Then the threshold is multiplied by `factor` if fewer than target * (1 - tolerance) were
    dropped, divided if more than target * (1 + tolerance) were. Written: table.
    """

    def run(thread, nthreads, args):
        if thread != 0 or args.own != 0:
            return
        dropped, parts = ld_i64(args.table, PRUNED), 0
        before, given, over = 0, 0, 0
        for layer in range(args.layers):
            parts += max(ld_i64(args.table, HEADER + WORDS * layer + KEPT), 1)
        for layer in range(args.layers):
            word = HEADER + WORDS * layer
            kept = ld_i64(args.table, word + KEPT)
            before += max(kept, 1)
            share = _ratio(dropped, before, parts) - given
            given += share
            room = ld_i64(args.table, word + CAP) - kept
            grown = min(share, room)
            over += share - grown
            st_i64(args.table, word + GROWN, grown)
        over += dropped - given
        for layer in range(args.layers):
            word = HEADER + WORDS * layer
            grown = ld_i64(args.table, word + GROWN)
            more = min(
                over, ld_i64(args.table, word + CAP) - ld_i64(args.table, word + KEPT) - grown
            )
            st_i64(args.table, word + GROWN, grown + more)
            over -= more
        result, aim = to_float(dropped), to_float(args.target)
        threshold = ld_f64(args.table, THRESHOLD)
        if result < aim * (ONE - args.tolerance):
            st_f64(args.table, THRESHOLD, threshold * np.float64(args.factor))
        elif result > aim * (ONE + args.tolerance):
            st_f64(args.table, THRESHOLD, threshold / np.float64(args.factor))

    return run


@kernel(
    "csr_grow",
    f"{_POOL} pointers:m:i32[rows*((channels+chunk-1)//chunk)+1] {_TABLE} ctl:r:i64[64] "
    "slots rows channels taps chunk layers layer key=compared",
    check="layer >= 0;layer < layers;min(slots, rows, channels, taps, chunk) > 0",
    work="rows*channels*taps",
    blocks="W",
    writes="w=parameter",
)
def csr_grow(W, INDEX):
    """Move a layer's survivors to their final slots, with its new nonzeros, zero, among them.

    Layers run from the last to the first, so nothing is overwritten before it is read. Empty
    positions are visited from the last to the first and taken with probability still wanted / still
    empty: a uniform draw without replacement. Written: pool, columns, pointers, table. Source:
    Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S.
    """
    ld, ldc, stc = W.ld, INDEX.ld, INDEX.st
    begin, push, finish = moving(W, rising=False, keep=True).values()

    def run(thread, nthreads, args):
        if thread != 0:
            return
        numbers = stream(args.ctl, u32(args.key))
        chunks = div(args.channels + args.chunk - 1, args.chunk)
        word = HEADER + WORDS * args.layer
        kept, wanted = ld_i64(args.table, word + KEPT), ld_i64(args.table, word + GROWN)
        empty = args.rows * args.channels * args.taps - kept
        if args.layer == args.layers - 1:
            write = kept + wanted
            for other in range(args.layers - 1):
                before = HEADER + WORDS * other
                write += ld_i64(args.table, before + KEPT) + ld_i64(args.table, before + GROWN)
        else:
            write = ld_i64(args.table, WRITE)
        buffer, rounding, end = new(), hash32(numbers, ROUNDED), write
        begin(buffer, args.w, end)
        high = ld_i32(args.pointers, args.rows * chunks)
        for q in range(args.rows * chunks - 1, -1, -1):
            low = ld_i32(args.pointers, q)
            st_i32(args.pointers, q + 1, write)
            first = mod(q, chunks) * args.chunk
            read = high - 1
            for column in range(min(args.chunk, args.channels - first) * args.taps - 1, -1, -1):
                if read >= low and ldc(args.columns, read) == column:
                    write -= 1
                    push(buffer, args.w, write, ld(args.w, read), rounding)
                    stc(args.columns, write, column)
                    read -= 1
                    continue
                if wanted > 0:
                    drawn = hash32(
                        numbers, (div(q, chunks) * args.channels + first) * args.taps + column
                    )
                    if int(drawn) * empty < wanted << 32:
                        write -= 1
                        wanted -= 1
                        push(buffer, args.w, write, ZERO, rounding)
                        stc(args.columns, write, column)
                empty -= 1
            high = low
        if write < end:
            finish(buffer, args.w, write, rounding)
        st_i32(args.pointers, 0, write)
        st_i64(args.table, WRITE, write)

    return run
