"""Op cases: reading at computed positions, and adding overlapping blocks."""

from itertools import product

import torch
from torch.nn import functional as F  # noqa: N812 - its own name

from .op_case import BATCH, Case, X, ints

_TORCH = {"linear": "bilinear", "cubic": "bicubic"}  # mode in ONNX -> in torch


def _sampled(mode: str, padding: str, corners: bool):
    """The meaning of GridSample."""
    return lambda x, grid: F.grid_sample(x, grid, _TORCH.get(mode, mode), padding, corners)


def _along_a_line(x, grid):
    """The meaning of GridSample with one axis: a picture with one row."""
    places = torch.cat([grid, torch.zeros_like(grid)], -1)[:, None]
    return F.grid_sample(x[:, :, None], places, padding_mode="border", align_corners=False)[:, :, 0]


def _grid_cases() -> list[Case]:
    picture, grid = X((BATCH, 3, 5, 4)), X((BATCH, 2, 6, 2))
    volume, places = X((BATCH, 2, 3, 4, 2)), X((BATCH, 2, 1, 3, 3))
    out = []
    for mode, padding, corners in product(
        ("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (False, True)
    ):
        name = f"{mode}, {padding}{', corners' if corners else ''}"
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
        meaning = _sampled(mode, padding, corners)
        # onnx.reference departs from onnxruntime and torch here.
        known = (mode, padding) != ("cubic", "border")
        out.append(Case("GridSample", name, [picture, grid], meaning, attrs, 20, reference=known))
        if mode == "linear":
            old = attrs | {"mode": "bilinear"}
            older = f"{name}, opset 16"  # onnx.reference has no modes of this opset
            out.append(
                Case("GridSample", older, [picture, grid], meaning, old, 16, reference=False)
            )
        if mode != "cubic":
            volumes = f"{name}, volumes"
            out.append(Case("GridSample", volumes, [volume, places], meaning, attrs, 20))
    line = [X((BATCH, 2, 5)), X((BATCH, 4, 1))]
    border = {"padding_mode": "border"}
    out.append(Case("GridSample", "a line", line, _along_a_line, border, 20))
    one = [X((BATCH, 2, 1, 3)), X((BATCH, 2, 2, 2))]
    for padding in ("border", "reflection"):
        attrs = {"padding_mode": padding, "align_corners": 1}
        meaning = _sampled("linear", padding, True)
        known = padding != "reflection"  # onnx.reference divides by zero
        rows = f"one row, {padding}"
        out.append(Case("GridSample", rows, one, meaning, attrs, 20, reference=known))
    return out


def _col2im_cases() -> list[Case]:
    def added(size, block, **options):
        return lambda x, *_: F.fold(x, size, block, **options)

    return [
        Case("Col2Im", "overlapping", [X((BATCH, 18, 20)), ints(4, 5), ints(3, 3)],
             added((4, 5), 3, padding=1), {"pads": [1, 1, 1, 1]}, 18),
        Case("Col2Im", "strides with a rest", [X((BATCH, 8, 6)), ints(5, 7), ints(2, 2)],
             added((5, 7), 2, stride=2), {"strides": [2, 2]}, 18),
        Case("Col2Im", "dilations", [X((BATCH, 6, 12)), ints(5, 4), ints(2, 1)],
             added((5, 4), (2, 1), dilation=(2, 3)), {"dilations": [2, 3]}, 18),
    ]  # fmt: skip


CASES = [*_grid_cases(), *_col2im_cases()]
