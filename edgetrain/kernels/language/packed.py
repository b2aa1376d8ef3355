"""Numbers in 8-bit blocks (formats/blocks.py), and buffered runs of any storage.

One element of a block is loaded as in any storage, but blocks are stored whole, because the scale
depends on all their elements. So a kernel that writes them processes LENGTH elements at a time,
starting at a multiple of LENGTH, through a buffer of float32. Threads split at such multiples.
Arithmetic is in integers and float32, the same on every processor.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .block import get, memory, put
from .inlining import inline
from .number import lanewise_of, like
from .prim import (
    I8,
    STORAGES,
    Storage,
    bits_float,
    float_bits,
    hash32,
    ld_i8,
    ld_u8,
    st_u8,
    to_float,
    u32,
)

LENGTH, BYTES = 64, 65  # elements and bytes of a block, as in formats/blocks.py
BITS = 23  # bits of a fraction when it is rounded
INFINITE, LARGEST = 0x7F800000, 0x7E0000  # bits: infinity; the mantissa of 127

new = memory(LENGTH)  # float32[LENGTH]


@dataclass(frozen=True, slots=True)
class Packed(Storage):
    """A storage whose elements can only be stored in whole blocks.

    Attributes:
      nearest: round to nearest instead of stochastically.
    """

    nearest: bool = False


@inline
def _scale(address, block):
    """The factor of a block's elements: zero, a power of two, or infinity."""
    return bits_float(u32(ld_u8(address, block * BYTES + LENGTH) << 23))


@inline
def _load_one(address, index):
    block = index >> 6
    return to_float(ld_i8(address, block * BYTES + (index & 63))) * _scale(address, block)


def _one_alone(*_):
    raise TypeError(
        "numbers in 8-bit blocks can only be stored by whole blocks: see language/packed.py"
    )


def _packed(name: str, nearest: bool) -> Packed:
    st = sr = _one_alone
    return Packed(
        name, 1, I8, _load_one, st, sr, floats=True, short_range=True, nearest=nearest,
        random_bits=0 if nearest else BITS,
    )  # fmt: skip


PACKED = {"q8": _packed("q8", False), "q8n": _packed("q8n", True)}


def storage_of(name: str) -> Storage:
    """How a kernel loads and stores elements of a format."""
    return PACKED.get(name) or STORAGES[name]


def loader(storage: Storage) -> Callable:
    """load(buffer, address, first, count): buffer[j] = element first + j, j < count.

    `first` is a multiple of LENGTH, and `count` at most LENGTH.
    """
    ld = storage.ld
    if not isinstance(storage, Packed):

        @inline
        def load_each(buffer, address, first, count):
            for j in range(count):
                put(buffer, j, ld(address, first + j))

        return load_each

    @inline
    def load(buffer, address, first, count):
        offset = (first >> 6) * BYTES
        scale = bits_float(u32(ld_u8(address, offset + LENGTH) << 23))
        for j in range(LENGTH):
            put(buffer, j, to_float(ld_i8(address, offset + j)) * scale)

    return load


def _added(builder, fine, random):
    steps = builder.add(builder.fptosi(fine, random.type), random)
    return builder.ashr(steps, like(steps, BITS))


# (value, random) -> value plus `random`, in units of 2^-BITS, rounded down
_whole = lanewise_of(("float32", "uint32"), "int32", _added)
_ONE = np.float32(1 << BITS)


@inline
def _rounded(value, inverse, random):
    """value * inverse (magnitude at most 127) plus `random` in units of 2^-BITS, rounded down."""
    return np.int64(_whole(value * inverse * _ONE, random))


# the upper BITS of 32 random bits
_fraction = lanewise_of(
    ("uint32",), "uint32", lambda builder, bits: builder.lshr(bits, like(bits, 32 - BITS))
)


@inline
def largest(buffer, count):
    """Bits of the largest magnitude; magnitudes have the same order as their bits."""
    out = 0
    for j in range(count):
        out = max(out, int(float_bits(get(buffer, j)) & 0x7FFFFFFF))
    return out


@inline
def _fill_block(address, offset, byte, scale):
    for j in range(LENGTH):
        st_u8(address, offset + j, byte)
    st_u8(address, offset + LENGTH, scale)


def storer(storage: Storage, keep: bool = False, upper: bool = False) -> Callable:
    """store(address, first, count, buffer, key): elements first + j = buffer[j], j < count.

    If the storage is coarser than float32, element first + j is rounded stochastically with the
    random bits hash32(key, first + j). `first` and `count` are as in `loader`. Elements of a block
    after `count` become 0.

    Args:
      keep: nonzero numbers do not become zero.
      upper: use the upper bits of random numbers, if the storage needs fewer than all.
    """
    if not isinstance(storage, Packed):
        sr = storage.sr_upper if upper else storage.sr

        @inline
        def store_each(address, first, count, buffer, key):
            for j in range(count):
                sr(address, first + j, get(buffer, j), key)

        return store_each
    nearest, half = storage.nearest, 1 << BITS - 1

    @inline
    def numbers(key, index):
        return u32(half) if nearest else _fraction(hash32(key, index))

    @inline
    def store(address, first, count, buffer, key):
        offset, most = (first >> 6) * BYTES, largest(buffer, count)
        if most == 0:
            _fill_block(address, offset, 0, 0)
        elif most >= INFINITE:
            _fill_block(address, offset, 1, 255)
        else:
            scale = (most >> 23) - 6
            scale = max(scale + 1 if (most & 0x7FFFFF) > LARGEST else scale, 1)
            inverse = bits_float(u32((254 - scale) << 23))
            for j in range(count):
                value = get(buffer, j)
                byte = _rounded(value, inverse, numbers(key, first + j))
                if keep:
                    byte = max(byte, 1) if value > 0 else min(byte, -1) if value < 0 else 0
                st_u8(address, offset + j, byte)
            for j in range(count, LENGTH):
                st_u8(address, offset + j, 0)
            st_u8(address, offset + LENGTH, scale)

    return store


@inline
def zero(address, first, count):
    """Set `count` elements from `first` on, up to the end of the last block, to 0."""
    start, stop = (first >> 6) * BYTES, ((first + count + 63) >> 6) * BYTES
    for j in range(start, stop):
        st_u8(address, j, 0)
