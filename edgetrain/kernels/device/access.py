"""Values of the arena by their number in ROM: read, replaced, summed up."""

from ..drive.digest import crc32
from ..drive.floats import load_float, store_float
from ..drive.layout import PHASE, TYPES
from ..jit import inline
from ..registry import kernel
from ..words.packed import LENGTH, PACKED, loader, new, storer
from ..words.prim import FP32, ld_i32, ld_i64, st_i64, u32
from . import layout

PLAN, BUSY, REFUSED = layout.PLAN, layout.BUSY, layout.REFUSED
VALUES, VALUE_COUNT = layout.VALUES, layout.VALUE_COUNT
PACKED_FROM = len(TYPES)  # storages of VALUE_TYPES from here on are in blocks of 8 bits
STATES, STATE_COUNT = layout.STATES, layout.STATE_COUNT

_load_packed = PACKED["q8"].ld


@inline
def load_any(storage, value, e):
    """float32 element e of a value in any storage."""
    return load_float(storage, value, e) if storage < PACKED_FROM else _load_packed(value, e)


@kernel("drive_get", "memory rom number to out:w:i64[1]")
def drive_get():
    """float32 at address `to` = elements of value `number`; out: 0 or REFUSED."""
    st_f32 = FP32.st

    def run(thread, nthreads, k):
        if thread != 0:
            return
        if k.number < 0 or k.number >= ld_i64(k.rom, VALUE_COUNT):
            st_i64(k.out, 0, REFUSED)
            return
        row = ld_i64(k.rom, VALUES) + 12 * k.number
        value, storage = k.memory + ld_i32(row, 0), ld_i32(row, 2)
        for e in range(ld_i32(row, 1)):
            st_f32(k.to, e, load_any(storage, value, e))
        st_i64(k.out, 0, 0)

    return run


@kernel("drive_set", "memory rom number source out:w:i64[1]")
def drive_set():
    """Elements of value `number` = float32 at `source`, to nearest; out: 0, REFUSED or BUSY."""
    ld_f32, take, store_block = FP32.ld, loader(FP32), storer(PACKED["q8n"])

    def run(thread, nthreads, k):
        if thread != 0:
            return
        status, buffer = 0, new()
        if k.number < 0 or k.number >= ld_i64(k.rom, VALUE_COUNT):
            status = REFUSED
        elif ld_i64(ld_i64(k.memory, PLAN), PHASE) != 0:
            status = BUSY
        else:
            row = ld_i64(k.rom, VALUES) + 12 * k.number
            value, storage, size = k.memory + ld_i32(row, 0), ld_i32(row, 2), ld_i32(row, 1)
            if storage < PACKED_FROM:
                for e in range(size):
                    store_float(storage, value, e, ld_f32(k.source, e))
            else:
                for first in range(0, size, LENGTH):
                    m = min(LENGTH, size - first)
                    take(buffer, k.source, first, m)
                    store_block(value, first, m, buffer, u32(0))
        st_i64(k.out, 0, status)

    return run


@kernel("drive_sum", "memory rom out:w:i64[1]")
def drive_sum():
    """out: CRC-32 of what a checkpoint holds (weights, statistics, optimizer state), in order."""

    def run(thread, nthreads, k):
        if thread == 0:
            table, crc = ld_i64(k.rom, STATES), 0
            for i in range(ld_i64(k.rom, STATE_COUNT) - 1):
                at = k.memory + ld_i32(table, 3 * i)
                crc = crc32(at, ld_i32(table, 3 * i + 1), crc)
            st_i64(k.out, 0, crc)

    return run
