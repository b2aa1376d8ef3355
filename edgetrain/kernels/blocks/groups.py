"""Reads frozen weights in groups of 8 or 4 bits (formats/groups.py).

Single elements load as from any storage. Runs are decoded 16 at a time, from multiples of 16, so
that 16 elements are in one half of a group; see `rows_decoder`. Kernels never store this format.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ...formats.groups import G4, G8, LENGTH
from ..language.inlining import inline
from ..language.number import to
from ..language.prim import FP16, FP32, ld_i8, ld_u8, to_float
from ..language.vector import WIDTH, loads_as, stores

_ld_f16, _vst = FP16.ld, stores(FP32)
_whole, _real = to("int32"), to("float32")


@dataclass(frozen=True, slots=True)
class Grouped:
    """The part of a storage that kernels need from a read-only one.

    Attributes:
      chunk: inline (address, index, buffer, to): decode the 16 elements from `index`, a multiple of
        16, to float32 at buffer[to].
      single: as in a format: False, since numbers are decoded.
    """

    name: str
    ld: Callable
    chunk: Callable
    floats: bool = True
    single: ClassVar[bool] = False


def _decoder(bits: int):
    """(address, offset, shift, scale, buffer, to): decode 16 numbers from byte `offset` on."""
    if bits == 8:
        signed = loads_as("int8")

        @inline
        def decode(address, offset, shift, scale, buffer, to):
            _vst(buffer, to, _real(_whole(signed(address, offset))) * scale, WIDTH)

        return decode
    both = loads_as("uint8")

    @inline
    def decode_half(address, offset, shift, scale, buffer, to):
        numbers = (_whole(both(address, offset)) >> shift & 15) - 8
        _vst(buffer, to, _real(numbers) * scale, WIDTH)

    return decode_half


def _eight() -> Grouped:
    nbytes, half, decode = G8.block_nbytes, G8.block_nbytes >> 1, _decoder(8)

    @inline
    def ld(address, index):
        group = index >> 6
        number = ld_i8(address, group * nbytes + (index & 63))
        return to_float(number) * _ld_f16(address, group * half + half - 1)

    @inline
    def chunk(address, index, buffer, to):
        group = index >> 6
        scale = _ld_f16(address, group * half + half - 1)
        decode(address, group * nbytes + (index & 63), 0, scale, buffer, to)

    return Grouped(G8.name, ld, chunk)


def _four() -> Grouped:
    nbytes, half, decode = G4.block_nbytes, G4.block_nbytes >> 1, _decoder(4)

    @inline
    def ld(address, index):
        group = index >> 6
        both = ld_u8(address, group * nbytes + (index & 31))
        number = ((both >> ((index & 32) >> 3)) & 15) - 8
        return to_float(number) * _ld_f16(address, group * half + half - 1)

    @inline
    def chunk(address, index, buffer, to):
        group = index >> 6
        scale = _ld_f16(address, group * half + half - 1)
        decode(address, group * nbytes + (index & 31), (index & 32) >> 3, scale, buffer, to)

    return Grouped(G4.name, ld, chunk)


GROUPS = {group.name: group for group in (_eight(), _four())}
assert LENGTH == 64


def rows_decoder(storage: Grouped) -> Callable:
    """Inline (address, index, count, buffer) -> position in `buffer` of element `index`.

    Decodes `count` elements from `index` on to float32; `buffer` has room for count + 30.
    """
    chunk = storage.chunk

    @inline
    def decode(address, index, count, buffer):
        first = index & -16
        for offset in range(0, index + count - first, 16):
            chunk(address, first + offset, buffer, offset)
        return index - first

    return decode
