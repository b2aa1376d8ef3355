"""Vectors of 64 elements with a mask of one bit each: relu that stores it, and its gradient."""

from .inlining import inline
from .mathf import ZERO
from .number import where
from .prim import STORAGES
from .vector import load_mask, loads, store_mask, stores

store_bits, load_bits = STORAGES["u8"].st, STORAGES["u8"].ld
LANES = 64


def relu64(storage):
    """relu of 64 elements at `index`, a multiple of 8, and their 64 mask bits."""
    ld, st = loads(storage, width=LANES), stores(storage, LANES)

    @inline
    def relu(x, y, mask, index):
        value = ld(x, index)
        positive = ~(value <= ZERO)  # NaN too
        st(y, index, where(positive, value, ZERO), LANES)
        store_mask(mask, index, positive)

    return relu


def masked64(storage, add: bool):
    """dx = (dx +) dy where the mask's bit is 1, for 64 elements at `index`, a multiple of 8."""
    ld, st = loads(storage, width=LANES), stores(storage, LANES)

    @inline
    def masked(mask, dy, dx, index):
        value = where(load_mask(mask, index), ld(dy, index), ZERO)
        if add:
            value = ld(dx, index) + value
        st(dx, index, value, LANES)

    return masked
