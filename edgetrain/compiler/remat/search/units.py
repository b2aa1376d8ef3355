"""The compiled loops of the search: one object, of the files named here."""

from edgetrain.kernels.loops import Unit

SEARCH = Unit(
    "search for schedules",
    "edgetrain.compiler.remat.search",
    ("evaluate", "archive", "moves", "anneal", "prune_drops", "shorten_lifetimes"),
)
