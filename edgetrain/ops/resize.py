"""Resize and Upsample: nearest, linear and cubic along any axes. Saved: nothing.

Along an axis, every output element is a weighted sum of input elements, so a resize is a table of
taps (kernels/pool/resample.py), computed here in float64. Backward uses the transposed table.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..ir import Node
from . import samples
from .onnx_ops import onnx_rule
from .registry import Op, register
from .strides import prod


class Resample(Op):
    """y = rows x cols of each plane; inputs x, rows, cols and the transposed tables of both."""

    def vjp(self, grads, node: Node) -> None:
        dy, x = grads.of(node.outputs[0]), node.inputs[0]
        if not dy or not grads.needs(x):
            return
        attrs = dict(node.attrs)
        attrs |= {"h": attrs["oh"], "wd": attrs["ow"], "oh": attrs["h"], "ow": attrs["wd"]}
        grads.contribute(x, "resample", [dy, *node.inputs[3:5]], attrs)


def _taps(values, attrs) -> int:
    rows = attrs["rt"] // attrs["oh"] if "rows" in values else 1
    return 2 * values["y"].size * rows * (attrs["ct"] // attrs["ow"] if "cols" in values else 1)


register(Resample("resample", "x rows cols -> y", cost=_taps, samples=samples.images))

# One output element: [(input index, weight), ...]
Taps = list[tuple[int, float]]
Coordinate = Callable[[int], float]
_ZERO = np.float32(0)


def _half_pixel(size: int, count: int, step: np.float32, offset: np.float32 = _ZERO) -> Coordinate:
    half = np.float32(0.5)
    return lambda i: float(offset + (np.float32(i) + half) / step - half)


def _pytorch_half_pixel(size: int, count: int, step: np.float32) -> Coordinate:
    return _half_pixel(size, count, step) if count > 1 else lambda i: 0.0


def _half_pixel_symmetric(size: int, count: int, step: np.float32) -> Coordinate:
    f32 = np.float32
    offset = f32(size) / f32(2) * (f32(1) - f32(count) / (step * f32(size)))
    return _half_pixel(size, count, step, offset)


def _align_corners(size: int, count: int, step: np.float32) -> Coordinate:
    f32 = np.float32
    return lambda i: float(f32(i) * f32(size - 1) / f32(count - 1)) if count > 1 else 0.0


def _asymmetric(size: int, count: int, step: np.float32) -> Coordinate:
    return lambda i: float(np.float32(i) / step)


def _tf_half_pixel_for_nn(size: int, count: int, step: np.float32) -> Coordinate:
    return lambda i: float((np.float32(i) + np.float32(0.5)) / step)


# By coordinate_transformation_mode: (elements of the input, of the output, scale) -> function from
# an output index to its coordinate in the input. Coordinates are float32, as in torch and
# onnxruntime: 1 / 0.2 is 5, so floor takes element 5.
_COORDINATES: dict[str, Callable[[int, int, np.float32], Coordinate]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
}

_BEFORE_11 = "simple"  # ceil along an axis that shrinks, else floor
_TAP = 2048  # work per tap, because it is computed in Python

_ROUND: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _linear(distance: float, a: float) -> float:
    return max(0.0, 1.0 - abs(distance))


def _cubic(distance: float, a: float) -> float:
    """Keys' kernel: width 2, slope a at 1."""
    d = abs(distance)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def _interpolated(node, x: float, size: int, scale: float) -> Taps:
    """Taps around coordinate x. Beyond the edge, the edge repeats, or taps are left out and the
    rest normalised to sum to 1."""
    cubic = node.attrs.get("mode") == "cubic"
    kernel, reach = (_cubic, 2) if cubic else (_linear, 1)
    a = float(node.attrs.get("cubic_coeff_a", -0.75))
    narrow = min(1.0, scale) if node.attrs.get("antialias", 0) else 1.0
    low, high = math.floor(x - reach / narrow), math.ceil(x + reach / narrow)
    taps = [(i, kernel((i - x) * narrow, a)) for i in range(low, high + 1)]
    if node.attrs.get("exclude_outside", 0):
        taps = [(i, w) for i, w in taps if 0 <= i < size]
    total = sum(w for _, w in taps)
    return [(min(max(i, 0), size - 1), w / total) for i, w in taps]


def _axis_taps(context, node, size: int, count: int, scale: float) -> list[Taps]:
    """Taps of every output element along one axis."""
    name = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    reach = {"nearest": 0, "cubic": 2}.get(node.attrs.get("mode", "nearest"), 1)
    narrow = min(1.0, scale) if node.attrs.get("antialias", 0) else 1.0
    context.room(node, count * (1 + math.ceil(2 * reach / narrow)), 128, _TAP)
    context.room(node, size, 8, 8)
    if name not in _COORDINATES:
        raise node.fail(f"coordinate_transformation_mode {name!r}", ", ".join(_COORDINATES))
    place = _COORDINATES[name](size, count, np.float32(scale))
    if node.attrs.get("mode", "nearest") == "nearest":
        nearest = node.attrs.get("nearest_mode", "round_prefer_floor")
        if nearest == _BEFORE_11:
            nearest = "ceil" if scale < 1.0 else "floor"
        rounded = _ROUND[nearest]
        return [[(min(max(rounded(place(i)), 0), size - 1), 1.0)] for i in range(count)]
    return [_interpolated(node, place(i), size, scale) for i in range(count)]


def _tables(taps: Sequence[Taps], size: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(table, transposed table, taps) in the kernel's format; weights for the same index are
    added."""
    summed: dict[tuple[int, int], float] = {}
    for out, row in enumerate(taps):
        for index, weight in row:
            summed[out, index] = summed.get((out, index), 0.0) + weight
    entries = [(out, index, w) for (out, index), w in summed.items() if w != 0.0]
    turned = [(index, out, w) for out, index, w in entries]
    return _table(entries, len(taps)), _table(turned, size), len(entries)


def _table(entries: Sequence[tuple[int, int, float]], count: int) -> np.ndarray:
    entries = sorted(entries, key=lambda entry: entry[:2])
    starts = np.searchsorted([entry[0] for entry in entries], np.arange(count + 1))
    weights = np.array([entry[2] for entry in entries], np.float32).view(np.int32)
    indices = np.array([entry[1] for entry in entries], np.int32)
    return np.concatenate([starts.astype(np.int32), indices, weights])


def _emit(context, node, x, axes: Sequence[int], tables, outputs) -> str:
    """One pass over one axis, or over the last two together."""
    shape, first = list(x.shape), axes[0]
    attrs: dict = {"outer": prod(shape[:first]), "rt": 0, "ct": 0}
    names: list[str] = ["", "", "", ""]
    for slot, axis in enumerate(axes):
        taps, count = tables[axis]
        table, turned, total = _tables(taps, shape[axis])
        names[slot] = context.constant(node, f"taps{axis}", table)
        names[slot + 2] = context.constant(node, f"taps{axis}t", turned)
        attrs["rc"[slot] + "t"] = total
        shape[axis] = count
    attrs |= {"h": x.shape[first], "oh": shape[first]}
    attrs |= {"wd": prod(x.shape[first + 1 :]), "ow": prod(shape[first + 1 :])}
    (out,) = context.emit(node, "resample", [x, *names], [shape], attrs, outputs=outputs)
    return out


def _resize(context, node, x, sizes: Sequence[int], scales: Sequence[float]) -> None:
    """Emit passes for the axes that change."""
    changed = [
        k
        for k, (size, scale) in enumerate(zip(sizes, scales, strict=True))
        if scale != 1.0 or size != x.shape[k]
    ]
    if not changed:
        context.bind(node, 0, x.name)
        return
    if min(sizes) < 1 or max(sizes) > 2**24:
        raise node.fail(f"an output of shape {list(sizes)}", "positive sizes below 2^24")
    tables = {
        k: (_axis_taps(context, node, x.shape[k], sizes[k], scales[k]), sizes[k]) for k in changed
    }
    rank = len(x.shape)
    passes = [[k] for k in changed]
    if changed[-2:] == [rank - 2, rank - 1]:
        passes[-2:] = [[rank - 2, rank - 1]]
    for number, axes in enumerate(passes):
        outputs = None
        if number < len(passes) - 1:
            shape = [sizes[k] if k <= axes[-1] else d for k, d in enumerate(x.shape)]
            outputs = [context.temporary(node, f"pass{number}", shape)]
        x = context.named(_emit(context, node, x, axes, tables, outputs))


def _wanted(context, node, x) -> tuple[list[int], list[float]]:
    """(sizes, scales) of all axes from the inputs of any opset."""
    given = context.const(node, 1 if context.opset < 11 else 2)
    scales = None if given is None or given.size == 0 else given.astype(np.float32).ravel()
    rank = len(x.shape)
    axes = [a % rank for a in node.attrs.get("axes", range(rank))]
    full_sizes, full_scales = list(x.shape), [1.0] * rank
    if scales is not None:
        if len(scales) != len(axes) or not np.all(scales > 0) or not np.all(np.isfinite(scales)):
            raise node.fail(f"scales {scales.tolist()}", f"{len(axes)} positive numbers")
        for axis, scale in zip(axes, scales, strict=True):
            full_sizes[axis] = int(np.float32(x.shape[axis]) * scale)
            full_scales[axis] = float(scale)
        return full_sizes, full_scales
    sizes = context.ints(node, 3)
    if sizes is None or len(sizes) != len(axes) or min(sizes) < 1:
        raise node.fail(f"sizes {sizes}", f"{len(axes)} positive numbers, or scales")
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    ratios = [size / x.shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        ratios = [ratio] * len(axes)
        sizes = [int(ratio * x.shape[axis] + 0.5) for axis in axes]
    for axis, size, ratio in zip(axes, sizes, ratios, strict=True):
        full_sizes[axis], full_scales[axis] = size, ratio
    return full_sizes, full_scales


@onnx_rule("Resize", settings=(1, 2), sizes=(1, 2, 3))
def resize(context, node) -> None:
    x = context.value(node, 0)
    sizes, scales = _wanted(context, node, x)
    if context.opset < 11:
        node = _old(node)
    _resize(context, node, x, sizes, scales)


@onnx_rule("Upsample", settings=(1,))
def upsample(context, node) -> None:
    x = context.value(node, 0)
    scales = node.attrs.get("scales")
    if scales is None:
        given = context.const(node, 1)
        scales = [] if given is None else given.ravel().tolist()
    if len(scales) != len(x.shape) or not all(0 < s < 2**20 for s in scales):
        raise node.fail(f"scales {list(scales)}", f"{len(x.shape)} positive constants")
    sizes = [int(np.float32(d) * np.float32(s)) for d, s in zip(x.shape, scales, strict=True)]
    _resize(context, _old(node), x, sizes, [float(s) for s in scales])


def _old(node):
    """The attributes of opset 11 that correspond to a node from before."""
    mode = node.attrs.get("mode", "nearest")
    attrs = {
        "mode": "linear" if mode == "bilinear" else mode,
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": _BEFORE_11,
    }
    return type(node)(node.name, node.op_type, node.inputs, node.outputs, attrs)
