"""Blocks of queries, and the rows of each operand that belong to a head."""

from typing import NamedTuple

from ..language.inlining import inline
from ..language.prim import div, mod
from .layout import ROWS
from .panels import Matrix


class Block(NamedTuple):
    """`rows` queries of head h in batch z, starting with query i."""

    z: int
    h: int
    i: int
    rows: int


@inline
def block_count(args):
    """Number of query blocks, over all heads."""
    return args.z1 * args.z2 * div(args.m + ROWS - 1, ROWS)


@inline
def block_of(args, number):
    """The `Block` with this number."""
    blocks = div(args.m + ROWS - 1, ROWS)
    head, i = div(number, blocks), mod(number, blocks) * ROWS
    return Block(div(head, args.z2), mod(head, args.z2), i, min(ROWS, args.m - i))


@inline
def first_query(args, block: Block):
    """Index of a block's first query among the queries of all heads."""
    return (block.z * args.z2 + block.h) * args.m + block.i


@inline
def queries_of(args, z, head):
    return Matrix(args.q, z * args.qz + head * args.qh, args.qr)


@inline
def keys_of(args, z, shared):
    """`shared`: the key head, which `group` query heads share."""
    return Matrix(args.k, z * args.kz + shared * args.kh, args.kr)


@inline
def values_of(args, z, shared):
    return Matrix(args.v, z * args.vz + shared * args.vh, args.vr)


@inline
def slopes_of(args, z, head):
    """Gradients of y."""
    return Matrix(args.dy, z * args.yz + head * args.yh, args.yr)
