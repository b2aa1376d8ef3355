"""A checksum of the state: CRC-32 as in zlib, so any host can check a device's.

Source: ISO 3309; the table of 16 words is Sarwate 1988 by half bytes.
"""

import numpy as np

from ..language.inlining import inline
from ..language.prim import ld_i64, ld_u8, st_i64
from ..registry import kernel

_POLYNOMIAL = 0xEDB88320
_4 = np.uint32(4)


def _table() -> tuple[np.uint32, ...]:
    out = []
    for value in range(16):
        for _ in range(4):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        out.append(np.uint32(value))
    return tuple(out)


_TABLE = _table()
_ONES = np.uint32(0xFFFFFFFF)


@inline
def crc32(address, nbytes, before):
    """CRC-32 of these bytes, continuing from the CRC `before`; 0 starts a new one."""
    crc = np.uint32(before) ^ _ONES
    for k in range(nbytes):
        crc = crc ^ np.uint32(ld_u8(address, k))
        crc = _TABLE[crc & np.uint32(15)] ^ (crc >> _4)
        crc = _TABLE[crc & np.uint32(15)] ^ (crc >> _4)
    return np.int64(crc ^ _ONES)


@kernel("drive_digest", "out:w:i64[1] parts=host count before=host", check="count >= 0")
def drive_digest():
    """out: CRC-32 of `count` parts in order, after `before`; `parts`: pairs (address, bytes)."""

    def run(thread, nthreads, args):
        if thread == 0:
            crc = args.before
            for i in range(args.count):
                crc = crc32(ld_i64(args.parts, 2 * i), ld_i64(args.parts, 2 * i + 1), crc)
            st_i64(args.out, 0, crc)

    return run
