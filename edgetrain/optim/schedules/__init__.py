"""Learning-rate schedules. A new one is a file with a frozen dataclass, listed here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .base import Schedule

if TYPE_CHECKING:
    from .constant import Constant
    from .cosine import Cosine
    from .exponential import Exponential
    from .inverse_sqrt import InverseSqrt
    from .multistep import MultiStep
    from .one_cycle import OneCycle
    from .plateau import Plateau
    from .polynomial import Polynomial
    from .step import Step

SCHEDULES: Mapping[str, type[Schedule]] = Schedule.kinds
# A schedule's position is its number in bundles and their stored states: add new ones at the end.
_FILES = {
    "constant": "constant.Constant",
    "step": "step.Step",
    "cosine": "cosine.Cosine",
    "exponential": "exponential.Exponential",
    "inverse_sqrt": "inverse_sqrt.InverseSqrt",
    "multistep": "multistep.MultiStep",
    "one_cycle": "one_cycle.OneCycle",
    "plateau": "plateau.Plateau",
    "polynomial": "polynomial.Polynomial",
}
__getattr__ = Schedule.kinds.listed(__name__, _FILES)

__all__ = [
    "SCHEDULES",
    "Constant",
    "Cosine",
    "Exponential",
    "InverseSqrt",
    "MultiStep",
    "OneCycle",
    "Plateau",
    "Polynomial",
    "Schedule",
    "Step",
]
