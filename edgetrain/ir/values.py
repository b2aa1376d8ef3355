"""Values and kernel calls: the part of the representation that a device needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .storage import FORMATS

# Values with these roles stay in the arena from the first step to the last.
PERSISTENT = (
    "parameter",
    "buffer",
    "staged",
    "constant",
    "index",
    "accumulator",
    "state",
    "control",
)


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: shape in elements, dtype as it is stored.

    Attributes:
      role: input, target, activation, statistic (always fp32), gradient, fused (the gradient of a
        parameter, until it is updated), or one of PERSISTENT.
      view_of: name of the value whose bytes these are; "" for a root.
      mapped: a root that is read from the Program's file and never copied; it takes no arena bytes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    role: str = "activation"
    view_of: str = ""
    mapped: bool = False

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes, without alignment."""
        return FORMATS[self.dtype].nbytes(self.size)

    @property
    def persistent(self) -> bool:
        return self.role in PERSISTENT


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel call of a node: operands by name.

    A str is a value (its dtype binds the storage variable), None an absent reference, an int or a
    float a scalar, a sequence a group of integers. Scratch operands are not listed.

    Attributes:
      skip: operand name -> element offset within its value, if the operand is only a part of it.
    """

    kernel: str
    args: Mapping[str, Any]
    skip: Mapping[str, int] = field(default_factory=dict)
