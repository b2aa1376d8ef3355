"""Reductions over any axes. Saved: nothing for sum and mean, input and output for max and min."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import Node
from . import samples
from .folding import axes_of, nothing
from .onnx_ops import Fold, onnx_rule
from .registry import Op, register
from .strides import contiguous, merged, prod, spread
from .structure import Structure


class Sum(Op):
    """y = sum of x over attrs['axes'], kept as dimensions of one."""

    structure = Structure.REDUCED
    mean = False

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if dy and grads.needs(x):
            attrs = {"axes": node.attrs["axes"], "mean": self.mean}
            grads.contribute(x, "reduce_spread", [dy], attrs)


class Mean(Sum):
    """The mean of x over attrs['axes']."""

    mean = True


def _walks(values, attrs) -> dict[str, Any]:
    """Sizes and strides of x over the kept axes (k) and the reduced ones (r)."""
    shape, axes = values["x"].shape, attrs["axes"]
    strides, out = contiguous(shape), dict[str, Any](nx=prod(shape))
    kept = [k for k in range(len(shape)) if k not in axes]
    for letter, chosen in (("k", kept), ("r", list(axes))):
        sizes = [shape[k] for k in chosen]
        dims, steps, _ = merged(sizes, [strides[k] for k in chosen], contiguous(sizes))
        out |= {letter: dims, f"{letter}s": steps}
    return out


def _share(shape: Sequence[int], axes: Sequence[int]) -> float:
    return 1.0 / prod([shape[a] for a in axes])


def _reduced(values, attrs) -> dict[str, Any]:
    return _walks(values, attrs) | {"scale": 1.0}


def _mean(values, attrs) -> dict[str, Any]:
    return _walks(values, attrs) | {"scale": _share(values["x"].shape, attrs["axes"])}


def _spread(values, attrs) -> dict[str, Any]:
    """Broadcast dy over the reduced axes; for a mean, divided by their element count."""
    to, axes = values["y"].shape, attrs["axes"]
    shape = [1 if k in axes else d for k, d in enumerate(to)]
    return spread(shape, to, _share(to, axes) if attrs["mean"] else 1.0)


KINDS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}
register(Sum("reduce_sum", "x -> y", _reduced, cost=1, samples=samples.summed))
register(Mean("reduce_mean", "x -> y", _mean, cost=1, samples=samples.averaged))
register(Op("reduce_spread", "x -> y", _spread, kernel="copy", rounds=True))
# dx (+)= gradient from x, y and dy: an extreme's dy is split among ties, like torch's amax; a
# product's is dy times the product of the others.
for _name in ("reduce_max", "reduce_min", "reduce_prod"):
    register(
        Op(
            _name, "x -> y", _reduced, cost=1, gradient="x y dy", samples=samples.reduced,
            structure=Structure.REDUCED,
        )
    )  # fmt: skip
    register(Op(f"{_name}_bwd", "x y dy -> dx", _walks))


def reduced_shape(context, node, x) -> tuple[tuple[int, ...], list[int], list[int]] | None:
    """(reduced axes, output shape, output shape with reduced dimensions kept as 1); None if nothing
    is reduced.

    Axes are an attribute in older opsets and an input in newer ones.
    """
    axes = context.ints(node, 1, "axes")
    if not axes and node.attrs.get("noop_with_empty_axes", 0):
        return None
    rank = len(x.shape)
    axes = sorted({node.axis(a, rank) for a in axes}) if axes else list(range(rank))
    kept = [1 if k in axes else d for k, d in enumerate(x.shape)]
    dropped = [d for k, d in enumerate(x.shape) if k not in axes]
    return tuple(axes), kept if node.attrs.get("keepdims", 1) else dropped, kept


def _of_constants(function: Callable) -> Fold:
    def run(node, inputs):
        axes = axes_of(node, inputs)
        if not axes and node.attrs.get("noop_with_empty_axes", 0):
            return inputs[0]
        keep = bool(node.attrs.get("keepdims", 1))
        return np.asarray(function(inputs[0], axis=tuple(axes) if axes else None, keepdims=keep))

    return Fold(run, nothing, lists=1)


def _average(array, axis, keepdims):
    """The mean; of integers, rounded towards zero."""
    result = np.mean(array, axis=axis, keepdims=keepdims)
    return result if array.dtype.kind == "f" else np.trunc(result).astype(array.dtype)


@onnx_rule("ReduceSum", integers=(0,), fold=_of_constants(np.sum))
@onnx_rule("ReduceMean", integers=(0,), fold=_of_constants(_average))
@onnx_rule("ReduceMax", integers=(0,), fold=_of_constants(np.max))
@onnx_rule("ReduceMin", integers=(0,), fold=_of_constants(np.min))
@onnx_rule("ReduceProd", integers=(0,), fold=_of_constants(np.prod))
def reduce(context, node) -> None:
    x = context.value(node, 0)
    result = reduced_shape(context, node, x)
    if result is None:
        context.bind(node, 0, x.name)
        return
    context.emit(node, f"reduce_{KINDS[node.op_type]}", [x], [result[1]], {"axes": result[0]})
