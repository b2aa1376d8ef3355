"""Numbers that numpy lacks, by formulas of their bits: one text for numpy's codec and for kernels.

A formula takes whole numbers of 32 bits with the operators + - & | << >>, < and <= (unsigned),
all of which numpy's uint32 and kernels' integers and vectors have. What operators cannot say is in
`words`: where(condition, a, b), real(bits) and bits(number), float32 of bits and back, and
whole(number), a float32 truncated. Numbers of `real` have + and *.
"""

from typing import TYPE_CHECKING, Any

from ..ir.storage import Format

if TYPE_CHECKING:
    import numpy as np


class NumpyWords:
    """The words of formulas for arrays."""

    @staticmethod
    def where(condition: Any, yes: Any, no: Any) -> Any:
        """Of uint32, or of numbers of `real`."""
        import numpy as np

        real = any(getattr(one, "dtype", None) == np.float32 for one in (yes, no))
        kind = np.float32 if real else np.uint32
        return np.where(condition, np.asarray(yes, kind), np.asarray(no, kind))

    @staticmethod
    def real(bits: Any) -> Any:
        """float32 of these bits."""
        import numpy as np

        return np.asarray(bits, np.uint32).view(np.float32)

    @staticmethod
    def bits(number: Any) -> Any:
        """Of a float32."""
        import numpy as np

        return np.asarray(number, np.float32).view(np.uint32)

    @staticmethod
    def whole(number: Any) -> Any:
        """A float32 below 2^31, truncated."""
        import numpy as np

        return number.astype(np.int32).view(np.uint32)


class Coded(Format):
    """A format of 8 or 16 bits; a subclass has three formulas, of which kernels are made too."""

    @property
    def dtype(self) -> "np.dtype":
        """Raw bytes by the format's name, so that no other format has the type."""
        import numpy as np

        return np.dtype([(self.name, self.array)])

    def widen(self, words: Any, stored: Any) -> Any:
        """Bits of float32 of what is stored."""
        raise NotImplementedError

    def narrow(self, words: Any, bits: Any) -> Any:
        """What is stored of bits of float32, to nearest even, in the low bits."""
        raise NotImplementedError

    def rounded(self, words: Any, bits: Any, random: Any) -> Any:
        """The same, rounded up with the probability of what is dropped; `random`: 32 bits."""
        raise NotImplementedError

    def encode(self, values: "np.ndarray") -> "np.ndarray":
        import numpy as np

        if values.dtype == self.dtype:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        stored = self.narrow(NumpyWords, bits).astype(f"u{self.block_nbytes}")
        return stored.view(self.dtype).reshape(values.shape)

    def decode(self, stored: "np.ndarray") -> "np.ndarray":
        import numpy as np

        bits = np.ascontiguousarray(stored).view(f"u{self.block_nbytes}").astype(np.uint32)
        return self.widen(NumpyWords, bits).view(np.float32).reshape(stored.shape)
