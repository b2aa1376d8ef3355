"""Op cases: a QuantizeLinear and its DequantizeLinear, against torch's fake quantization.

Scales are powers of two, so float32 and float64 round the same quotient.
"""

import numpy as np
import torch

from .op_case import BATCH, C, Case, X, floats

_IMAGE = X((BATCH, 4, 3, 5))
_SCALES = [2**-6, 2**-5, 2**-4, 2**-3]


def _tensor(least: int):
    def fake(x, scale, zero):
        return torch.fake_quantize_per_tensor_affine(
            x, scale.item(), zero.item(), least, least + 255
        )

    return fake


def _channel(least: int, axis: int):
    def fake(x, scale, zero):
        points = torch.tensor(zero.astype(np.int32))
        return torch.fake_quantize_per_channel_affine(
            x, torch.tensor(scale), points, axis, least, least + 255
        )

    return fake


def _case(op: str, name: str, meaning, scale, zero, dtype, **attrs: int) -> Case:
    args = [_IMAGE, floats(scale), C(zero, dtype)]
    return Case(op, name, args, meaning, attrs, opset=19, pair=True)


CASES = [
    _case("QuantizeLinear", "int8", _tensor(-128), 2**-6, 0, np.int8),
    _case("QuantizeLinear", "int8 zero point", _tensor(-128), 2**-6, -70, np.int8),
    _case("QuantizeLinear", "uint8", _tensor(0), 2**-6, 131, np.uint8),
    _case("QuantizeLinear", "one of one", _tensor(0), [2**-5], [7], np.uint8),
    _case("QuantizeLinear", "channel", _channel(-128, 1), _SCALES, [0] * 4, np.int8, axis=1),
    _case("QuantizeLinear", "last axis", _channel(0, 3), [2**-7] * 5, [128] * 5, np.uint8, axis=-1),
    _case(
        "DequantizeLinear", "zero points", _channel(0, 1), _SCALES, [0, 255, 128, 3], np.uint8,
        axis=1,
    ),
    _case("DequantizeLinear", "tensor", _tensor(-128), 2**-4, 5, np.int8),
]  # fmt: skip
