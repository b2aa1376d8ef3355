"""Whether a sample's axes are those that a model wants: equal counts of values are not enough."""

import math

from edgetrain.errors import DataError

Shape = tuple[int, ...]


def check_layout(label: str, found: Shape, wanted: Shape, *, flat: bool = False) -> None:
    """`found` is `wanted` but for axes of size 1.

    Args:
      label: "source: field 'x'", for the message.
      found: shape of one sample, without the axis that counts samples.
      wanted: shape that the model has for it.
      flat: the values have one order only (a line of a csv file, a picture of one channel), so
        one axis may stand for several.
    Raises:
      DataError: they differ; names both and the transpose that would fit.
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
    """Axes for a transpose of the array of samples, axis 0 counting them, so that it fits.

    None where no order of the axes fits. Axes of size 1 stay where they are, axes of equal size
    in their order.
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
            "Where it is a class by number, choose a loss of classes, such as cross_entropy; where "
            "it is a value, take a model with one output."
        )
    if not wanted and len(found) == 1 and found[0] > 1:
        return (
            "Where it is one of each class (one-hot), take y.argmax(1): classes by number; where "
            "it is values, choose a loss of values, such as mse."
        )
    axes = fitting_transpose(found, wanted)
    if axes is not None:
        return (
            f"Transpose the samples by {axes} (axis 0 counts them), or start the model with this "
            "Transpose."
        )
    if math.prod(found) == math.prod(wanted):
        return (
            "As many values, but in which order they lie is not known: reshape the samples, or "
            "start the model with a Flatten or Reshape."
        )
    return "Use data or a model of the other's shape."
