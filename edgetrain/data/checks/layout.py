"""Checks that a sample has the axes a model expects; an equal number of values is not enough."""

import math

from edgetrain.errors import DataError

Shape = tuple[int, ...]


def check_layout(label: str, found: Shape, wanted: Shape, *, flat: bool = False) -> None:
    """Check that two shapes are equal up to axes of size 1.

    Args:
      label: "source: field 'x'", for the message.
      found: shape of one sample.
      wanted: shape the model expects.
      flat: values have a natural order (a csv line, a one-channel picture), so a single axis
        may stand for several.
    Raises:
      DataError: they differ; names both, and the transpose that would fit.
    """
    ours, theirs = _wide(found), _wide(wanted)
    if ours == theirs:
        return
    if flat and min(len(ours), len(theirs)) <= 1 and math.prod(ours) == math.prod(theirs):
        return
    raise DataError(
        f"{label} has shape {list(found)} per sample; the model expects {list(wanted)}. "
        + _advice(found, wanted, label.endswith("'y'"))
    )


def fitting_transpose(found: Shape, wanted: Shape) -> Shape | None:
    """Axes of the transpose that makes an array of samples fit; axis 0 is the samples.

    None if no order fits. Axes of size 1 keep their place, axes of equal size their order.
    """
    left = [(axis, size) for axis, size in enumerate(found, 1) if size != 1]
    order = []
    for size in _wide(wanted):
        match = next((pair for pair in left if pair[1] == size), None)
        if match is None:
            return None
        left.remove(match)
        order.append(match[0])
    if left:
        return None
    moved = iter(order)
    return (0, *(axis if size == 1 else next(moved) for axis, size in enumerate(found, 1)))


def _wide(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _advice(found: Shape, wanted: Shape, target: bool) -> str:
    if target and wanted and not found:
        return (
            "If targets are class numbers, use a loss such as cross_entropy; if they are values, "
            "use a model with one output."
        )
    if not wanted and len(found) == 1 and found[0] > 1:
        return (
            "If targets are one-hot, pass y.argmax(1), the class numbers; if they are values, use "
            "a loss such as mse."
        )
    axes = fitting_transpose(found, wanted)
    if axes is not None:
        return (
            f"Transpose the array by {axes} (axis 0: samples), or start the model with this "
            "Transpose."
        )
    if math.prod(found) == math.prod(wanted):
        return (
            "The number of values is right: reshape the samples, or start the model with a Flatten "
            "or Reshape."
        )
    return "Use data or a model with a matching shape."
