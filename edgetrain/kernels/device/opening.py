"""The first call: zeroes the memory and sets initial values and addresses."""

from ..language.calls import c_function
from ..language.inlining import inline
from ..language.prim import div, ld_i32, ld_i64, ld_u8, st_i32, st_i64, st_u8
from ..registry import kernel
from . import layout

MEMORY, INITS, INIT_COUNT = layout.MEMORY, layout.INITS, layout.INIT_COUNT
LITERALS, LITERAL_COUNT = layout.LITERALS, layout.LITERAL_COUNT
RELATIVES, RELATIVE_COUNT = layout.RELATIVES, layout.RELATIVE_COUNT
ADDRESSES, ADDRESS_COUNT = layout.ADDRESSES, layout.ADDRESS_COUNT

# int read(void *user, void *to, uint32_t offset, uint32_t bytes)
call_read = c_function("int", "void*", "void*", "uint32_t", "uint32_t")


@inline
def place_words(memory, rom):
    """Set words of the memory from ROM's tables: literals, addresses in the memory, other
    addresses."""
    table = ld_i64(rom, LITERALS)
    for i in range(ld_i64(rom, LITERAL_COUNT)):
        st_i32(memory + ld_i32(table, 2 * i), 0, ld_i32(table, 2 * i + 1))
    table = ld_i64(rom, RELATIVES)
    for i in range(ld_i64(rom, RELATIVE_COUNT)):
        st_i64(memory + ld_i32(table, 2 * i), 0, memory + ld_i32(table, 2 * i + 1))
    table = ld_i64(rom, ADDRESSES)
    for i in range(ld_i64(rom, ADDRESS_COUNT)):
        st_i64(memory + ld_i64(table, 2 * i), 0, ld_i64(table, 2 * i + 1))


@kernel("drive_open", "memory=host rom=host read=host source=host out:w:i64[1]")
def drive_open():
    """Initialise the memory. memory: address of MEMORY (ROM) bytes, a multiple of 8; overwritten.

    source: address of the initial values; if `read` is not 0, the argument with which `read` is
    called for each of them. out: 0, or the number that `read` returned.
    """

    def run(thread, nthreads, args):
        if thread != 0:
            return
        for i in range(div(ld_i64(args.rom, MEMORY), 8)):
            st_i64(args.memory, i, 0)
        table, status = ld_i64(args.rom, INITS), 0
        for i in range(ld_i64(args.rom, INIT_COUNT)):
            from_, address = ld_i32(table, 3 * i), args.memory + ld_i32(table, 3 * i + 1)
            nbytes = ld_i32(table, 3 * i + 2)
            if args.read == 0:
                for e in range(nbytes):
                    st_u8(address, e, ld_u8(args.source + from_, e))
            elif status == 0:
                status = call_read(args.read, args.source, address, from_, nbytes)
        st_i64(args.out, 0, status)
        place_words(args.memory, args.rom)

    return run
