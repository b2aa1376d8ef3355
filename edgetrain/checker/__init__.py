"""A symbolic proof that tapes compute what their graphs mean.

A graph is a list of kernel calls on named values. A tape is a list of instructions on addresses.
Recomputation, reordering, in-place operation and placement lead from one to the other; none of
their code is imported here. The checker knows a graph, a Program and the declarations of kernels.

A *version* is the content that a call writes to an operand; the initial contents of a tape
(weights, inputs) have versions too. Calls with equal kernels, numbers and read versions write equal
versions, so a recomputed value equals the one it replaces.

In the graph, every value has its own bytes; running its calls in order gives the version that each
operand reads and writes. The tape is then run on the arena:

1. The tape starts with the persistent slots, each with the version of its value, and with inputs
   and targets in their slots. All other bytes are undefined.
2. An instruction must be a call of the graph: the same kernel, variant, storages and numbers, and
   each operand must read the same versions. Bytes that are undefined in the graph (such as an
   accumulator that is overwritten) can contain anything.
3. It writes the versions of that call, and leaves its workspace undefined.
4. A written operand overlaps another only as in the graph, or exactly if the op supports
   in-place computation. A workspace overlaps no operand.
5. At the end, every persistent slot and every output has the version it has in the graph: nothing
   is missing, overwritten or added twice.

The control block is one value. Calls of the update read and write all of it. Forward, loss and
backward read only words that don't change during a microbatch (seed, step, microbatch, count, loss
scale, nominal count), so their reads are not tracked; their writes are. Not proved: that an op's
gradient is right, that a kernel does what it declares, and that in-place computation works where an
op allows it. Tests check these.
"""

from .meaning import Meaning, MeantCall
from .proof import prove

__all__ = ["Meaning", "MeantCall", "prove"]
