"""What binding a model may make and do: one limit for every array, one for every fold.

Sizes, indices, masks and tables are computed when a model is bound. A file of a few bytes can ask
for any number of them, so each array is counted before it is made, and each element that is
computed is work. Work is counted, not timed: a file is refused everywhere or nowhere. What was
folded from the same arrays is not folded again for another batch.
"""

from dataclasses import dataclass, field

import numpy as np

from .registry import OnnxNode

MAX_NBYTES = 2**29  # of all arrays that are made for a model
MAX_VARYING_NBYTES = 2**27  # of those made for one batch, since several are bound at once
MAX_WORK = 2**28  # elements read or written, times what one takes; about a nanosecond each
MAX_LIST = 2**16  # entries of a list of sizes, axes or places

_MOVE = "Export the model with constant folding, or smaller"
_KEPT = 2**12  # elements from which on a fold is remembered
_COMPARED = 64  # elements up to which inputs are compared by value


@dataclass
class Allowance:
    """What one binding has taken, or, with `restart`, all the trials of one search."""

    work: int = 0
    nbytes: int = 0
    varying: int = 0

    def restart(self) -> "Allowance":
        """Another binding: the arrays of the one before are gone, its work was done."""
        self.nbytes = self.varying = 0
        return self

    def spend(self, node: OnnxNode, elements: int, weight: int = 1) -> None:
        """Count work before it is done.

        Raises:
          ModelError: more than any model needs.
        """
        self.work += elements * weight
        if self.work > MAX_WORK:
            raise node.fail(
                f"constants that take over {MAX_WORK} steps to compute, {elements} elements here",
                f"fewer. {_MOVE}",
            )

    def room(self, node: OnnxNode, nbytes: int, varies: bool = True) -> None:
        """Refuse an array before it is made.

        Args:
          varies: whether it may be another one for another batch.
        Raises:
          ModelError: too large beside what is there.
        """
        limit = MAX_VARYING_NBYTES if varies else MAX_NBYTES
        total = nbytes + (self.varying if varies else self.nbytes)
        if total > limit:
            raise node.fail(
                f"constants of {total} bytes, {nbytes} of them made here",
                f"at most {limit}. {_MOVE}",
            )

    def hold(self, node: OnnxNode, nbytes: int, varies: bool = True) -> None:
        """Count an array; raises as `room`."""
        self.room(node, nbytes, varies)
        if varies:
            self.varying += nbytes
        else:
            self.nbytes += nbytes


def check_list(node: OnnxNode, index: int, array: np.ndarray) -> None:
    """Refuse a list of sizes that is far longer than any list of sizes.

    Raises:
      ModelError: more than MAX_LIST entries.
    """
    if array.size > MAX_LIST:
        raise node.fail(f"input {index} lists {array.size} numbers", f"at most {MAX_LIST}")


Arrays = list[np.ndarray | None]


@dataclass
class Memory:
    """Arrays that were folded or converted for a model, whatever the batch; the latest of each."""

    folds: dict[int, tuple[OnnxNode, Arrays, list[np.ndarray]]] = field(default_factory=dict)
    kinds: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def recall(self, node: OnnxNode, inputs: Arrays) -> list[np.ndarray] | None:
        """Outputs of the node for these inputs; None where they are not known."""
        found = self.folds.get(id(node))
        if found and found[0] is node and all(map(_same, found[1], inputs)):
            return found[2]
        return None

    def keep(self, node: OnnxNode, inputs: Arrays, outputs: list[np.ndarray]) -> None:
        """Remember outputs that took some work."""
        if sum(a.size for a in (*inputs, *outputs) if a is not None) >= _KEPT:
            self.folds[id(node)] = (node, inputs, outputs)

    def converted(self, name: str, array: np.ndarray, dtype: type) -> np.ndarray:
        """The array in another type; itself where it has that."""
        if array.dtype == dtype:
            return array
        found = self.kinds.get(name)
        if found is None or found[0] is not array or found[1].dtype != dtype:
            self.kinds[name] = found = (array, array.astype(dtype))
        return found[1]


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is b:
        return True
    if a is None or b is None or a.size > _COMPARED or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b))
