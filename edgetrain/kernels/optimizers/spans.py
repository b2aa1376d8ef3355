"""Elements of a weight that an update processes: all of them, or a layer's slots of the pool.

For a layer, w and its state are the pool, and its gradients a row of `room` numbers that begins
with the layer's first slot. Rounding depends on the position in the pool, as in an update of all of
it.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..language.block import first as part
from ..language.inlining import inline
from ..language.prim import ld_i32


class Span(NamedTuple):
    """Inline functions.

    Attributes:
      of: (args, thread, nthreads) -> first element of a thread's part, and the one after its last.
      gradients: (args, bytes of a number) -> the address that element 0's gradient would have.
    """

    of: Callable
    gradients: Callable


@inline
def _whole(args, thread, nthreads):
    return part(args.n, thread, nthreads), part(args.n, thread + 1, nthreads)


@inline
def _at_first(args, nbytes):
    return args.g


@inline
def _slots(args, thread, nthreads):
    start = ld_i32(args.pointers, 0)
    count = min(ld_i32(args.pointers, args.groups) - start, args.room)
    return start + part(count, thread, nthreads), start + part(count, thread + 1, nthreads)


@inline
def _row(args, nbytes):
    return args.g - nbytes * ld_i32(args.pointers, 0)


WHOLE, LAYER = Span(_whole, _at_first), Span(_slots, _row)
