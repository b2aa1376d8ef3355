"""Reads, sets and checksums values of the arena, by their number in ROM."""

from ..language.inlining import inline
from ..language.packed import LENGTH, PACKED, loader, new, storer
from ..language.prim import FP32, ld_i32, ld_i64, st_i64, u32
from ..registry import kernel
from ..step_loop.digest import crc32
from ..step_loop.floats import load_float, store_float
from ..step_loop.layout import PHASE
from . import layout

PLAN, BUSY, REFUSED = layout.PLAN, layout.BUSY, layout.REFUSED
VALUES, VALUE_COUNT = layout.VALUES, layout.VALUE_COUNT
BLOCKED_FROM, BLOCKED_TO = layout.BLOCKED_FROM, layout.BLOCKED_TO  # in blocks of 8 bits
STATES, STATE_COUNT = layout.STATES, layout.STATE_COUNT

_load_packed = PACKED["q8"].ld
_LD_F32, _ST_F32 = FP32.ld, FP32.st
_take, _store_block = loader(FP32), storer(PACKED["q8n"])


@inline
def _load_any(storage, value, e):
    """Element e of a value in any storage, as float32."""
    if storage >= BLOCKED_FROM and storage <= BLOCKED_TO:
        return _load_packed(value, e)
    return load_float(storage, value, e)


@inline
def _set_floats(storage, value, size, source):
    for e in range(size):
        store_float(storage, value, e, _LD_F32(source, e))


@inline
def _set_any(storage, value, size, source):
    if storage < BLOCKED_FROM or storage > BLOCKED_TO:
        _set_floats(storage, value, size, source)
        return
    buffer = new()
    for first in range(0, size, LENGTH):
        m = min(LENGTH, size - first)
        _take(buffer, source, first, m)
        _store_block(value, first, m, buffer, u32(0))


def _getting(load):
    """Copy the elements of value `number` as float32 to address `to`; out: 0 or REFUSED."""

    def run(thread, nthreads, args):
        if thread != 0:
            return
        if args.number < 0 or args.number >= ld_i64(args.rom, VALUE_COUNT):
            st_i64(args.out, 0, REFUSED)
            return
        row = ld_i64(args.rom, VALUES) + 12 * args.number
        value, storage = args.memory + ld_i32(row, 0), ld_i32(row, 2)
        for e in range(ld_i32(row, 1)):
            _ST_F32(args.to, e, load(storage, value, e))
        st_i64(args.out, 0, 0)

    return run


def _setting(fill):
    """Set the elements of value `number` from float32 at `source`, rounded to nearest; out: 0,
    REFUSED or BUSY."""

    def run(thread, nthreads, args):
        if thread != 0:
            return
        status = 0
        if args.number < 0 or args.number >= ld_i64(args.rom, VALUE_COUNT):
            status = REFUSED
        elif ld_i64(ld_i64(args.memory, PLAN), PHASE) != 0:
            status = BUSY
        else:
            row = ld_i64(args.rom, VALUES) + 12 * args.number
            value, storage = args.memory + ld_i32(row, 0), ld_i32(row, 2)
            fill(storage, value, ld_i32(row, 1), args.source)
        st_i64(args.out, 0, status)

    return run


@kernel("drive_get", "memory=host rom=host number=host to=host out:w:i64[1]")
def drive_get():
    """`_getting`, if no value is in blocks."""
    return _getting(load_float)


@kernel("drive_get_packed", "memory=host rom=host number=host to=host out:w:i64[1]")
def drive_get_packed():
    """`_getting` for values in any storage."""
    return _getting(_load_any)


@kernel("drive_set", "memory=host rom=host number=host source=host out:w:i64[1]")
def drive_set():
    """`_setting`, if no value is in blocks."""
    return _setting(_set_floats)


@kernel("drive_set_packed", "memory=host rom=host number=host source=host out:w:i64[1]")
def drive_set_packed():
    """`_setting` for values in any storage."""
    return _setting(_set_any)


@kernel("drive_sum", "memory=host rom=host out:w:i64[1]")
def drive_sum():
    """out: CRC-32 of a checkpoint's content (weights, statistics, optimizer state), in order."""

    def run(thread, nthreads, args):
        if thread == 0:
            table, crc = ld_i64(args.rom, STATES), 0
            for i in range(ld_i64(args.rom, STATE_COUNT) - 1):
                address = args.memory + ld_i32(table, 3 * i)
                crc = crc32(address, ld_i32(table, 3 * i + 1), crc)
            st_i64(args.out, 0, crc)

    return run
