"""gemm, gather and unpack of frozen weights in groups: `gemm_g8`, `gemm_g4` and so on.

The panels of gemm's tiles are decoded as they are packed, so that only a panel of a weight is
float32 at a time. Sums equal those of gemm with the decoded weight, bit for bit.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from ...formats import GROUPED
from ..blocks import unpack
from ..blocks.groups import GROUPS, Grouped, rows_decoder
from ..indexing import gather
from ..language.block import stack
from ..language.inlining import inline
from ..language.prim import FP32
from ..language.square import copier, transposer
from ..language.tiles import GEMM
from ..language.vector import WIDTH
from ..registry import kernel
from . import fast, plain

_PITCH = fast.KC + 2 * WIDTH  # floats of a decoded row, with room for alignment


@functools.cache
def packer(B: Grouped, side: int):
    """Like gemm_fast's `_column_packer`, for groups: rows of terms are decoded to the stack and
    transposed from there."""
    copy, transpose = copier(FP32), transposer(FP32, side)
    decode, ld, st, buffer = rows_decoder(B), B.ld, FP32.st, stack(4 * WIDTH * _PITCH)

    @inline
    def turn(b, offset, panel, terms, columns, rows):
        """Pack columns that are contiguous along k: each is decoded, then squares of them are
        transposed."""
        for c in range(0, columns, side):
            valid = min(side, columns - c)
            for j in range(valid):
                to = rows + 4 * _PITCH * j
                skip = decode(b.address, offset + (c + j) * b.step, terms, to)
                if skip > 0:  # in ascending order, so that nothing is overwritten before it is read
                    for r in range(0, terms, WIDTH):
                        copy(to, skip + r, to, r)
            for r0 in range(0, terms, side):
                r = min(r0, terms - side)
                transpose(rows, r, _PITCH, valid, panel, r * WIDTH + c, WIDTH)

    @inline
    def pack(b, offset, panel, pitch, terms, columns):
        rows = buffer()
        for j in range(0, columns, WIDTH):
            width, to, source = min(WIDTH, columns - j), panel + 4 * j * pitch, offset + j * b.step
            if b.step == 1:
                for r in range(terms):
                    skip = decode(b.address, source + r * b.k, width, rows)
                    copy(rows, skip, to, r * WIDTH)
            elif b.k == 1 and terms >= side:
                turn(b, source, to, terms, width, rows)
            else:
                for r in range(terms):
                    for c in range(width):
                        st(to, r * WIDTH + c, ld(b.address, source + r * b.k + c * b.step))

    return pack


@dataclass(frozen=True)
class _Packed(Grouped):
    """A storage in groups that brings its own packer to gemm's tiles."""

    def column_packer(self, side: int) -> Callable:
        """The packer, as gemm's tiles request it."""
        return packer(self, side)


def _operands(scratch: str, name: str) -> str:
    return plain.operands(scratch).replace("b:r:B[nb]", f"b:r:{name}[nb]")


def _plain(name: str):
    def factory(A, C):
        return plain.gemm(A, GROUPS[name], C)

    factory.__doc__ = f"Plain gemm with b stored as {name}."
    return factory


def _tiles(name: str, tile):
    def factory(A, C):
        group = GROUPS[name]
        return fast._fast(*tile)(A, _Packed(group.name, group.ld, group.chunk), C)

    factory.__doc__ = f"Tiled gemm with b stored as {name}."
    return factory


def _gather(name: str):
    def factory(S):
        return gather.gather(GROUPS[name], S)

    factory.__doc__ = f"gather of rows stored as {name}."
    return factory


def _unpack(name: str):
    def factory(S):
        return unpack.unpack(GROUPS[name], S)

    factory.__doc__ = f"Unpack a weight stored as {name}, for kernels that read only floats."
    return factory


for _name in GROUPED:
    for _lanes, _tile in GEMM.items():
        kernel(
            f"gemm_{_name}",
            _operands(fast.SCRATCH, _name),
            variant=f"tiles{_lanes}",
            when=f"lanes == {_lanes} and z1*z2*m*n*k2*k > 512",
            check=plain.CHECK,
        )(_tiles(_name, _tile))
    kernel(f"gemm_{_name}", _operands("0", _name), check=plain.CHECK, work=plain.WORK)(
        _plain(_name)
    )
    kernel(
        f"gather_{_name}",
        f"x:r:{_name}[outer*axis*inner] idx:r:i32[count] y:w:S[outer*count*inner] "
        "outer axis inner count",
        check="min(outer, axis, inner, count) > 0",
    )(_gather(_name))
    kernel(f"unpack_{_name}", f"w:r:{_name}[n] y:w:S[n] n", check="n > 0")(_unpack(_name))
