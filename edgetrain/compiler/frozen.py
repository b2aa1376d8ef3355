"""Weights that are not trained, and constants, stay in the Program's file: none lies in the arena.

On request (`Options.maps`). They are read where the file is mapped, in the storage that was asked
for, in training and evaluation alike. Decided before remat, so it is the same in every plan.
"""

from collections.abc import Set
from dataclasses import replace

from ..ir import Graph
from .autodiff import accumulator_name
from .options import Options


def frozen_names(train: Graph, options: Options) -> frozenset[str]:
    """Roots that no tape writes: parameters without a gradient, constants."""
    if not options.maps:
        return frozenset()
    return frozenset(
        name
        for name, value in train.values.items()
        if not value.view_of
        and (
            value.role == "constant"
            or (value.role == "parameter" and accumulator_name(name) not in train.values)
        )
    )


def map_frozen(graph: Graph, names: Set[str]) -> Graph:
    """The graph with these roots outside the arena."""
    if not names:
        return graph
    values = {n: replace(v, mapped=True) if n in names else v for n, v in graph.values.items()}
    return replace(graph, values=values)
