"""Finds the batch axis in a value's shape, and follows it through reshapes."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...ops.onnx_ops import OnnxNode
from ...ops.strides import prod


@dataclass(frozen=True, slots=True)
class Factor:
    """The batch is a factor of one axis, whose size is outer * batch * inner.

    Attributes:
      inner: 0 if it is unknown how the remaining factor splits into outer and inner.
    """

    axis: int
    outer: int
    inner: int

    @property
    def count(self) -> int:
        """Rows of the axis per sample."""
        return self.outer * max(1, self.inner)


def factor_of(
    node: OnnxNode, before: Sequence[int], after: Sequence[int], baked: int, batch: int
) -> Factor | None:
    """The axis that grew from `baked` to `batch` samples; None if none did.

    Raises:
      ModelError: shapes differ in another way.
    """
    wrong = node.fail(f"shape {list(before)} becomes {list(after)}", "a batch in one axis")
    if len(before) != len(after):
        raise wrong
    changed = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if not changed:
        return None
    axis = changed[0]
    count = before[axis] // baked
    if len(changed) > 1 or before[axis] % baked or after[axis] != count * batch:
        raise wrong
    return Factor(axis, count, 0)


def places(source: Sequence[int], shape: Sequence[int], given: Factor, baked: int) -> list[Factor]:
    """Axes of `shape` that may contain the batch of `source`, likeliest first.

    The batch's stride in elements is unchanged. With a batch of 1 this leaves several axes: first
    an axis that is only the batch, then one that absorbs the batch while other axes are unchanged.
    """
    if not given.inner:
        return []
    stride = given.inner * prod(source[given.axis + 1 :])
    result = []
    for axis, size in enumerate(shape):
        after = prod(shape[axis + 1 :])
        if after and stride % after == 0 and (after * size) % (stride * baked) == 0:
            result.append(Factor(axis, after * size // (stride * baked), stride // after))
    left, right = list(source[: given.axis]), list(source[given.axis + 1 :])

    def rank(factor: Factor) -> tuple:
        alone = factor.count == 1
        tail = list(shape[factor.axis + 1 :]) == right and factor.inner == 1
        head = list(shape[: factor.axis]) == left and factor.outer == 1
        return (not alone, not tail, not head, factor.axis)

    return sorted(result, key=rank)
