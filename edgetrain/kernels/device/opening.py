"""The first call: everything zero, initial values into the arena, addresses into their words."""

from ..drive.words import copy_byte
from ..registry import kernel
from ..words.prim import div, ld_i32, ld_i64, st_i32, st_i64
from . import layout

MEMORY, INITS, INIT_COUNT = layout.MEMORY, layout.INITS, layout.INIT_COUNT
LITERALS, LITERAL_COUNT = layout.LITERALS, layout.LITERAL_COUNT
RELATIVES, RELATIVE_COUNT = layout.RELATIVES, layout.RELATIVE_COUNT
ADDRESSES, ADDRESS_COUNT = layout.ADDRESSES, layout.ADDRESS_COUNT


@kernel("drive_open", "memory rom")
def drive_open():
    """memory: address of ROM's MEMORY bytes, a multiple of 8; what they held is lost."""

    def run(thread, nthreads, memory, rom):
        if thread != 0:
            return
        for k in range(div(ld_i64(rom, MEMORY), 8)):
            st_i64(memory, k, 0)
        table = ld_i64(rom, INITS)
        for k in range(ld_i64(rom, INIT_COUNT)):
            source, at = ld_i64(table, 3 * k), memory + ld_i64(table, 3 * k + 1)
            for e in range(ld_i64(table, 3 * k + 2)):
                copy_byte(at, source, e)
        table = ld_i64(rom, LITERALS)
        for k in range(ld_i64(rom, LITERAL_COUNT)):
            st_i32(memory + ld_i32(table, 2 * k), 0, ld_i32(table, 2 * k + 1))
        table = ld_i64(rom, RELATIVES)
        for k in range(ld_i64(rom, RELATIVE_COUNT)):
            st_i64(memory + ld_i32(table, 2 * k), 0, memory + ld_i32(table, 2 * k + 1))
        table = ld_i64(rom, ADDRESSES)
        for k in range(ld_i64(rom, ADDRESS_COUNT)):
            st_i64(memory + ld_i64(table, 2 * k), 0, ld_i64(table, 2 * k + 1))

    return run
