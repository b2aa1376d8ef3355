"""Random numbers in a graph, also in evaluation. They are a hash of (seed, step, microbatch, node,
element), so a repeated draw is the same and nothing is saved.

A node's own `seed` only distinguishes it from other nodes; the run's seed decides the numbers.
"""

import numpy as np

from ..ir.keys import key_of
from .onnx_ops import onnx_rule
from .registry import Op, register
from .strides import prod


def _written(values, attrs) -> dict[str, int]:
    return {"n": values["y"].size}


def _normals(values, attrs) -> int:
    return 40 * values["y"].size


# y = low + span * u of attrs, u uniform in [0, 1); y = mean + scale * z, z standard normal.
# Samples are independent if the shape follows the batch (compiler/model/samples.py).
register(Op("random_uniform", "-> y", _written, gradient=""))
register(Op("random_normal", "-> y", _written, cost=_normals, gradient=""))
_FLOATS = (1, 10, 11, 16)  # ONNX element types


@onnx_rule("RandomUniform", "RandomUniformLike")
def uniform(context, node) -> None:
    low, high = (
        float(node.attrs.get(name, value)) for name, value in (("low", 0.0), ("high", 1.0))
    )
    # Numbers compared with a probability stay in float32: in fp16 some below 1 would round to 1.
    _emit(context, node, "random_uniform", {"low": low, "span": high - low}, "statistic")


@onnx_rule("RandomNormal", "RandomNormalLike")
def normal(context, node) -> None:
    mean, scale = float(node.attrs.get("mean", 0.0)), float(node.attrs.get("scale", 1.0))
    _emit(context, node, "random_normal", {"mean": mean, "scale": scale}, None)


@onnx_rule("Bernoulli")
def bernoulli(context, node) -> None:
    """1 with the input's probability, else 0; without gradient."""
    p = context.value(node, 0)
    attrs = {"low": 0.0, "span": 1.0, "key": _key(node)}
    number = context.temporary(node, "number", p.shape, role="statistic")
    context.emit(node, "random_uniform", [], [p.shape], attrs, outputs=[number])
    code = int(node.attrs.get("dtype", 1))
    if code not in _FLOATS:
        context.emit(node, "less", [number, p], [p.shape], dtype="u8")
        return
    one, zero = (context.constant(node, str(v), np.float32(v)) for v in (1, 0))
    mask = context.temporary(node, "mask", p.shape, "u8")
    context.emit(node, "less", [number, p], [p.shape], outputs=[mask], dtype="u8")
    context.emit(node, "where", [mask, one, zero], [p.shape])


def _emit(context, node, op: str, attrs, role) -> None:
    like = node.op_type.endswith("Like")
    code = int(node.attrs.get("dtype", 1))
    if code not in _FLOATS:
        raise node.fail(f"numbers of element type {code}", "floats")
    if not all(np.isfinite(v) for v in attrs.values()):
        raise node.fail(f"{', '.join(f'{k} {v}' for k, v in attrs.items())}", "finite numbers")
    shape = _shape_like(context, node) if like else context.ints(node, 0, "shape")
    context.room(node, prod(shape), 0)
    context.emit(node, op, [], [shape], attrs | {"key": _key(node)}, role=role)


def _shape_like(context, node) -> tuple[int, ...]:
    known = context.const(node, 0)
    return context.value(node, 0).shape if known is None else known.shape


def _key(node) -> int:
    seed = node.attrs.get("seed")
    return key_of(node.outputs[0] if seed is None else f"{node.outputs[0]} {seed}")
