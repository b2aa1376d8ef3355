"""The same rate at every step."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir import Call
from .base import Schedule


@dataclass(frozen=True)
class Constant(Schedule):
    """Factor 1."""

    name: ClassVar[str] = "constant"

    def calls(self) -> list[Call]:
        return [Call("rate_constant", {"ctl": "ctl"})]
