"""Shared by depthwise convolutions with 3 x 3 taps and their gradients: maps, weights, lanes."""

import functools
from typing import Any, NamedTuple

from ..language.inlining import inline
from ..language.number import alike
from ..language.prim import FP32, Storage
from ..language.vector import floats, ints, loads, loads_first, numbers16, stores

_vld = loads(FP32)


@inline
def vand(a, b):
    """Bitwise and."""
    return floats(ints(a) & ints(b))


@inline
def every():
    """A vector of all ones, bitwise."""
    return floats(alike(numbers16(), -1))


class Place(NamedTuple):
    """Addresses of the maps and weights; `acc`: add to the target."""

    source: int
    weights: int
    bias: int
    target: int
    acc: int


class Room(NamedTuple):
    """Scratch: its address, and that of `floats` floats for bands of rows."""

    address: int
    bands: int
    floats: int


class Taps(NamedTuple):
    """Weights of the taps in order, a vector each."""

    w0: Any
    w1: Any
    w2: Any
    w3: Any
    w4: Any
    w5: Any
    w6: Any
    w7: Any
    w8: Any


class Ends(NamedTuple):
    """Lanes, as bit masks, whose neighbour at the first and at the last tap column is in the map,
    then the same for tap rows."""

    first: Any
    last: Any
    top: Any
    bottom: Any


@inline
def taken(address):
    """The `Taps` stored at an address, a vector each."""
    return Taps(
        _vld(address, 0),
        _vld(address, 16),
        _vld(address, 32),
        _vld(address, 48),
        _vld(address, 64),
        _vld(address, 80),
        _vld(address, 96),
        _vld(address, 112),
        _vld(address, 128),
    )


@functools.cache
def storing(S: Storage):
    """Inline function (place, index, value, count) that stores, or adds to the target."""
    vfirst, vst = loads_first(S), stores(S)

    @inline
    def store(place, index, value, count):
        if place.acc != 0:
            value = value + vfirst(place.target, index, count)
        vst(place.target, index, value, count)

    return store
