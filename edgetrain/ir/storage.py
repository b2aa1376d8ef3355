"""The base class of storage formats; the formats themselves are objects in formats/."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np

# By the name that values, Programs and kernels use.
FORMATS: dict[str, "Format"] = {}


@dataclass(frozen=True)
class Format:
    """How the elements of a value are stored; kernels compute in float32 or int64.

    Kernels load and store numpy's types like numpy; a format that numpy lacks has its own formulas
    for both (formats/coded.py). Only model memory is stored in blocks of several elements
    (formats/blocks.py).

    Attributes:
      name: such as "f16".
      number: its number in files; unique.
      array: numpy type of a stored element; raw bytes ("V2") for a format that numpy lacks.
      block_nbytes: bytes of `block` elements, and the alignment of single ones.
      block: elements stored together; a thread takes whole blocks.
      floats: whether it holds floats; otherwise positions, counts and booleans.
      code: its name in safetensors; "": files store its elements as rows of bytes.
      precision: the users' name, if the values of a model may be stored in it.
      memory: the users' name, if only weights and their state may be stored in it.
      loss_scale: initial factor of the loss gradient, to stay in the format's range; 1: no scaling.
      tolerances: of parity: for a loss, for gradients.
      largest: its largest number.
      shipped: whether libraries contain its kernels; otherwise they are compiled on first use.
      rounded: the formula of stochastic rounding; None: such stores round to nearest.
      cut: the formula of the same number as bits of float32, if it and the processor's conversion
        store vectors in fewer instructions; None: use `rounded`.
      random_bits: how many of a random number's lowest bits it uses. Two formats with at most 16
        share a random number in an update (kernels/optimizers/frame.py).
      rounding: revision of the rounding, raised if its bits change; a Program whose update was
        compiled for another revision is not run (kernels/registry.py).
    """

    name: str
    number: int
    array: str
    block_nbytes: int
    block: int = 1
    floats: bool = False
    code: str = ""
    precision: str = ""
    memory: str = ""
    loss_scale: float = 1.0
    tolerances: tuple[float, float] = (0.0, 0.0)
    largest: float = 3.4028234663852886e38
    shipped: bool = True
    rounded: ClassVar[Any] = None
    cut: ClassVar[Any] = None
    random_bits: ClassVar[int] = 32
    rounding: ClassVar[int] = 1

    def __post_init__(self) -> None:
        own = self._unique()
        for other in FORMATS.values():
            same = own & other._unique()
            if same:
                fact, value = min(same)
                raise ValueError(
                    f"format {self.name}: {other.name} has the same {fact}, {value}; expected "
                    "another one."
                )
        FORMATS[self.name] = self

    def _unique(self) -> set[tuple[str, str]]:
        """Facts that no other format may share: (what, value)."""
        facts = {
            ("name", self.name),
            ("number", str(self.number)),
            ("code", self.code),
            ("users' name", self.precision),
            ("users' name", self.memory),
        }
        return {(fact, value) for fact, value in facts if value}

    def nbytes(self, count: int) -> int:
        """Bytes of `count` elements, without alignment."""
        return -(-count // self.block) * self.block_nbytes

    def count(self, nbytes: int) -> int:
        """Elements in `nbytes` bytes."""
        return nbytes // self.block_nbytes * self.block

    @property
    def alignment(self) -> int:
        """Alignment of elements in bytes."""
        return self.block_nbytes if self.block == 1 else 1

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the array in memory for elements of `shape`."""
        return shape

    @property
    def short_range(self) -> bool:
        """Whether squares of common numbers exceed its range. If so, kernels store roots of second
        moments, and moments times a scale (kernels/optimizers/state.py).
        """
        return self.floats and self.largest < 2.0**32

    @property
    def spacing(self) -> tuple[float, float]:
        """(relative distance of neighbouring numbers, distance of the smallest ones)."""
        import numpy as np

        def number(bits: int) -> float:
            stored = np.array([bits], f"u{self.block_nbytes}").view(self.dtype)
            return float(self.decode(stored)[0])

        one = int(self.encode(np.array([1.0], np.float32)).view(f"u{self.block_nbytes}")[0])
        return number(one + 1) - 1.0, number(1)

    @property
    def least(self) -> float:
        """Its smallest number above 0."""
        return self.spacing[1]

    @property
    def binades(self) -> float:
        """Its range: the base-2 logarithm of the largest number over the smallest."""
        return math.log2(self.largest / self.least)

    @property
    def raw(self) -> "Format":
        """The format in which callers pass its values."""
        return FORMATS["f32"] if self.floats else self

    @property
    def dtype(self) -> "np.dtype":
        """Numpy type of stored arrays."""
        import numpy as np

        return np.dtype(self.array)

    def encode(self, values: "np.ndarray") -> "np.ndarray":
        """Numbers in stored form, rounded to nearest; numbers out of range become infinite."""
        import numpy as np

        with np.errstate(over="ignore"):
            return values.astype(self.dtype, copy=False)

    def decode(self, stored: "np.ndarray") -> "np.ndarray":
        """The inverse of `encode`: numbers in a numpy type."""
        return stored
