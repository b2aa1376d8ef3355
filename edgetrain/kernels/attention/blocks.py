"""Blocks of queries, and the first element of each operand of a head."""

from typing import NamedTuple

from ..language.inlining import inline
from ..language.prim import div, mod
from .layout import ROWS
from .panels import Matrix


class Block(NamedTuple):
    """Queries of head h in batch z: `rows` of them, from number i on."""

    z: int
    h: int
    i: int
    rows: int


@inline
def block_count(k):
    """Blocks of queries, of all heads."""
    return k.z1 * k.z2 * div(k.m + ROWS - 1, ROWS)


@inline
def block_of(k, number):
    """The `Block` of this number."""
    blocks = div(k.m + ROWS - 1, ROWS)
    head, i = div(number, blocks), mod(number, blocks) * ROWS
    return Block(div(head, k.z2), mod(head, k.z2), i, min(ROWS, k.m - i))


@inline
def first_query(k, block: Block):
    """Number of a block's first query among those of all heads."""
    return (block.z * k.z2 + block.h) * k.m + block.i


@inline
def queries_of(k, z, head):
    return Matrix(k.q, z * k.qz + head * k.qh, k.qr)


@inline
def keys_of(k, z, shared):
    """`shared`: the key head, which `group` query heads have."""
    return Matrix(k.k, z * k.kz + shared * k.kh, k.kr)


@inline
def values_of(k, z, shared):
    return Matrix(k.v, z * k.vz + shared * k.vh, k.vr)


@inline
def slopes_of(k, z, head):
    """Gradients of y."""
    return Matrix(k.dy, z * k.yz + head * k.yh, k.yr)
