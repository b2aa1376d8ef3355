"""Loads and stores for kernels that are written once for both numbers and vectors."""

from collections.abc import Callable
from typing import NamedTuple

from .inlining import inline
from .prim import Storage
from .vector import WIDTH, loads, loads_first, stores, vsplat


class Elements(NamedTuple):
    """How a kernel loads and stores `width` elements at a time.

    Attributes:
      load: (address, index) -> `width` elements.
      load_first: (address, index, count) -> the first `count` of them, 0 in the other lanes.
      store: (address, index, value, count): stores the first `count` lanes, rounded to nearest.
      spread: (float32) -> its value in every lane.
    """

    width: int
    load: Callable
    load_first: Callable
    store: Callable
    spread: Callable


def elements(storage: Storage, vectors: bool) -> Elements:
    """`Elements` for vectors, or for single numbers."""
    if vectors:
        return Elements(WIDTH, loads(storage), loads_first(storage), stores(storage), vsplat)
    ld, st = storage.ld, storage.st

    @inline
    def load_first(address, index, count):
        return ld(address, index)

    @inline
    def store(address, index, value, count):
        st(address, index, value)

    @inline
    def spread(value):
        return value

    return Elements(1, ld, load_first, store, spread)
