"""Torch operators that the exporter would spell out, written as the ONNX ops they are.

Left alone, nn.RNN is unrolled over time, and sinc has no gradient at 0.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18

# Typed for eager tensors; here every operand is a symbol of the graph being written.
op: Any = opset18


def _rnn(activation: str) -> Callable[..., tuple[Any, Any]]:
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
    ) -> tuple[Any, Any]:
        """Return (output, last states) of the layers, one ONNX RNN each.

        `dropout` between layers has no ONNX form; torch_names.py refuses it.
        """
        directions = 2 if bidirectional else 1
        x = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        tensors = iter(params)
        last = []
        for layer in range(num_layers):
            groups = [
                [next(tensors) for _ in range(4 if has_biases else 2)] for _ in range(directions)
            ]
            weight, recurrent = (_stack([group[k] for group in groups]) for k in (0, 1))
            bias = None
            if has_biases:
                bias = _stack([op.Concat(group[2], group[3], axis=0) for group in groups])
            first, end = layer * directions, (layer + 1) * directions
            state = op.Slice(
                hx, op.Constant(value_ints=[first]), op.Constant(value_ints=[end]), _axis(0)
            )
            y, h = op.RNN(
                x,
                weight,
                recurrent,
                bias,
                None,
                state,
                hidden_size=groups[0][1].shape[1],
                direction="bidirectional" if bidirectional else "forward",
                activations=[activation] * directions,
            )
            # [time, directions, batch, hidden] -> [time, batch, directions * hidden]
            x = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, -1]))
            last.append(h)
        output = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
        return output, op.Concat(*last, axis=0) if len(last) > 1 else last[0]

    return translate


def _axis(axis: int) -> Any:
    return op.Constant(value_ints=[axis])


def _stack(tensors: Sequence[Any]) -> Any:
    parts = [op.Unsqueeze(tensor, _axis(0)) for tensor in tensors]
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _sinc(x: Any) -> Any:
    """1 where x is 0, else sin(pi x) / (pi x), whose gradient is not finite at 0."""
    one, zero = op.Constant(value_float=1.0), op.Equal(x, op.Constant(value_float=0.0))
    angle = op.Mul(op.Where(zero, one, x), op.Constant(value_float=math.pi))
    return op.Where(zero, one, op.Div(op.Sin(angle), angle))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.rnn_tanh.input: _rnn("Tanh"),
    torch.ops.aten.rnn_relu.input: _rnn("Relu"),
    torch.ops.aten.sinc.default: _sinc,
}
