"""IEEE half precision: 11 bits of mantissa, up to 65504, gradients under a loss scale."""

from ..ir.storage import Format

FP16 = Format(
    "f16",
    4,
    "float16",
    2,
    floats=True,
    precision="fp16",
    loss_scale=2.0**12,
    tolerances=(1e-2, 2e-2),
)
