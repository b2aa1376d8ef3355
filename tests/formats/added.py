"""A format as someone might add it by following the docs: E5M2, the upper half of fp16."""

from typing import Any

import numpy as np

from edgetrain.formats.coded import Coded


class Quarter(Coded):
    """The 8 bits of E5M2."""

    def widen(self, words: Any, stored: Any) -> Any:
        sign = (stored & 0x80) << 24
        size = stored & 0x7F
        normal = (size << 21) + (112 << 23)
        normal = words.where(size < 0x7C, normal, (size << 21) + (224 << 23))
        tiny = words.where(size < 2, 111 << 23, words.where(size < 3, 112 << 23, 0x38400000))
        tiny = words.where(size < 1, 0, tiny)
        return words.where(size < 4, tiny, normal) | sign

    def narrow(self, words: Any, bits: Any) -> Any:
        return self._put(words, bits, (bits >> 21 & 1) + 0xFFFFF, None)

    def rounded(self, words: Any, bits: Any, random: Any) -> Any:
        return self._put(words, bits, random & 0x1FFFFF, random >> 4)

    def _put(self, words: Any, bits: Any, more: Any, random: Any) -> Any:
        sign = bits >> 24 & 0x80
        size = bits & 0x7FFFFFFF
        normal = size + more
        normal = words.where(normal < 0x47800000, normal, 0x47800000)
        normal = (normal >> 21) - (112 << 2)
        normal = words.where(size <= 0x7F800000, normal, 0x7E)
        tiny = size < 0x38800000
        small = words.real(words.where(tiny, size, 0x38800000))
        steps = words.whole(words.real(0x55800000) * small)  # times 2^44
        subnormal = (steps + ((steps >> 28 & 1) + 0x7FFFFFF if random is None else random)) >> 28
        return words.where(tiny, subnormal, normal) | sign


def added(name: str = "e5m2", number: int = 113) -> Quarter:
    """Register the format, as importing its file would."""
    return Quarter(
        name, number, "V1", 1, floats=True, precision=name, loss_scale=2.0**12,
        tolerances=(2e-1, 5e-1), largest=57344.0, shipped=False,
    )  # fmt: skip


# Ties to even, subnormals, too large values, NaN.
VALUES = np.float32(
    [1.0, -0.1, 1.125, 1.375, 57344.0, 6e4, 1e6, 2**-16, 3 * 2**-17, 2**-17, np.nan, -np.inf]
)
BITS = [0x3C, 0xAE, 0x3C, 0x3E, 0x7B, 0x7B, 0x7C, 1, 2, 0, 0x7E, 0xFC]
