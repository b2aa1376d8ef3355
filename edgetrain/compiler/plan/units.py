"""The compiled loops that a plan needs, first those that others wait for."""

from collections.abc import Sequence

from ...kernels.loops.functions import Unit
from ..arena.units import EXACT, GREEDY
from ..remat.chain.table import CHAIN
from ..remat.search.units import SEARCH, SHORTEN

ALWAYS, SELDOM = (SEARCH, GREEDY, CHAIN), (EXACT, SHORTEN)
SMALL = 40  # nodes of a model whose plans greedy placement and climbing nearly always place


def units_of(nodes: int) -> Sequence[Unit]:
    """Those worth compiling beside what comes first, for a model of so many nodes."""
    return ALWAYS if nodes <= SMALL else (*ALWAYS, *SELDOM)
