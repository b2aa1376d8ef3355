"""Finds the batch axis of each input if the file doesn't name it.

Every possible choice (ops/batch_axis.py) is tried: the graph is bound, and the rules of
ops/samples.py check whether samples along those axes are independent. If axis 0 can be the batch
axis of all inputs, it is; otherwise the only choice with independent samples is taken.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...errors import EdgetrainError, ModelError, UnsupportedOpError, UsageError
from ...ops.batch_axis import MOST, Axes, axes_of, check_axes, readings, with_axes
from ...ops.model import InputSpec, Model
from .inputs import with_inputs
from .model_options import ModelOptions
from .new_head import with_new_heads
from .proof import MIXED, proved

_SIZE = 4  # stand-in for unknown dimensions while a choice is tried


def laid_out(model: Model, options: ModelOptions) -> Model:
    """The model with the batch axis of every input and with the requested last layers; the same
    object if nothing changes.

    Raises:
      UsageError: `options.batch_axis` names no axis, or is needed and missing; see
        `with_new_heads`.
      ModelError: no dimension can be the batch of all inputs.
    """
    return with_new_heads(_with_batch(model, options), options)


def _with_batch(model: Model, options: ModelOptions) -> Model:
    given = options.batch_axis
    check_axes(model, given)
    agrees = all(spec.batch == given.get(spec.name, spec.batch) for spec in model.inputs)
    bound = any(spec.dims and spec.dims[spec.batch] in options.dims for spec in model.inputs)
    valued = any(spec.name in options.inputs for spec in model.inputs)
    if model.batch_known and agrees and not bound and not valued:
        return model
    return _chosen(with_inputs(model, options.inputs) if valued else model, options)


def _chosen(model: Model, options: ModelOptions) -> Model:
    specs = model.inputs
    result = readings(specs, options.dims, options.batch_axis)
    if not result:
        raise ModelError(
            f"inputs {_listed(specs)}: no axis can be the batch of all of them. Name the batch "
            f"axes, such as {_advice(specs, [0] * len(specs))}, or export with a named batch "
            "dimension."
        )
    if len(result) == 1:
        return with_axes(model, result[0])
    if len(result) > MOST:
        raise _ambiguous(specs, result)
    apart: list[Model] = []
    for axes in result:
        candidate = with_axes(model, axes)
        if _is_apart(candidate, options):
            if not any(axes):
                return candidate
            apart.append(candidate)
    if len(apart) == 1:
        return apart[0]
    if not apart and not any(result[0]):
        return with_axes(model, result[0])
    raise _ambiguous(specs, [axes_of(item) for item in apart] or result)


def _is_apart(model: Model, options: ModelOptions) -> bool:
    """Whether samples along the model's batch axes are independent."""
    batch = {spec.dims[spec.batch] for spec in model.inputs if spec.dims}
    free = {
        spec.label(axis)
        for spec in model.inputs
        for axis, dim in enumerate(spec.dims)
        if axis != spec.batch and not isinstance(dim, int) and dim not in batch
    }
    dims = dict.fromkeys(sorted(free), _SIZE) | dict(options.dims)
    try:
        return proved(model, replace(options, dims=dims)).kind != MIXED
    except UnsupportedOpError:
        raise
    except EdgetrainError:
        return False


def _ambiguous(specs: Sequence[InputSpec], found: Sequence[Axes]) -> UsageError:
    several = [k for k in range(len(specs)) if len({axes[k] for axes in found}) > 1]
    axes = [" or ".join(map(str, sorted({axes[k] for axes in found}))) for k in several]
    words = ", ".join(
        f"axis {which} of input {_listed([specs[k]])}"
        for k, which in zip(several, axes, strict=True)
    )
    likely = [found[-1][k] for k in several]
    return UsageError(
        f"the batch may be {words}: the file does not name its dimensions. Pass "
        f"{_advice([specs[k] for k in several], likely)}."
    )


def _advice(specs: Sequence[InputSpec], axes: Sequence[int]) -> str:
    pairs = list(zip(specs, axes, strict=True))
    typed = " ".join(f"--batch-axis {spec.name}={axis}" for spec, axis in pairs)
    written = ", ".join(f'"{spec.name}": {axis}' for spec, axis in pairs)
    return f"{typed} (batch_axis={{{written}}})"


def _listed(specs: Sequence[InputSpec]) -> str:
    return ", ".join(
        f"{spec.name!r} [{', '.join('?' if dim is None else str(dim) for dim in spec.dims)}]"
        for spec in specs
    )
