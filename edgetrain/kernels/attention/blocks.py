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
def block_count(args):
    """Blocks of queries, of all heads."""
    return args.z1 * args.z2 * div(args.m + ROWS - 1, ROWS)


@inline
def block_of(args, number):
    """The `Block` of this number."""
    blocks = div(args.m + ROWS - 1, ROWS)
    head, i = div(number, blocks), mod(number, blocks) * ROWS
    return Block(div(head, args.z2), mod(head, args.z2), i, min(ROWS, args.m - i))


@inline
def first_query(args, block: Block):
    """Number of a block's first query among those of all heads."""
    return (block.z * args.z2 + block.h) * args.m + block.i


@inline
def queries_of(args, z, head):
    return Matrix(args.q, z * args.qz + head * args.qh, args.qr)


@inline
def keys_of(args, z, shared):
    """`shared`: the key head, which `group` query heads have."""
    return Matrix(args.k, z * args.kz + shared * args.kh, args.kr)


@inline
def values_of(args, z, shared):
    return Matrix(args.v, z * args.vz + shared * args.vh, args.vr)


@inline
def slopes_of(args, z, head):
    """Gradients of y."""
    return Matrix(args.dy, z * args.yz + head * args.yh, args.yr)
