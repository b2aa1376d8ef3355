"""The compiled loops that a plan needs; the ones that others wait for come first."""

from collections.abc import Sequence

from ...kernels.loops.functions import Unit
from ..arena.units import EXACT, GREEDY
from ..remat.chain.table import CHAIN
from ..remat.search.units import SEARCH, SHORTEN

ALWAYS, SELDOM = (SEARCH, GREEDY, CHAIN), (EXACT, SHORTEN)
SMALL = 40  # nodes: for smaller models, greedy placement and climbing are nearly always enough


def units_of(nodes: int) -> Sequence[Unit]:
    """The loops worth compiling in background processes, for a model with this many nodes."""
    return ALWAYS if nodes <= SMALL else (*ALWAYS, *SELDOM)
