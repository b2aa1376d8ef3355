"""Learning-rate schedules. A new one is a file with a frozen dataclass, imported here."""

from .base import Schedule
from .constant import Constant
from .cosine import Cosine
from .exponential import Exponential
from .inverse_sqrt import InverseSqrt
from .multistep import MultiStep
from .one_cycle import OneCycle
from .plateau import Plateau
from .step import Step

SCHEDULES: dict[str, type[Schedule]] = Schedule.kinds

__all__ = [
    "SCHEDULES",
    "Constant",
    "Cosine",
    "Exponential",
    "InverseSqrt",
    "MultiStep",
    "OneCycle",
    "Plateau",
    "Schedule",
    "Step",
]
