"""Translates torch operators to single ONNX ops, where the exporter would decompose them.

Otherwise nn.RNN is unrolled over time, a symbolic length of GRU and LSTM becomes a constant, sinc
has no gradient at 0, and antialiased interpolation loses its scales.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18

from edgetrain.exporters import torch_detach

# Typed for eager tensors; here every operand is a symbol in the graph being written.
op: Any = opset18


def _recurrence(
    kind: str, gates: Sequence[int] = (0,), **attributes: Any
) -> Callable[..., tuple[Any, ...]]:
    """Translation of torch's recurrence to the ONNX op `kind`.

    Args:
      gates: torch's gate indices in ONNX's order.
      attributes: of the op; `activations` for each direction.
    """
    activations = attributes.pop("activations", None)

    def translate(
        input: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, ...]:
        """Return (output, last states) of the layers, one ONNX node each.

        `dropout` between layers has no ONNX form; torch_names.py refuses it.
        """
        directions = 2 if bidirectional else 1
        x = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        tensors = iter(params)
        states = hx if kind == "LSTM" else [hx]
        last: list[list[Any]] = [[] for _ in states]
        named = dict(attributes)
        if activations:
            named["activations"] = activations * directions
        for layer in range(num_layers):
            groups = [
                [next(tensors) for _ in range(4 if has_biases else 2)] for _ in range(directions)
            ]
            size = groups[0][1].shape[1]
            first, end = layer * directions, (layer + 1) * directions
            y, *ends = getattr(op, kind)(
                x,
                *_weights(groups, gates, size),
                None,
                *(_part(state, first, end) for state in states),
                hidden_size=size,
                direction="bidirectional" if bidirectional else "forward",
                **named,
            )
            # [time, directions, batch, hidden] -> [time, batch, directions * hidden]
            x = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, -1]))
            for found, end_state in zip(last, ends, strict=True):
                found.append(end_state)
        output = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
        whole = (op.Concat(*own, axis=0) if len(own) > 1 else own[0] for own in last)
        return output, *whole

    return translate


def _weights(groups: Sequence[Sequence[Any]], gates: Sequence[int], size: int) -> list[Any]:
    """Input weights, state weights, and biases or None, for all directions."""
    groups = [[_ordered(item, gates, size) for item in group] for group in groups]
    result = [_stack([group[k] for group in groups]) for k in (0, 1)]
    if len(groups[0]) == 2:
        return [*result, None]
    return [*result, _stack([op.Concat(group[2], group[3], axis=0) for group in groups])]


def _part(tensor: Any, first: int, end: int) -> Any:
    return op.Slice(
        tensor, op.Constant(value_ints=[first]), op.Constant(value_ints=[end]), _axis(0)
    )


def _ordered(tensor: Any, gates: Sequence[int], size: int) -> Any:
    """A weight or bias with torch's gates (`size` rows each) in ONNX's order."""
    if len(gates) == 1:
        return tensor
    return op.Concat(*(_part(tensor, k * size, (k + 1) * size) for k in gates), axis=0)


def _axis(axis: int) -> Any:
    return op.Constant(value_ints=[axis])


def _stack(tensors: Sequence[Any]) -> Any:
    parts = [op.Unsqueeze(tensor, _axis(0)) for tensor in tensors]
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _sinc(x: Any) -> Any:
    """1 if x is 0, else sin(pi x) / (pi x), whose gradient is not finite at 0."""
    one, zero = op.Constant(value_float=1.0), op.Equal(x, op.Constant(value_float=0.0))
    angle = op.Mul(op.Where(zero, one, x), op.Constant(value_float=math.pi))
    return op.Where(zero, one, op.Div(op.Sin(angle), angle))


def _antialiased(**attributes: Any) -> Callable[..., Any]:
    """Translation of an interpolation with antialiasing: torch's own loses the scales."""

    def translate(
        x: Any, size: Any, align_corners: bool, rows: float | None = None, columns: Any = None
    ) -> Any:
        corners = "align_corners" if align_corners else "half_pixel"
        settings = {**attributes, "coordinate_transformation_mode": corners}
        if rows is None or columns is None or align_corners:  # which ignores the scales
            first = op.Shape(x, start=0, end=2)
            sizes = op.Concat(first, op.Concat(*_sizes(size), axis=0), axis=0)
            return op.Resize(x, None, None, sizes, **settings)
        scales = op.Constant(value_floats=[1.0, 1.0, float(rows), float(columns)])
        return op.Resize(x, None, scales, None, **settings)

    return translate


def _sizes(size: Any) -> list[Any]:
    return [
        op.Constant(value_ints=[item]) if isinstance(item, int) else op.Reshape(item, _axis(-1))
        for item in size
    ]


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **torch_detach.TRANSLATIONS,
    torch.ops.aten.rnn_tanh.input: _recurrence("RNN", activations=["Tanh"]),
    torch.ops.aten.rnn_relu.input: _recurrence("RNN", activations=["Relu"]),
    torch.ops.aten.sinc.default: _sinc,
    torch.ops.aten._upsample_bilinear2d_aa.default: _antialiased(
        mode="linear", antialias=1, exclude_outside=1
    ),
    torch.ops.aten._upsample_bicubic2d_aa.default: _antialiased(
        mode="cubic", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5
    ),
}
# For a symbolic number of steps, which torch's own translations turn into a constant.
TRANSLATIONS_OF_LENGTHS = TRANSLATIONS | {
    torch.ops.aten.gru.input: _recurrence("GRU", (1, 0, 2), linear_before_reset=1),
    torch.ops.aten.lstm.input: _recurrence("LSTM", (0, 3, 1, 2)),
}
