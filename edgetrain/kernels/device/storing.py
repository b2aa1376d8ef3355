"""The state in two slots of a store: whenever the power fails, one good state is left.

A save erases the slot without the newest good state, then writes names, values, and last the
header. A state is good if its magic, digest, length and CRC-32 are right; the newer of two has the
higher sequence number. Everything is read and written in multiples of 64 bytes, and each place is
written once between two erasures, as any flash allows.
"""

from ..language.calls import c_function, load_pointer
from ..language.inlining import inline
from ..language.prim import ld_i32, ld_i64, ld_u8, st_i64, st_u8
from ..registry import kernel
from ..step_loop import layout as plans
from ..step_loop.digest import crc32
from ..step_loop.minibatch import zero_ranges
from . import layout
from .rates import restore_rate

PLAN, WHOLE, BUFFER, BLOCK = layout.PLAN, layout.WHOLE, layout.BUFFER, layout.BLOCK
BUSY, NOTHING, FAILED = layout.BUSY, layout.NOTHING, layout.FAILED
NAMES, NAMES_NBYTES, DIGEST = layout.NAMES, layout.NAMES_NBYTES, layout.DIGEST
STATES, STATE_COUNT = layout.STATES, layout.STATE_COUNT
STORED_NBYTES, MAGIC, SEQUENCE = layout.STORED_NBYTES, layout.MAGIC, layout.SEQUENCE
STORED_DIGEST, LENGTH = layout.STORED_DIGEST, layout.LENGTH
ROWS, CRC = layout.ROWS, layout.CRC
CTL, PHASE, ZERO, ZEROS = plans.CTL, plans.PHASE, plans.ZERO, plans.ZEROS
USER, ERASE, WRITE, READ = 0, 1, 2, 3  # pointers of a store
SUMMED = 8 * CRC  # bytes of the header that its CRC covers
# int erase(void *user, int slot); int f(void *user, int slot, uint32_t at, void *data, uint32_t n)
call_erase = c_function("int", "void*", "int")
call_move = c_function("int", "void*", "int", "uint32_t", "void*", "uint32_t")


@inline
def _move(store, function, slot, offset, data, nbytes):
    user = load_pointer(store, USER)
    return call_move(load_pointer(store, function), user, slot, offset, data, nbytes)


@inline
def _sequence(store, buffer, rom, slot):
    """Sequence number of the good state in a slot, or -1."""
    if _move(store, READ, slot, 0, buffer, BLOCK) != 0:
        return -1
    good = ld_i64(buffer, 0) == MAGIC and ld_i64(buffer, LENGTH) == ld_i64(rom, STORED_NBYTES)
    for k in range(2):
        good = good and ld_i64(buffer, STORED_DIGEST + k) == ld_i64(rom, DIGEST + k)
    sequence, wanted = ld_i64(buffer, SEQUENCE), ld_i64(buffer, CRC)
    if not good or sequence < 1:
        return -1
    crc, offset = crc32(buffer, SUMMED, 0), BLOCK
    while offset < BLOCK + ld_i64(rom, STORED_NBYTES):
        if _move(store, READ, slot, offset, buffer, BLOCK) != 0:
            return -1
        crc = crc32(buffer, BLOCK, crc)
        offset += BLOCK
    return sequence if crc == wanted else -1


@inline
def _newest(store, buffer, rom):
    """(sequence of the newest good state, its slot); (-1, 0) if there is none."""
    newest, result = -1, 0
    for slot in range(2):
        sequence = _sequence(store, buffer, rom, slot)
        if sequence > newest:
            newest, result = sequence, slot
    return newest, result


@inline
def _block_of(buffer, source, nbytes):
    """Copy `nbytes` of `source` to the buffer, padded with zeros."""
    for k in range(8):
        st_i64(buffer, k, 0)
    for k in range(nbytes):
        st_u8(buffer, k, ld_u8(source, k))


@inline
def _header(buffer, rom, sequence):
    """Write the header to the buffer, without its CRC."""
    for k in range(8):
        st_i64(buffer, k, 0)
    st_i64(buffer, 0, MAGIC)
    st_i64(buffer, SEQUENCE, sequence)
    st_i64(buffer, STORED_DIGEST, ld_i64(rom, DIGEST))
    st_i64(buffer, STORED_DIGEST + 1, ld_i64(rom, DIGEST + 1))
    st_i64(buffer, LENGTH, ld_i64(rom, STORED_NBYTES))
    st_i64(buffer, ROWS, ld_i64(rom, STATE_COUNT))


