"""The work of each effort level; every level continues from the end of the one before.

Work is counted in simulated steps and compared buffers, never in seconds. The rule that ends a
search is the same for all networks: it continues while the last doubling of the work gained enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...units.efforts import EFFORTS, NORMAL, QUICK, THOROUGH
from ..remat.search import Level

# Most work of a search with the least effort, in millions of simulated steps: per step, and in
# total. With more steps each move takes longer, and progress depends on the number of moves.
EACH, MOST = 0.06, 8.0


@dataclass(frozen=True)
class Effort:
    """One of `units.efforts.EFFORTS`.

    Attributes:
      times: most work of a search, relative to the least effort.
      gain: part of the step's time, or of the least peak, that a doubling of the work must gain.
      places: work of a placement, relative to the least effort.
    """

    times: int
    gain: float
    places: int

    def level(self, steps: int) -> Level:
        """The level for a search over a problem of `steps` steps."""
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
