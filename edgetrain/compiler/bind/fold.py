"""Folds constant nodes with numpy, within an allowance (ops/allowance.py)."""

import numpy as np

from ...ops.allowance import Allowance, check_list
from ...ops.onnx_ops import Arrays, OnnxNode, onnx_op


def fold(
    node: OnnxNode, inputs: Arrays, allowance: Allowance, varies: bool = False
) -> list[np.ndarray]:
    """Outputs of a node with constant inputs, whose op has a `Fold`.

    Args:
      varies: whether inputs may depend on the batch.
    Raises:
      ModelError: invalid inputs, or the result exceeds the allowance.
    """
    how = onnx_op(node.op_type).fold
    assert how is not None, node.op_type
    given = [(k, array) for k, array in enumerate(inputs) if array is not None]
    try:
        for index, array in given:
            if how.lists is not None and index >= how.lists:
                check_list(node, index, array)
        if not how.view:
            read = max((array.size for _, array in given), default=0)
            made = read if how.elements is None else how.elements(node, inputs)
            if made or read:
                allowance.room(node, made * how.itemsize(node, inputs), varies)
                allowance.spend(node, max(made, read), how.work)
        with np.errstate(all="ignore"):
            out = how.run(node, inputs)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise node.fail(f"constant inputs that do not fit ({error})", "valid inputs") from error
    return [np.asarray(part) for part in out] if isinstance(out, list) else [np.asarray(out)]


def own_nbytes(array: np.ndarray, inputs: Arrays) -> int:
    """Bytes of an output that it does not share with an input."""
    if any(x is not None and np.may_share_memory(array, x) for x in inputs):
        return 0
    return array.nbytes
