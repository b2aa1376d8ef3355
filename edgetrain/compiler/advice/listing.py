"""Lists what is trained, frozen, also updated and sparse in a plan, for the account."""

from collections.abc import Iterable
from typing import Any

from ...formats.csr import POOL
from ...ir import Value
from ..passes.autodiff import accumulator_name
from ..passes.batch_norm import staged_name
from ..pipeline import Graphs


def training_facts(graphs: Graphs) -> dict[str, Any]:
    """A JSON object: for each kind below, the number of tensors, elements and stored bytes, and the
    names in graph order.

    trained, frozen: parameters (nonzeros of sparse ones). moves, stays: running statistics of
    batch-norms. With a density also `sparse` (names) and `dense` (name -> reason).
    """
    graph = graphs.train
    roots = [v for v in graph.values.values() if not v.view_of and v.name != POOL]
    parameters = [v for v in roots if v.role == "parameter"]
    read = {name for node in graph.nodes for name in node.reads}
    statistics = [v for v in roots if v.role == "buffer" and v.name in read]
    trained = [v for v in parameters if accumulator_name(v.name) in graph.values]
    moving = [v for v in statistics if staged_name(v.name) in graph.values]
    out: dict[str, Any] = {
        "trained": _counted([*trained, *_sparse(graphs)]),
        "frozen": _counted(v for v in parameters if v not in trained),
        "moves": _counted(moving),
        "stays": _counted(v for v in statistics if v not in moving),
    }
    if graphs.layers or graphs.dense:
        out |= {"sparse": [layer.name for layer in graphs.layers], "dense": dict(graphs.dense)}
    return out


def _sparse(graphs: Graphs) -> list[Value]:
    """The nonzeros of each sparse weight, as a value with its name."""
    if not graphs.layers:
        return []
    dtype = graphs.train.values[POOL].dtype
    return [Value(layer.name, (layer.share,), dtype) for layer in graphs.layers]


def _counted(values: Iterable[Value]) -> dict[str, Any]:
    values = list(values)
    return {
        "count": len(values),
        "numbers": sum(v.size for v in values),
        "nbytes": sum(v.nbytes for v in values),
        "names": [v.name for v in values],
    }
