"""Shape and Size, which are constants even if their input is data."""

from collections.abc import Sequence

from .onnx_ops import OnnxNode, declare
from .strides import prod


def _part(node: OnnxNode, shape: Sequence[int]) -> Sequence[int]:
    return shape[node.attrs.get("start", 0) : node.attrs.get("end", len(shape))]


def _count(node: OnnxNode, shape: Sequence[int]) -> int:
    return prod(shape)


declare("Shape", measure=_part)
declare("Size", measure=_count)
