"""Keys of random streams."""

import zlib


def key_of(name: str) -> int:
    """The number that keys the random stream of a name: the same in every plan."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF
