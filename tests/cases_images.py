"""Op cases: transposed convolution, resizing, local response normalisation, blocks of pixels."""

import numpy as np
import torch
import torch.nn.functional as F

from .op_case import BATCH, A, C, Case, P, X, floats, ints

_NONE = C([], np.float32)


def _transposed(name, x, w, bias=False, opset=17, crop=None, **attrs) -> Case:
    """`crop`: (begin, end) of every spatial axis, if the pads differ between the two sides."""
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(w) - 3]
    rank = len(w) - 2

    def meaning(x, w, b=None):
        pads = attrs.get("pads", [0] * 2 * rank)
        whole = function(
            x, w, None, attrs.get("strides", 1), 0, attrs.get("output_padding", 0),
            attrs.get("group", 1), attrs.get("dilations", 1),
        )  # fmt: skip
        begins, ends = crop or (pads[:rank], pads[rank:])
        for axis in range(rank):
            size = whole.shape[2 + axis] - begins[axis] - ends[axis]
            whole = whole.narrow(2 + axis, begins[axis], size)
        return whole if b is None else whole + b.reshape(1, -1, *[1] * rank)

    args = [X((BATCH, *x)), P(w), *([P((w[1] * attrs.get("group", 1),))] if bias else [])]
    # onnx.reference assumes a single group, and adds no remainder to reach output_shape.
    return Case(
        "ConvTranspose",
        name,
        args,
        meaning,
        attrs,
        opset,
        reference="group" not in attrs and "output_shape" not in attrs,
    )


