"""Learning-rate schedules. A new one is a file with a frozen dataclass, imported here."""

from .base import Schedule
from .constant import Constant
from .cosine import Cosine
from .step import Step

SCHEDULES: dict[str, type[Schedule]] = Schedule.kinds

__all__ = ["SCHEDULES", "Constant", "Cosine", "Schedule", "Step"]
