"""Finds the batch axis of each input from the file's dimensions.

The batch is a symbolic dimension shared by all inputs; if there are several, the one named like a
batch. If names don't decide, there are several readings, which compiler/model/batch.py tries on the
graph.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from ..errors import UsageError
from .model import InputSpec, Model

Axes = tuple[int, ...]  # the batch axis of each input, in order
MOST = 64  # most readings to try
_SAYS = re.compile(r".*batch.*", re.IGNORECASE)
_HINTS = re.compile(r"n|b|m|bs|.*samples?", re.IGNORECASE)


def check_axes(model: Model, given: Mapping[str, int]) -> None:
    """Check that the given batch axes exist.

    Raises:
      UsageError: names the input and its axes.
    """
    ranks = {spec.name: len(spec.dims) for spec in model.inputs}
    for name, axis in given.items():
        if name not in ranks:
            raise UsageError(
                f"batch axis {name}={axis}: no such input; the model has {', '.join(ranks)}."
            )
        if not 0 <= axis < ranks[name]:
            raise UsageError(
                f"batch axis {name}={axis}: the input has {ranks[name]} dimensions; expected an "
                f"axis from 0 to {ranks[name] - 1}."
            )


def axes_of(model: Model) -> Axes:
    """The batch axis of each input."""
    return tuple(spec.batch for spec in model.inputs)


def with_axes(model: Model, axes: Sequence[int]) -> Model:
    """The model with these batch axes; the same object if nothing changes."""
    if model.batch_known and axes_of(model) == tuple(axes):
        return model
    pairs = zip(model.inputs, axes, strict=True)
    inputs = tuple(replace(spec, batch=axis) for spec, axis in pairs)
    return replace(model, inputs=inputs, batch_known=True)


def readings(
    specs: Sequence[InputSpec], dims: Mapping[str, int], given: Mapping[str, int]
) -> list[Axes]:
    """Possible batch axes of the inputs, likeliest first; only one if the file decides.

    Args:
      dims: given sizes of dimensions, which are not the batch.
      given: given batch axes by input.
    Returns:
      At most MOST + 1 readings; none if the inputs have no size in common.
    """
    places = [_places(spec, dims, given) for spec in specs]
    result = _by_name(specs, places) or _by_size(specs, places)
    zero = (0,) * len(specs)
    return [zero, *(axes for axes in result if axes != zero)] if zero in result else result


def _places(spec: InputSpec, dims: Mapping[str, int], given: Mapping[str, int]) -> list[int]:
    """Axes of an input that may be the batch."""
    if spec.name in given:
        return [given[spec.name]]
    every = [*range(max(1, len(spec.dims)))]
    return [k for k in every if not spec.dims or not _is_bound(spec, k, dims)] or every


def _is_bound(spec: InputSpec, axis: int, dims: Mapping[str, int]) -> bool:
    """Whether a dimension has a given size and is not named like a batch."""
    label = spec.label(axis)
    return label in dims and not _SAYS.fullmatch(label)


def _by_name(specs: Sequence[InputSpec], places: Sequence[Sequence[int]]) -> list[Axes]:
    """Readings by symbolic dimensions shared by all inputs."""
    each = [
        {str(spec.dims[k]): k for k in reversed(own) if isinstance(spec.dims[k], str)}
        for spec, own in zip(specs, places, strict=True)
        if spec.dims
    ]
    common = [name for name in (each[0] if each else ()) if all(name in own for own in each)]
    likely = [name for name in common if _SAYS.fullmatch(name)]
    likely = likely or [name for name in common if _HINTS.fullmatch(name)]
    with_dims = iter(range(len(each)))
    numbers = [next(with_dims) if spec.dims else None for spec in specs]
    result = [
        tuple(0 if k is None else each[k][name] for k in numbers) for name in (likely or common)
    ]
    if len(result) == 1 and (likely or not all(result[0])):
        return result
    if likely:
        return [axes for axes in result if not any(axes)] or result
    zero = (0,) * len(specs)
    if result and zero not in result and all(0 in own for own in places):
        result += [zero] * _alike([spec.dims[0] for spec in specs if spec.dims])
    return result


def _alike(sizes: Sequence[int | str | None]) -> bool:
    """Whether all sizes are the same number, or none is a number."""
    numbers = [size for size in sizes if isinstance(size, int)]
    return not numbers or (len(numbers) == len(sizes) and len({*numbers}) == 1)


def _by_size(specs: Sequence[InputSpec], places: Sequence[Sequence[int]]) -> list[Axes]:
    """Readings by dimensions without a number; if there are only numbers, by equal ones."""
    named = [
        [k for k in own if spec.dims and not isinstance(spec.dims[k], int)] or own
        for spec, own in zip(specs, places, strict=True)
    ]
    firsts = [spec.dims[0] for spec in specs if spec.dims]
    if all(0 in own for own in named) and not any(isinstance(size, int) for size in firsts):
        return [(0,) * len(specs)]

    def fits(axes: Axes) -> bool:
        pairs = [(spec.dims, k) for spec, k in zip(specs, axes, strict=True) if spec.dims]
        return _alike([size for dims, k in pairs if isinstance(size := dims[k], int)])

    return [*islice((axes for axes in product(*named) if fits(axes)), MOST + 1)]
