"""Attention (ONNX 23 and later), built from matrix products, masks and softmax.

The scores [batch, heads, queries, keys] are a value; the planner recomputes them if they do not
fit. Query heads that share a key head are rows of one product, so keys and values are never
repeated. Masks are booleans applied by `where`; a query without any key gets zeros. Saved: as for
matmul, where and softmax.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import Value
from .affine import fits
from .elementwise import scalar
from .onnx_ops import onnx_rule
from .strides import contiguous, joined, permuted, prod

_WIDEST = 2**30  # a larger window covers everything


@dataclass
class _Steps:
    """Emits the ir nodes of one ONNX node, each with a value of its own."""

    context: Any
    node: Any

    def emit(self, op: str, inputs, shape, attrs=None, dtype: str = "f32") -> Value:
        out = self.context.temporary(self.node, op, shape, dtype)
        self.context.emit(self.node, op, inputs, [shape], attrs, outputs=[out], dtype=dtype)
        return self.context.named(out)

    def view(self, value: Value, shape) -> Value:
        if tuple(shape) == value.shape:
            return value
        return self.context.named(self.context.reshaped(self.node, value, shape))

    def transposed(self, value: Value, perm) -> Value:
        shape, moves = permuted(value.shape, perm)
        return self.emit("copy", [value], shape, {"moves": moves})

    def joined(self, first: Value, second: Value) -> Value:
        """Concatenate along axis 2 of 4."""
        shape, moves = joined((first.shape, second.shape), 2)
        return self.emit("copy", [first, second], shape, {"moves": moves})

    def lengthened(self, mask: Value, keys: int) -> Value:
        """Extend a mask to more keys; the new keys are not attended."""
        missing = keys - mask.shape[-1]
        if missing <= 0 or mask.shape[-1] == 1:
            return mask
        shape = (*mask.shape[:-1], keys)
        moves = ((0, 0, 0, mask.shape, contiguous(mask.shape), contiguous(shape)),)
        attrs = {"moves": moves, "fill": 0.0 if mask.dtype == "u8" else -np.inf}
        return self.emit("copy", [mask], shape, attrs, mask.dtype)

    def by_scalar(self, op: str, value: Value, number: float) -> Value:
        return self.emit(
            op, [value, scalar(self.context, self.node, "number", number)], value.shape
        )

    def matmul(self, a: Value, b: Value, shape, tb: bool = False, alpha: float = 1.0) -> Value:
        attrs = {"ta": False, "tb": tb, "alpha": alpha}
        return self.emit("matmul", [a, b, ""], shape, attrs)


def _positions(context, node, rank: int) -> tuple[range, str]:
    return range(1, rank), "an axis of heads, positions or channels"


@onnx_rule("Attention", settings=(3,), joined=_positions)
def attention(context, node) -> None:
    steps = _Steps(context, node)
    q, k, v, past = _operands(steps)
    batch, heads, queries, size = q.shape
    shared, keys = k.shape[1:3]
    if heads % shared or k.shape[3] != size or v.shape[:3] != k.shape[:3] or k.shape[0] != batch:
        raise node.fail(
            f"query, key and value have shapes {[list(x.shape) for x in (q, k, v)]}",
            "matching [batch, heads, length, size], query heads a multiple of key heads",
        )
    scale = float(node.attrs.get("scale", 1.0 / np.sqrt(size)))
    rows, shape = heads // shared * queries, (batch, heads, queries, keys)
    product = steps.matmul(
        steps.view(q, (batch, shared, rows, size)), k, (batch, shared, rows, keys), True, scale
    )
    stages = [steps.view(product, shape)]
    stages.append(_capped(steps, stages[0]))
    masks, bias, guarded = _masks(steps, shape, past)
    scores = stages[-1]
    if bias:
        scores = steps.emit("add", [scores, bias], shape)
    for mask in masks:
        low = scalar(context, node, "low", -np.inf)
        scores = steps.emit("where", [mask, scores, low], shape)
    stages.append(scores)
    weights = steps.emit("softmax", [scores], shape, {"axis": 3})
    for mask in masks if guarded else ():
        weights = steps.emit("where", [mask, weights, scalar(context, node, "zero", 0.0)], shape)
    stages.append(weights)
    mixed = steps.matmul(
        steps.view(weights, (batch, shared, rows, keys)), v, (batch, shared, rows, v.shape[3])
    )
    y = steps.view(mixed, (batch, heads, queries, v.shape[3]))
    if len(context.value(node, 0).shape) == 3:
        y = steps.view(steps.transposed(y, (0, 2, 1, 3)), (batch, queries, heads * v.shape[3]))
    qk = stages[int(node.attrs.get("qk_matmul_output_mode", 0))]
    for index, value in enumerate((y, k, v, qk)):
        if index < len(node.outputs) and node.outputs[index]:
            context.bind(node, index, value.name)


def _operands(steps: _Steps) -> tuple[Value, Value, Value, int]:
    """(q, k, v as [batch, heads, length, size] with past keys in front, number of past keys)."""
    context, node = steps.context, steps.node
    parts = []
    for index, heads in ((0, "q_num_heads"), (1, "kv_num_heads"), (2, "kv_num_heads")):
        x = context.value(node, index)
        if len(x.shape) == 3:
            count = int(node.attrs.get(heads, 0))
            if count < 1 or x.shape[2] % count:
                raise node.fail(f"{heads} {count}, width {x.shape[2]}", "a divisor of the width")
            x = steps.view(x, (*x.shape[:2], count, x.shape[2] // count))
            x = steps.transposed(x, (0, 2, 1, 3))
        elif len(x.shape) != 4:
            raise node.fail(f"input {index} of shape {list(x.shape)}", "3 or 4 dimensions")
        parts.append(x)
    if not context.has(node, 4):
        return parts[0], parts[1], parts[2], 0
    old = [context.value(node, index) for index in (4, 5)]
    for before, now in zip(old, parts[1:], strict=True):
        wanted = (*now.shape[:2], old[0].shape[2], now.shape[3])
        if before.shape != wanted:
            raise node.fail(f"past has shape {list(before.shape)}", f"{list(wanted)}")
    k, v = (steps.joined(a, b) for a, b in zip(old, parts[1:], strict=True))
    return parts[0], k, v, old[0].shape[2]


def _capped(steps: _Steps, scores: Value) -> Value:
    """softcap * tanh(scores / softcap)."""
    cap = float(steps.node.attrs.get("softcap", 0.0))
    if cap <= 0.0:
        return scores
    small = steps.by_scalar("mul", scores, 1.0 / cap)
    return steps.by_scalar("mul", steps.emit("tanh", [small], small.shape), cap)


def _masks(steps: _Steps, shape, past: int) -> tuple[list[Value | str], Value | None, bool]:
    """(masks to apply, a bias to add, whether some query may attend to nothing)."""
    context, node = steps.context, steps.node
    context.room(node, prod(shape[2:]), 6, weight=8)
    known = np.ones(shape[2:], np.bool_)
    masks: list[Value | str] = []
    bias, given = None, context.const(node, 3)
    if given is not None and 1 < given.shape[-1] < shape[3]:
        more = [(0, 0)] * (given.ndim - 1) + [(0, shape[3] - given.shape[-1])]
        given = np.pad(given, more, constant_values=False if given.dtype == bool else -np.inf)
    if context.has(node, 3) and (given is None or given.dtype != np.bool_):
        bias = context.value(node, 3)
        if bias.dtype == "i32":  # how a boolean input is stored
            bias = steps.emit("truth", [bias], bias.shape, {"want": 1}, "u8")
        bias = steps.lengthened(bias, shape[3])
        if not fits(bias.shape, shape):
            raise node.fail(f"mask has shape {list(bias.shape)}", f"one that fits {list(shape)}")
        if bias.dtype == "u8":
            masks, bias = [bias], None
        elif given is not None and np.isneginf(given).all(-1).any():
            known = known & ~np.isneginf(given)
    elif given is not None:
        if not fits(given.shape, shape):
            raise node.fail(f"mask has shape {list(given.shape)}", f"one that fits {list(shape)}")
        known = known & given
    queries, keys = (np.arange(count, dtype=np.int32) for count in shape[2:])
    ahead = keys - queries[:, None]
    frontiers = _frontiers(node)
    if context.has(node, 6):
        masks += _padded(steps, ahead, frontiers, shape)
    else:
        for sign, limit in frontiers:
            known = known & (sign * (ahead - past) <= limit)
    guarded = bool(masks) or not known.any(-1).all()
    if not known.all():
        masks.append(context.constant(node, "mask", known))
    return masks, bias, guarded


def _frontiers(node) -> list[tuple[int, int]]:
    """(sign, limit) of each constraint sign * (key - query position) <= limit."""
    right = min(int(node.attrs.get("right_window_size", -1)), _WIDEST)
    left = min(int(node.attrs.get("left_window_size", -1)), _WIDEST)
    result = [(1, 0)] if node.attrs.get("is_causal", 0) else []
    result += [(1, right)] if right >= 0 else []
    return result + ([(-1, left)] if left >= 0 else [])


def _padded(steps: _Steps, ahead: np.ndarray, frontiers, shape) -> list[Value]:
    """Masks from nonpad_kv_seqlen [batch]: only that many keys count; queries are the last of
    them."""
    context, node = steps.context, steps.node
    counts = context.value(node, 6)
    if prod(counts.shape) != shape[0]:
        raise node.fail(f"nonpad_kv_seqlen has shape {list(counts.shape)}", f"[{shape[0]}]")
    counts = steps.view(counts, (shape[0], 1, 1, 1))
    place = np.arange(shape[3], dtype=np.int32)
    rows = [("less", place.reshape(1, 1, 1, -1))]
    for sign, limit in frontiers:
        edge = (ahead + shape[2] - sign * limit).astype(np.int32)
        rows.append(("less_equal" if sign > 0 else "greater_equal", edge[None, None]))
    result = []
    for op, numbers in rows:
        constant = context.constant(node, "places", numbers)
        out = np.broadcast_shapes(numbers.shape, counts.shape)
        result.append(steps.emit(op, [constant, counts], out, dtype="u8"))
    return result
