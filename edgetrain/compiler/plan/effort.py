"""How much work each effort spends: every effort continues from the end of the one before.

Work is counted in simulated steps and compared buffers, never in seconds. The rule that ends a
search is the same for all networks: it continues while the last doubling of the work gained enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...units.efforts import EFFORTS, NORMAL, QUICK, THOROUGH
from ..remat.search import Level

# Millions of simulated steps that a search of the least effort spends at most: each step's, and
# all; more steps take longer for each turn of the search, and it is the turns that find.
EACH, MOST = 0.06, 8.0


@dataclass(frozen=True)
class Effort:
    """One of `units.efforts.EFFORTS`.

    Attributes:
      times: the work of a search at most, in that of the least effort.
      gain: part of the step's time, or of the least peak, that a doubling of the work must gain.
      places: work of a placement, in that of the least effort.
    """

    times: int
    gain: float
    places: int

    def level(self, steps: int) -> Level:
        """The level of a search of so many steps."""
        return Level(self.times * min(MOST, EACH * steps), self.gain)


LEVELS = {
    QUICK: Effort(1, 0.01, 1),
    NORMAL: Effort(8, 0.01, 1),
    THOROUGH: Effort(256, 0.001, 16),
}
assert LEVELS.keys() == EFFORTS.keys()


def levels_to(effort: str) -> Sequence[Effort]:
    """Every effort up to this one, the least first."""
    names = list(LEVELS)
    return [LEVELS[name] for name in names[: names.index(effort) + 1]]
