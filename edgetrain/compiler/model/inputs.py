"""Replaces inputs by constants at compile time: a sampling rate, a temperature, a switch."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...errors import UsageError
from ...ops.model import InputSpec, Model

_KINDS = {"float": np.float32, "int": np.int64, "bool": np.bool_}


def with_inputs(model: Model, values: Mapping[str, float]) -> Model:
    """The model with these inputs as constants; everything computed from them is folded.

    An input that is already a constant is left unchanged.

    Raises:
      UsageError: there is no such input, it has free dimensions, or the value has the wrong type.
    """
    specs = {spec.name: spec for spec in model.inputs}
    arrays = {}
    for name, value in values.items():
        if name in specs:
            arrays[name] = _array(specs[name], value)
        elif name not in model.initializers or name in model.parameters:
            raise UsageError(
                f"input {name!r} not found; the model has {', '.join(specs) or 'none'}."
            )
    rest = tuple(spec for spec in model.inputs if spec.name not in arrays)
    if not arrays:
        return model
    if not rest:
        raise UsageError(f"input {', '.join(arrays)}: no input remains for samples. Leave one out.")
    return replace(model, inputs=rest, initializers={**model.initializers, **arrays})


def _array(spec: InputSpec, value: float) -> np.ndarray:
    sizes = [dim for dim in spec.dims if isinstance(dim, int)]
    if len(sizes) < len(spec.dims):
        raise UsageError(
            f"input {spec.name!r}: it has free dimensions ({list(spec.dims)}), so it can't have "
            "a fixed value. Pass it with the samples."
        )
    kind = _KINDS[spec.dtype]
    if spec.dtype != "float" and float(value) != int(value):
        raise UsageError(f"input {spec.name!r}: {value:g}; expected a whole number.")
    return np.full(sizes, value, kind)
