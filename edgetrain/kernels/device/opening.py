"""The first call: everything zero, initial values into the arena, addresses into their words."""

from ..drive.words import copy_byte
from ..registry import kernel
from ..words.prim import div, ld_i32, ld_i64, st_i32, st_i64
from . import layout
from .words import call_copy

MEMORY, INITS, INIT_COUNT = layout.MEMORY, layout.INITS, layout.INIT_COUNT
LITERALS, LITERAL_COUNT = layout.LITERALS, layout.LITERAL_COUNT
RELATIVES, RELATIVE_COUNT = layout.RELATIVES, layout.RELATIVE_COUNT
ADDRESSES, ADDRESS_COUNT = layout.ADDRESSES, layout.ADDRESS_COUNT
AT_ONCE = 1 << 16  # bytes that a caller's function copies


@kernel("drive_open", "memory rom copy")
def drive_open():
    """memory: address of ROM's MEMORY bytes, a multiple of 8; what they held is lost.

    copy: the caller's `copy(to, from, bytes)` for the initial values; 0: they are copied here.
    """

    def run(thread, nthreads, k):
        if thread != 0:
            return
        for i in range(div(ld_i64(k.rom, MEMORY), 8)):
            st_i64(k.memory, i, 0)
        table = ld_i64(k.rom, INITS)
        for i in range(ld_i64(k.rom, INIT_COUNT)):
            source, at = ld_i64(table, 3 * i), k.memory + ld_i64(table, 3 * i + 1)
            nbytes = ld_i64(table, 3 * i + 2)
            if k.copy != 0:
                for e in range(0, nbytes, AT_ONCE):
                    call_copy(k.copy, at + e, source + e, min(AT_ONCE, nbytes - e))
            else:
                for e in range(nbytes):
                    copy_byte(at, source, e)
        table = ld_i64(k.rom, LITERALS)
        for i in range(ld_i64(k.rom, LITERAL_COUNT)):
            st_i32(k.memory + ld_i32(table, 2 * i), 0, ld_i32(table, 2 * i + 1))
        table = ld_i64(k.rom, RELATIVES)
        for i in range(ld_i64(k.rom, RELATIVE_COUNT)):
            st_i64(k.memory + ld_i32(table, 2 * i), 0, k.memory + ld_i32(table, 2 * i + 1))
        table = ld_i64(k.rom, ADDRESSES)
        for i in range(ld_i64(k.rom, ADDRESS_COUNT)):
            st_i64(k.memory + ld_i64(table, 2 * i), 0, ld_i64(table, 2 * i + 1))

    return run
