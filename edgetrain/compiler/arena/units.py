"""The compiled loops of placement: greedy ones, which every plan uses, and the exact search."""

from edgetrain.kernels.loops.functions import Unit

_PACKAGE = "edgetrain.compiler.arena"
GREEDY = Unit("greedy placement", _PACKAGE, ("lives", "greedy", "hill_climb", "skyline"))
EXACT = Unit("exact placement", _PACKAGE, ("exact",))
