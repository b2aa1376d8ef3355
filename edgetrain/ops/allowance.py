"""Limits on memory and work of binding a model.

Sizes, indices, masks and tables are computed when a model is bound. A tiny file can ask for any
amount of these, so each array is counted before it is made, and each computed element is work. Work
is counted, not timed, so a file is refused everywhere or nowhere. Results folded from the same
arrays are reused for other batches.
"""

from dataclasses import dataclass, field

import numpy as np

from .onnx_ops import OnnxNode

MAX_NBYTES = 2**29  # in all arrays made for a model
MAX_VARYING_NBYTES = 2**27  # in those of one batch, since several are bound at once
MAX_WORK = 2**28  # elements read or written, weighted by cost; about a nanosecond each
MAX_LIST = 2**16  # entries of a list of sizes, axes or indices

_MOVE = "Export the model with constant folding, or a smaller one"
_KEPT = 2**12  # elements; larger folds are cached
_COMPARED = 64  # elements; smaller inputs are compared by value


@dataclass
class Allowance:
    """Memory and work used by a binding, or, with `restart`, by all trials of a search."""

    work: int = 0
    nbytes: int = 0
    varying: int = 0

    def restart(self) -> "Allowance":
        """Start another binding: its arrays count anew, work adds up."""
        self.nbytes = self.varying = 0
        return self

    def spend(self, node: OnnxNode, elements: int, weight: int = 1) -> None:
        """Count work before doing it.

        Raises:
          ModelError: too much work.
        """
        self.work += elements * weight
        if self.work > MAX_WORK:
            raise node.fail(
                f"constants need more than {MAX_WORK} operations ({elements} elements here)",
                f"fewer. {_MOVE}",
            )

    def room(self, node: OnnxNode, nbytes: int, varies: bool = True) -> None:
        """Check that there is room for an array.

        Args:
          varies: whether it may depend on the batch.
        Raises:
          ModelError: arrays would take too much memory.
        """
        limit = MAX_VARYING_NBYTES if varies else MAX_NBYTES
        total = nbytes + (self.varying if varies else self.nbytes)
        if total > limit:
            raise node.fail(
                f"constants of {total} bytes ({nbytes} from this node)",
                f"at most {limit}. {_MOVE}",
            )

    def hold(self, node: OnnxNode, nbytes: int, varies: bool = True) -> None:
        """Count an array; raises like `room`."""
        self.room(node, nbytes, varies)
        if varies:
            self.varying += nbytes
        else:
            self.nbytes += nbytes


def check_list(node: OnnxNode, index: int, array: np.ndarray) -> None:
    """Refuse an implausibly long list of sizes.

    Raises:
      ModelError: more than MAX_LIST entries.
    """
    if array.size > MAX_LIST:
        raise node.fail(f"{array.size} numbers in input {index}", f"at most {MAX_LIST}")


Arrays = list[np.ndarray | None]


@dataclass
class Memory:
    """A cache of folded and converted arrays of a model.

    Attributes:
      folds: a node's first output -> the node, its inputs and outputs. Nodes of rules are made anew
        for each binding, under the same names.
    """

    folds: dict[str, tuple[OnnxNode, Arrays, list[np.ndarray]]] = field(default_factory=dict)
    kinds: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def recall(self, node: OnnxNode, inputs: Arrays) -> list[np.ndarray] | None:
        """Cached outputs of the node for these inputs, or None."""
        result = self.folds.get(node.outputs[0])
        if result and result[0] is node and all(map(_same, result[1], inputs)):
            return result[2]
        return None

    def keep(self, node: OnnxNode, inputs: Arrays, outputs: list[np.ndarray]) -> None:
        """Cache outputs that took some work."""
        if sum(a.size for a in (*inputs, *outputs) if a is not None) >= _KEPT:
            self.folds[node.outputs[0]] = (node, inputs, outputs)

    def converted(self, name: str, array: np.ndarray, dtype: type) -> np.ndarray:
        """The array converted to another type, if necessary."""
        if array.dtype == dtype:
            return array
        result = self.kinds.get(name)
        if result is None or result[0] is not array or result[1].dtype != dtype:
            self.kinds[name] = result = (array, array.astype(dtype))
        return result[1]


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is b:
        return True
    if a is None or b is None or a.size > _COMPARED or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b))
