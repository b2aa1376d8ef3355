"""Loads and stores of numbers in any of a model's storages, by the storage's number (layout.py)."""

from ...formats import FLOATS
from ..language.inlining import inline
from ..language.prim import FP32, STORAGES
from . import layout


def _load(number, direct, other):
    @inline
    def load(storage, address, e):
        return direct(address, e) if storage == number else other(storage, address, e)

    return load


def _store(number, direct, other):
    @inline
    def store(storage, address, e, value):
        if storage == number:
            direct(address, e, value)
        else:
            other(storage, address, e, value)

    return store


def _nbytes(number, size, other):
    @inline
    def nbytes(storage):
        return size if storage == number else other(storage)

    return nbytes


_ld, _st = FP32.ld, FP32.st


@inline
def load_float(storage, address, e):
    """Element e of a value, as float32."""
    return _ld(address, e)


@inline
def store_float(storage, address, e, value):
    """Set element e to value, rounded to nearest."""
    _st(address, e, value)


@inline
def nbytes_of(storage):
    """Bytes of an element."""
    return 4


for _number, _name in enumerate(layout.TYPES):
    if _name in STORAGES:
        nbytes_of = _nbytes(_number, STORAGES[_name].nbytes, nbytes_of)
    if _name in FLOATS:
        load_float = _load(_number, STORAGES[_name].ld, load_float)
        store_float = _store(_number, STORAGES[_name].st, store_float)
