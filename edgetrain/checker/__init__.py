"""A symbolic proof that tapes compute what their graphs mean.

A graph is a list of kernel calls on named values. A tape is a list of instructions on addresses.
Between them lie recomputation, reordering, in-place operation and placement; nothing of these is
imported here. The checker knows a graph, a Program and the declarations of kernels.

A *version* is the content that one call leaves in one operand; what a tape starts from (weights,
inputs) has versions too. Calls with equal kernels, numbers and versions read leave equal versions,
so a recomputed value is the value that it replaces.

The graph gives every value bytes of its own; running its calls in order says which version each
operand reads and writes. The tape is then run on the arena:

1. The tape starts from the persistent slots, each with the version of its value, and from inputs
   and targets in their slots. All other bytes are undefined.
2. An instruction must be a call of the graph: the same kernel, variant, storages and numbers, and
   in the bytes that each operand reads the versions which that call reads. Bytes that are undefined
   in the graph (an accumulator that is overwritten) may hold anything.
3. It leaves the versions of that call in the bytes it writes, and undefined bytes in its workspace.
4. Operands of which one is written overlap only as they do in the graph, or exactly where the op
   allows it to be computed in place. A workspace overlaps no operand.
5. At the end every persistent slot and every output holds the version that the graph leaves there:
   nothing is missing, nothing came later, nothing was added twice.

The control block is one value. Calls of the update read and write all of it. Forward, loss and
backward read only its words that no tape of a microbatch moves (seed, step, microbatch, count,
loss scale, nominal count), so their reads are not followed; their writes are.
Not proved: that an op's gradient is right, that a kernel does what it declares, that a call may be
computed in place where its op says so. Tests hold those.
"""

from .meaning import Meaning, MeantCall
from .proof import prove

__all__ = ["Meaning", "MeantCall", "prove"]