@inline
def _write_names(store, buffer, rom, slot, crc):
    """Write the table of names after the header; returns the CRC, or -1."""
    for offset in range(0, ld_i64(rom, NAMES_NBYTES), BLOCK):
        _block_of(buffer, ld_i64(rom, NAMES) + offset, BLOCK)
        crc = crc32(buffer, BLOCK, crc)
        if _move(store, WRITE, slot, BLOCK + offset, buffer, BLOCK) != 0:
            return -1
    return crc


@inline
def _write_values(store, buffer, memory, rom, slot, crc):
    """Write every value; returns the CRC, or -1."""
    table = ld_i64(rom, STATES)
    for k in range(ld_i64(rom, STATE_COUNT)):
        value, nbytes = memory + ld_i32(table, 3 * k), ld_i32(table, 3 * k + 1)
        offset, tail = ld_i32(table, 3 * k + 2), nbytes & (BLOCK - 1)
        full = nbytes - tail
        crc = crc32(value, full, crc)
        if full != 0 and _move(store, WRITE, slot, offset, value, full) != 0:
            return -1
        if tail != 0:
            _block_of(buffer, value + full, tail)
            crc = crc32(buffer, BLOCK, crc)
            if _move(store, WRITE, slot, offset + full, buffer, BLOCK) != 0:
                return -1
    return crc


@inline
def _write_state(store, buffer, memory, rom, slot, sequence):
    """Write a state to a slot; returns 0 or FAILED."""
    if call_erase(load_pointer(store, ERASE), load_pointer(store, USER), slot) != 0:
        return FAILED
    _header(buffer, rom, sequence)
    crc = _write_names(store, buffer, rom, slot, crc32(buffer, SUMMED, 0))
    if crc >= 0:
        crc = _write_values(store, buffer, memory, rom, slot, crc)
    if crc < 0:
        return FAILED
    _header(buffer, rom, sequence)
    st_i64(buffer, CRC, crc)
    if _move(store, WRITE, slot, 0, buffer, BLOCK) != 0:
        return FAILED
    return 0 if _sequence(store, buffer, rom, slot) == sequence else FAILED


@kernel("drive_save", "memory=host rom=host store=host out:w:i64[1]")
def drive_save():
    """Save the state, between two minibatches, to the slot without the newest state; reads it back.

    store: address of {user, erase, write, read}. out: 0, BUSY or FAILED; in these cases the
    previous state is still the newest.
    """

    def run(thread, nthreads, args):
        if thread != 0:
            return
        if ld_i64(ld_i64(args.memory, PLAN), PHASE) != 0:
            st_i64(args.out, 0, BUSY)
            return
        buffer = args.memory + 8 * BUFFER
        newest, slot = _newest(args.store, buffer, args.rom)
        slot = 1 - slot if newest > 0 else 0
        sequence = max(0, newest) + 1
        st_i64(args.out, 0, _write_state(args.store, buffer, args.memory, args.rom, slot, sequence))

    return run


@kernel("drive_load", "memory=host rom=host store=host out:w:i64[1]")
def drive_load():
    """Load the newest good state of this Program; out: 0, NOTHING or FAILED (open again then).

    A half-done minibatch is discarded.
    """

    @inline
    def copy(store, buffer, memory, rom, slot):
        table = ld_i64(rom, STATES)
        for k in range(ld_i64(rom, STATE_COUNT)):
            value, nbytes = memory + ld_i32(table, 3 * k), ld_i32(table, 3 * k + 1)
            offset, tail = ld_i32(table, 3 * k + 2), nbytes & (BLOCK - 1)
            full = nbytes - tail
            if full != 0 and _move(store, READ, slot, offset, value, full) != 0:
                return FAILED
            if tail != 0:
                if _move(store, READ, slot, offset + full, buffer, BLOCK) != 0:
                    return FAILED
                for e in range(tail):
                    st_u8(value + full, e, ld_u8(buffer, e))
        return 0

    def run(thread, nthreads, args):
        if thread != 0:
            return
        buffer, plan = args.memory + 8 * BUFFER, ld_i64(args.memory, PLAN)
        newest, slot = _newest(args.store, buffer, args.rom)
        if newest < 1:
            st_i64(args.out, 0, NOTHING)
            return
        status = copy(args.store, buffer, args.memory, args.rom, slot)
        zero_ranges(ld_i64(plan, ZERO), ld_i64(plan, ZEROS))
        st_i64(plan, PHASE, 0)
        st_i64(args.memory, WHOLE, 0)  # the counts are no longer those of an evaluation
        restore_rate(args.memory, args.rom, ld_i64(plan, CTL))
        st_i64(args.out, 0, status)

    return run
