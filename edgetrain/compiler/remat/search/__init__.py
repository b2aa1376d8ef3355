"""Search over which values to drop and when, by annealing on the simulated peak."""

from .anneal_search import Level, anneal_levels, anneal_search
from .shorten_lifetimes import shorten_lifetimes

__all__ = ["Level", "anneal_levels", "anneal_search", "shorten_lifetimes"]
