"""float32, the format of computation."""

from ..ir.storage import Format

FP32 = Format("f32", 2, "float32", 4, floats=True, precision="fp32", tolerances=(1e-5, 1e-4))
