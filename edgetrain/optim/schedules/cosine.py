"""Half a cosine down to 0 at the end of the run. Source: Loshchilov and Hutter 2017."""

from dataclasses import dataclass
from typing import ClassVar

from ...ir import Call
from .base import Schedule


@dataclass(frozen=True)
class Cosine(Schedule):
    """Falls from 1 after warm-up to 0 at `total_steps`, and stays there."""

    name: ClassVar[str] = "cosine"
    needs_total: ClassVar[bool] = True

    def calls(self) -> list[Call]:
        return [Call("rate_cosine", {"ctl": "ctl"})]
