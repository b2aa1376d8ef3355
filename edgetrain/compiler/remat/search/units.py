"""The compiled loops of the search: one unit for every search, one for rarely needed loops."""

from edgetrain.kernels.loops.functions import Unit

_PACKAGE = "edgetrain.compiler.remat.search"
SEARCH = Unit(
    "search for schedules", _PACKAGE, ("evaluate", "archive", "moves", "anneal", "prune_drops")
)
SHORTEN = Unit(
    "shortening of lifetimes", _PACKAGE, ("evaluate", "moves", "anneal", "shorten_lifetimes")
)
