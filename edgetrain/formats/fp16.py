"""IEEE half precision: 11 bits of mantissa, up to 65504, gradients under a loss scale."""

from typing import Any

from ..ir.storage import Format


class Half(Format):
    """float16 of numpy's and of processors, and how it is rounded stochastically."""

    def rounded(self, words: Any, bits: Any, random: Any) -> Any:
        """Bits of float16 (formats/coded.py); 2^16 and more becomes infinity, NaN stays NaN."""
        sign = bits >> 16 & 0x8000
        size = bits & 0x7FFFFFFF
        normal = size + (random & 0x1FFF)
        normal = words.where(normal < 0x47800000, normal, 0x47800000)
        normal = (normal >> 13) - (112 << 10)
        normal = words.where(size <= 0x7F800000, normal, 0x7E00)
        tiny = size < 0x38800000
        small = words.real(words.where(tiny, size, 0x38800000))
        subnormal = (words.whole(small * 2.0**44) + (random >> 12)) >> 20
        return words.where(tiny, subnormal, normal) | sign


FP16 = Half(
    "f16",
    4,
    "float16",
    2,
    floats=True,
    precision="fp16",
    loss_scale=2.0**12,
    tolerances=(1e-2, 2e-2),
    largest=65504.0,
)
