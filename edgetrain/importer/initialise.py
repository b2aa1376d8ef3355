"""Initialises weights that a file only describes, as ConstantOfShape nodes.

Such a node becomes a parameter that starts with the file's constant. The light models of the onnx
package have no weights but these: there, matrices and convolution weights get Kaiming-uniform
values that depend on a seed and the name.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..errors import ModelError
from ..ops.onnx_ops import OnnxNode
from ..units.wording import counted

MAX_ELEMENTS = 2**28  # in all described weights together


def described(nodes: Sequence[OnnxNode], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of float ConstantOfShape nodes of known shape, as arrays without memory."""
    result = {}
    for node in nodes:
        shape = arrays.get(node.inputs[0]) if node.inputs else None
        if node.op_type != "ConstantOfShape" or shape is None or len(node.outputs) != 1:
            continue
        value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).ravel()
        dims = [int(d) for d in shape.ravel()]
        plausible = min(dims, default=0) > 0 and math.prod(dims) <= MAX_ELEMENTS
        if value.size == 1 and value.dtype.kind == "f" and plausible:
            result[node.outputs[0]] = np.broadcast_to(value.astype(np.float32)[0], dims)
    return result


def placeholders(
    found: Mapping[str, np.ndarray],
    parameters: Iterable[str],
    stored: Mapping[str, np.ndarray],
) -> list[str]:
    """The parameters whose values are missing in the file: its matrices, if there are several, and
    no stored array is one.

    Args:
      found: such weights.
      stored: the file's arrays.
    """
    if any(_is_matrix(array) for array in stored.values()):
        return []
    trained = set(parameters)
    result = [name for name, array in found.items() if name in trained and array.ndim > 1]
    return result if len(result) > 1 else []


def _is_matrix(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and sum(size > 1 for size in array.shape) > 1


def initialised(
    found: Mapping[str, np.ndarray], random: Iterable[str], seed: int
) -> dict[str, np.ndarray]:
    """Initial values of such weights.

    Args:
      random: those that start with random numbers.
    Raises:
      ModelError: too many elements.
    """
    total = sum(array.size for array in found.values())
    if total > MAX_ELEMENTS:
        raise ModelError(
            f"weights from ConstantOfShape nodes: {counted(len(found), 'array')}, together {total} "
            f"elements; expected at most {MAX_ELEMENTS}. Store the weights in the file."
        )
    drawn = set(random)
    return {
        name: _kaiming(name, array.shape, seed) if name in drawn else np.array(array)
        for name, array in found.items()
    }


def _kaiming(name: str, shape: Sequence[int], seed: int) -> np.ndarray:
    """Uniform within sqrt(6 / fan-in). Source: He et al. 2015, for layers before a ReLU."""
    bound = np.float32(math.sqrt(6.0 / math.prod(shape[1:])))
    numbers = np.random.default_rng([seed & (2**63 - 1), zlib.crc32(name.encode())])
    values = numbers.random(shape, np.float32)
    values *= 2 * bound
    values -= bound
    return values