def _transposed_cases() -> list[Case]:
    return [
        _transposed("2x2", (4, 3, 4), (4, 3, 2, 2), True, strides=[2, 2]),
        _transposed("3x3", (3, 4, 5), (3, 4, 3, 3), pads=[1, 1, 1, 1]),
        _transposed("strided", (3, 4, 3), (3, 2, 3, 3), True, strides=[2, 3], pads=[1, 0, 1, 0],
                    output_padding=[1, 2]),
        _transposed("dilated", (2, 4, 3), (2, 3, 2, 3), dilations=[2, 1], strides=[1, 2]),
        _transposed("groups", (4, 3, 3), (4, 3, 3, 2), True, group=2, strides=[2, 1]),
        _transposed("depthwise", (3, 4, 4), (3, 1, 3, 3), group=3, pads=[0, 1, 2, 0]),
        _transposed("output shape", (2, 3, 3), (2, 2, 3, 3), strides=[2, 2], output_shape=[6, 5],
                    crop=([1, 1], [0, 1])),
        _transposed("same upper", (2, 3, 3), (2, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER",
                    crop=([0, 0], [1, 1])),
        _transposed("same lower", (2, 3, 3), (2, 2, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER",
                    crop=([1, 1], [0, 0])),
        _transposed("1-D", (4, 6), (4, 3, 4), True, strides=[2], pads=[1, 1], opset=11),
        _transposed("3-D apart", (3, 2, 3, 2), (3, 2, 2, 2, 2), True, strides=[2, 2, 2]),
        _transposed("3-D", (2, 3, 2, 4), (2, 3, 3, 2, 3), True, strides=[2, 1, 2],
                    pads=[1, 0, 1] * 2, output_padding=[1, 0, 1]),
        _transposed("3-D dilated", (2, 3, 3, 2), (2, 2, 3, 2, 1), dilations=[2, 1, 1],
                    strides=[3, 1, 2], pads=[2, 1, 0, 1, 0, 0]),
        _transposed("3-D groups", (4, 3, 2, 2), (4, 2, 2, 1, 3), True, group=2),
        _transposed("3-D one slice", (2, 1, 3, 3), (2, 3, 4, 2, 2), pads=[1, 0, 0, 2, 0, 0]),
        Case("ConvTranspose", "computed weight", [X((BATCH, 2, 3, 3)), A((2, 3, 2, 2))],
             F.conv_transpose2d),
    ]  # fmt: skip


def _resized(name, sizes, torch_options, shape=(BATCH, 3, 5, 6), opset=18, **attrs) -> Case:
    def meaning(x, *rest):
        return F.interpolate(x, sizes, **torch_options)

    # onnx.reference has no tie-free rule for the exact middle of nearest neighbours.
    args = [X(shape), _NONE, _NONE, ints(*shape[:2], *sizes)]
    return Case("Resize", name, args, meaning, attrs, opset)


def _resize_cases() -> list[Case]:
    pixel, asymmetric = "pytorch_half_pixel", "asymmetric"
    image = X((BATCH, 3, 4, 5))
    return [
        _resized("nearest", (9, 4), {"mode": "nearest"}, mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode=asymmetric),
        _resized("nearest exact", (10, 4), {"mode": "nearest-exact"}, mode="nearest",
                 nearest_mode="round_prefer_ceil", coordinate_transformation_mode="half_pixel"),
        _resized("linear", (9, 4), {"mode": "bilinear"}, mode="linear",
                 coordinate_transformation_mode=pixel),
        _resized("linear corners", (9, 4), {"mode": "bilinear", "align_corners": True},
                 mode="linear", coordinate_transformation_mode="align_corners"),
        _resized("cubic", (9, 14), {"mode": "bicubic"}, mode="cubic",
                 coordinate_transformation_mode=pixel),
        _resized("cubic corners", (3, 14), {"mode": "bicubic", "align_corners": True},
                 mode="cubic", coordinate_transformation_mode="align_corners"),
        _resized("1-D", (11,), {"mode": "linear"}, (BATCH, 3, 5), mode="linear",
                 coordinate_transformation_mode="half_pixel"),
        _resized("antialias", (3, 4), {"mode": "bilinear", "antialias": True}, mode="linear",
                 antialias=1, exclude_outside=1, coordinate_transformation_mode=pixel),
        Case("Resize", "scales", [image, _NONE, floats([1, 1, 2, 0.6])],
             lambda x, *_: F.interpolate(x, scale_factor=(2.0, 0.6), mode="bilinear",
                                         recompute_scale_factor=False),
             {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}, 13),
        Case("Resize", "opset 10", [image, floats([1, 1, 2, 3])],
             lambda x, _: x.repeat_interleave(2, 2).repeat_interleave(3, 3), {}, 10,
             reference=False),
        Case("Resize", "channels", [image, _NONE, floats([1, 2, 1, 1])],
             lambda x, *_: x.repeat_interleave(2, 1),
             {"nearest_mode": "floor", "coordinate_transformation_mode": asymmetric}, 13),
        Case("Resize", "nothing", [image, _NONE, floats([1, 1, 1, 1])], lambda x, *_: x, {}, 13),
        Case("Upsample", "nearest", [image, floats([1, 1, 2, 3])],
             lambda x, _: x.repeat_interleave(2, 2).repeat_interleave(3, 3), {"mode": "nearest"},
             9, reference=False),
        Case("Upsample", "linear", [image, floats([1, 1, 2, 2])], _asymmetric_linear,
             {"mode": "linear"}, 9, reference=False),
    ]  # fmt: skip


def _asymmetric_linear(x, _):
    """Double the size: element i reads i / 2, and the edge is repeated."""
    for axis in (2, 3):
        after = torch.cat([x.narrow(axis, 1, x.shape[axis] - 1), x.narrow(axis, -1, 1)], axis)
        x = torch.stack([x, (x + after) / 2], axis + 1).flatten(axis, axis + 1)
    return x


def _lrn(name, size, **attrs) -> Case:
    alpha, beta, bias = (
        attrs.get(k, v) for k, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )

    def meaning(x):
        channels = range(x.shape[1])
        windows = [slice(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in channels]
        sums = torch.stack([(x[:, window] ** 2).sum(1) for window in windows], 1)
        return x / (bias + alpha / size * sums) ** beta

    args = [X((BATCH, 7, 3, 6))]
    return Case("LRN", name, args, meaning, {"size": size, **attrs}, 13, reference=False)


def _block_cases() -> list[Case]:
    image = X((BATCH, 8, 2, 3))
    return [
        Case("DepthToSpace", "columns", [image], lambda x: F.pixel_shuffle(x, 2),
             {"blocksize": 2, "mode": "CRD"}),
        Case("DepthToSpace", "depth", [image],
             lambda x: x.reshape(2, 2, 2, 2, 2, 3).permute(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 6),
             {"blocksize": 2}),
        Case("SpaceToDepth", "two", [X((BATCH, 2, 4, 6))],
             lambda x: x.reshape(2, 2, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(2, 8, 2, 3),
             {"blocksize": 2}),
    ]  # fmt: skip


def _window_sums(x, kernel, attrs):
    """Sums over windows, computed by a convolution with ones."""
    rank, pads = len(kernel), attrs.get("pads", [0] * 2 * len(kernel))
    sides = [v for k in reversed(range(rank)) for v in (pads[k], pads[k + rank])]
    ones = torch.ones(x.shape[1], 1, *kernel, dtype=x.dtype)
    function = F.conv1d if rank == 1 else F.conv2d
    return function(
        F.pad(x, sides), ones, None, attrs.get("strides", 1), 0, attrs.get("dilations", 1),
        x.shape[1],
    )  # fmt: skip


def _dilated(name, x, kernel, **attrs) -> Case:
    def meaning(x):
        total = _window_sums(x, kernel, attrs)
        if attrs.get("count_include_pad"):
            return total / np.prod(kernel)
        return total / _window_sums(torch.ones_like(x), kernel, attrs)

    options = {"kernel_shape": kernel, **attrs}
    return Case("AveragePool", name, [X((BATCH, *x))], meaning, options, 19)


def _lp(name, x, kernel, opset=18, **attrs) -> Case:
    p = attrs.get("p", 2)

    def meaning(x):
        return _window_sums(x.abs() ** p, kernel, attrs) ** (1 / p)

    options = {"kernel_shape": kernel, **attrs}
    return Case("LpPool", name, [X((BATCH, *x))], meaning, options, opset)


def _norm_pool_cases() -> list[Case]:
    def norm(p, axes=(2, 3)):
        return lambda x: (x.abs() ** p).sum(axes, keepdim=True) ** (1 / p)

    image = X((BATCH, 3, 4, 5))
    # onnx.reference has no GlobalLpPool.
    return [
        _dilated("dilated", (3, 7, 8), [2, 3], dilations=[2, 2], strides=[1, 2]),
        _dilated("dilated, padded", (2, 6, 7), [3, 2], dilations=[2, 3], pads=[1, 2, 2, 1]),
        _dilated("dilated, include pad", (2, 6, 6), [3, 3], dilations=[2, 2], pads=[2, 2, 2, 2],
                 count_include_pad=1),
        _dilated("dilated, 1-D", (3, 9), [3], dilations=[3], pads=[2, 1]),
        _lp("2x2", (3, 6, 6), [2, 2], strides=[2, 2]),
        _lp("padded", (2, 5, 6), [3, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
        _lp("of 1", (2, 5, 5), [2, 2], p=1),
        _lp("of 3", (2, 5, 5), [2, 3], p=3, opset=11),
        _lp("dilated", (2, 7, 7), [2, 2], dilations=[2, 3]),
        _lp("1-D", (3, 8), [3], strides=[2], opset=11),
        Case("GlobalLpPool", "of 2", [image], norm(2), reference=False),
        Case("GlobalLpPool", "of 1", [image], norm(1), {"p": 1}, reference=False),
        Case("GlobalLpPool", "of 3, 1-D", [X((BATCH, 3, 7))], norm(3, (2,)), {"p": 3},
             reference=False),
    ]  # fmt: skip


CASES: list[Case] = [
    *_norm_pool_cases(),
    *_transposed_cases(),
    *_resize_cases(),
    _lrn("five", 5, alpha=0.3),
    _lrn("even", 4, alpha=0.5, beta=0.6, bias=1.5),
    _lrn("wide", 20, alpha=0.5),
    _lrn("default", 3),
    *_block_cases(),
]
