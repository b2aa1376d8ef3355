"""bfloat16, the upper half of float32: its range with 8 bits of mantissa, so no loss scale."""

from typing import Any

from .coded import Coded


class BFloat16(Coded):
    """Rounding adds to the dropped half; a NaN gets its quiet bit set instead."""

    random_bits = 16
    rounding = 2  # revision 1 used one random number per element of an update

    def widen(self, words: Any, stored: Any) -> Any:
        return stored << 16

    def narrow(self, words: Any, bits: Any) -> Any:
        return self._upper(words, bits, (bits >> 16 & 1) + 0x7FFF)

    def rounded(self, words: Any, bits: Any, random: Any) -> Any:
        return self._upper(words, bits, random & 0xFFFF)

    def _upper(self, words: Any, bits: Any, more: Any) -> Any:
        number = (bits & 0x7FFFFFFF) <= 0x7F800000
        return words.where(number, bits + more, bits | 0x400000) >> 16


BF16 = BFloat16(
    "bf16",
    12,
    "V2",
    2,
    floats=True,
    code="BF16",
    precision="bf16",
    tolerances=(5e-2, 1e-1),
    largest=3.3895313892515355e38,
    shipped=False,
)
