"""What a model expects from a source."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Expected:
    """Expected shapes and limits, by input name; the target is "y".

    Attributes:
      shapes: shape of one sample.
      limits: integers must be in [0, limit); missing if there is no limit.
      ignore_index: a target exempt from the limit.
      ignored: an input value exempt from the limit.
      weighed: whether the loss takes sample weights, field "w".
      minibatch: samples per update; 0: any.
    """

    shapes: Mapping[str, tuple[int, ...]]
    limits: Mapping[str, int]
    ignore_index: int | None
    ignored: Mapping[str, int] = field(default_factory=dict)
    weighed: bool = False
    minibatch: int = 0
