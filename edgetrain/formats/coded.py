"""Number formats that numpy lacks, as bit formulas shared by numpy's codec and the kernels.

A formula takes 32-bit integers with the operators + - & | << >>, < and <= (unsigned), which numpy's
uint32 and the integers and vectors of kernels all have. Everything else is in `words`:
where(condition, a, b); real(bits) and bits(number), to float32 and back; whole(number), which
truncates a float32. Numbers from `real` support + - and *.
"""

from typing import TYPE_CHECKING, Any

from ..ir.storage import Format

if TYPE_CHECKING:
    import numpy as np


class NumpyWords:
    """The intrinsics of formulas, for arrays."""

    @staticmethod
    def where(condition: Any, yes: Any, no: Any) -> Any:
        """Select from uint32, or from float32 numbers of `real`."""
        import numpy as np

        real = any(getattr(item, "dtype", None) == np.float32 for item in (yes, no))
        kind = np.float32 if real else np.uint32
        return np.where(condition, np.asarray(yes, kind), np.asarray(no, kind))

    @staticmethod
    def real(bits: Any) -> Any:
        """Reinterpret bits as float32."""
        import numpy as np

        return np.asarray(bits, np.uint32).view(np.float32)

    @staticmethod
    def bits(number: Any) -> Any:
        """The bits of a float32."""
        import numpy as np

        return np.asarray(number, np.float32).view(np.uint32)

    @staticmethod
    def whole(number: Any) -> Any:
        """Truncate a float32 below 2^31."""
        import numpy as np

        return number.astype(np.int32).view(np.uint32)


class Coded(Format):
    """A format of 8 or 16 bits, defined by three formulas that kernels are generated from too."""

    @property
    def dtype(self) -> "np.dtype":
        """Raw bytes under the format's name, so no other format has this type."""
        import numpy as np

        return np.dtype([(self.name, self.array)])

    def widen(self, words: Any, stored: Any) -> Any:
        """Stored bits -> float32 bits."""
        raise NotImplementedError

    def narrow(self, words: Any, bits: Any) -> Any:
        """float32 bits -> stored bits (in the low bits), rounded to nearest even."""
        raise NotImplementedError

    def rounded(self, words: Any, bits: Any, random: Any) -> Any:
        """Like `narrow`, but rounds up with a probability equal to the dropped part.

        `random`: 32 random bits.
        """
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
