"""IEEE half precision: 11 bits of mantissa, up to 65504, gradients under a loss scale."""

from typing import Any

from ..ir.storage import Format

_LEAST = 0x38800000  # bits of float32 2^-14, the smallest normal number of float16


class Half(Format):
    """float16 as in numpy and processors, with stochastic rounding."""

    random_bits = 13
    # Revision 1 used 20 bits below 2^-14, and one random number per element of an update.
    rounding = 2

    def rounded(self, words: Any, bits: Any, random: Any) -> Any:
        """Bits of float16 (formats/coded.py); 2^16 and more becomes infinity, NaN stays NaN.

        Below 2^-14, numbers are spaced as at 2^-14. Adding 2^-14 first therefore leaves 13 bits to
        drop there too. The addition drops bits below 2^-38.
        """
        sign = bits >> 16 & 0x8000
        size = bits & 0x7FFFFFFF
        least = words.where(size < _LEAST, _LEAST, 0)
        total = words.bits(words.real(size) + words.real(least)) + (random & 0x1FFF)
        total = total - words.where(size < _LEAST, _LEAST, 112 << 23)
        total = words.where(total < 0x0F800000, total, 0x0F800000) >> 13
        return words.where(size <= 0x7F800000, total, 0x7E00) | sign

    def cut(self, words: Any, bits: Any, random: Any) -> Any:
        """The same number as bits of float32, which processors convert in one step. The input must
        be the result of arithmetic, so that it is no signalling NaN.
        """
        size = bits & 0x7FFFFFFF
        size = words.where(size < 0x7FC00000, size, 0x7FC00000)  # so no sum reaches the sign
        least = words.real(words.where(size < _LEAST, _LEAST, 0))
        total = words.bits(words.real(size) + least) + (random & 0x1FFF) & 0xFFFFE000
        return words.bits(words.real(total) - least) | bits & 0x80000000


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
