"""The compiled loops of the search: one object of what every search takes, one of what few do."""

from edgetrain.kernels.loops.functions import Unit

_PACKAGE = "edgetrain.compiler.remat.search"
SEARCH = Unit(
    "search for schedules", _PACKAGE, ("evaluate", "archive", "moves", "anneal", "prune_drops")
)
SHORTEN = Unit(
    "shortening of lifetimes", _PACKAGE, ("evaluate", "moves", "anneal", "shorten_lifetimes")
)
