"""What a model takes of a source."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Expected:
    """Inputs by name, the target as "y".

    Attributes:
      shapes: of one sample.
      limits: integers of the field lie in [0, limit); absent where there is no limit.
      ignore_index: a target that no limit touches.
      ignored: a value of an input that its limit does not touch.
    """

    shapes: Mapping[str, tuple[int, ...]]
    limits: Mapping[str, int]
    ignore_index: int | None
    ignored: Mapping[str, int] = field(default_factory=dict)
