"""Frozen weights in groups of 8 or 4 bits (formats/groups.py) as kernels read them.

One element is loaded as of any storage. Runs are decoded 16 at a time, from multiples of 16, which
lie in one half of a group: `decoder`. Nothing stores them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...formats.groups import G4, G8, LENGTH
from ..language.inlining import inline
from ..language.prim import F32, I8, I32, I64, STORAGES, _load, element, ld_u8, to_float
from ..language.vector import WIDTH, splat

_VECTOR_I32 = ir.VectorType(I32, WIDTH)
_ld_f16 = STORAGES["f16"].ld
_ld_i8 = _load(I8, 1, types.int64, lambda builder, value: builder.sext(value, I64))


@dataclass(frozen=True, slots=True)
class Grouped:
    """What kernels ask of a storage, of one that is only read.

    Attributes:
      chunk: inline (address, index, buffer, to): elements from `index` on, a multiple of 16, 16 of
        them, to float32 at buffer[to].
    """

    name: str
    ld: Callable
    chunk: Callable
    floats: bool = True


def _splat_i32(number: int) -> ir.Constant:
    return ir.Constant(_VECTOR_I32, [number] * WIDTH)


def _decoder(bits: int):
    """(address, at, shift, scale, buffer, to): 16 numbers of the bytes from `at` on."""

    def codegen(context, b, signature, args):
        address, at, shift, scale, buffer, to = args
        place = element(b, address, at, 1)
        place = b.bitcast(place, ir.VectorType(I8, WIDTH).as_pointer())
        given = b.load(place, typ=ir.VectorType(I8, WIDTH), align=1)
        if bits == 8:
            numbers = b.sext(given, _VECTOR_I32)
        else:
            wide, undefined = b.zext(given, _VECTOR_I32), ir.Constant(_VECTOR_I32, ir.Undefined)
            first = b.insert_element(undefined, b.trunc(shift, I32), ir.Constant(I32, 0))
            by = b.shuffle_vector(first, undefined, _splat_i32(0))
            numbers = b.and_(b.lshr(wide, by), _splat_i32(15))
            numbers = b.sub(numbers, _splat_i32(8))
        floats = b.sitofp(numbers, ir.VectorType(F32, WIDTH))
        b.store(b.fmul(floats, splat(b, scale)), element(b, buffer, to, 4), align=4)
        return context.get_dummy_value()

    @intrinsic
    def decode(typingctx, address, at, shift, scale, buffer, to):
        whole = types.int64
        kinds = (whole, whole, whole, types.float32, whole, whole)
        return types.void(*kinds), codegen

    return decode


def _eight() -> Grouped:
    nbytes, half, decode = G8.block_nbytes, G8.block_nbytes >> 1, _decoder(8)

    @inline
    def ld(address, index):
        group = index >> 6
        number = _ld_i8(address, group * nbytes + (index & 63))
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
    """Inline (address, index, count, buffer): where in `buffer` the elements from `index` on lie,
    `count` of them as float32; it has room for count + 30.
    """
    chunk = storage.chunk

    @inline
    def decode(address, index, count, buffer):
        first = index & -16
        for at in range(0, index + count - first, 16):
            chunk(address, first + at, buffer, at)
        return index - first

    return decode
