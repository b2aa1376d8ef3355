"""A plan's meaning for the checker: the graphs of its tapes as calls, before scheduling and
placement."""

from collections.abc import Iterator, Mapping, Sequence

from ...checker import Meaning, MeantCall
from ...ir import Call, Graph, Node, Value
from ...ops.registry import op
from ..passes.packed import bare
from ..plan.candidates import Candidate
from .steps import TapeProblem


def meanings_of(candidate: Candidate) -> dict[str, Meaning]:
    """The meaning of each tape."""
    update = candidate.update
    return {
        "micro": _of_graph(candidate.train),
        "eval": _of_graph(candidate.evaluate),
        "update": _of_calls("update", update.calls, update.values),
        "rewire": _of_calls("rewire", update.rewire_calls, update.values),
    }


def _of_graph(tape: TapeProblem) -> Meaning:
    graph = tape.graph
    calls = [
        MeantCall(node.name, node.phase, call, frozenset(_in_place(node, graph)))
        for node, calls in zip(tape.nodes, tape.calls, strict=True)
        if node is not None
        for call in calls
    ]
    return Meaning(graph.values, calls, graph.inputs, graph.outputs)


def _of_calls(tape: str, calls: Sequence[Call], values: Mapping[str, Value]) -> Meaning:
    return Meaning(values, [MeantCall(f"{tape} {call.kernel}", "update", call) for call in calls])


def _in_place(node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """Roots (written, read) that the op may keep in the same bytes."""
    node = bare(node)
    for out, source in op(node.op).in_place:
        if source < len(node.inputs) and node.outputs[out] and node.inputs[source]:
            yield graph.root(node.outputs[out]), graph.root(node.inputs[source])
