"""The part of a graph that is cut along time: from the recurrences outwards, as far as rules allow.

Layouts spread from the sequences of recurrent nodes to the nodes that make and read them. A node
that mixes time steps, or needs a value in another layout than its known one, stays whole: its
inputs are joined, and its outputs split.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...ir import Graph, Node
from ...ops.registry import structure
from ...ops.structure import Structure
from .layout import Span
from .rules import Look, is_recurrent, layouts_of

LEAST = 64  # steps from which a recurrence is cut by default
MOST_SEGMENTS = 256
MARK = "segment"  # attribute of the nodes of a segment: its number in order of execution


@dataclass(frozen=True)
class Region:
    """Nodes to be cut.

    Attributes:
      steps: number of time steps.
      cut: name of a node -> layouts of its operands that run along time.
      spans: the segments, in order of time.
      backwards: whether time runs against the order of execution.
      stops: starts of segments whose initial states pass no gradient back.
    """

    steps: int
    cut: Mapping[str, Mapping[str, int]]
    spans: tuple[Span, ...]
    backwards: bool
    stops: frozenset[int]


def lengths_of(graph: Graph) -> list[int]:
    """Numbers of steps of the recurrences not cut yet, the most frequent first."""
    counts = Counter(node.attrs["t"] for node in graph.nodes if _is_seed(node))
    return [steps for steps, _ in counts.most_common()]


def _is_seed(node: Node) -> bool:
    """Whether it is an uncut recurrence in one direction."""
    return is_recurrent(node) and node.attrs["back"] != 2 and MARK not in node.attrs


def segment_steps(steps: int) -> int:
    """Steps of a segment: kept states and a segment's saved values both grow with sqrt(steps).

    There are at most MOST_SEGMENTS, so that the graph can still be planned.
    """
    return max(1, round(math.sqrt(steps) / 2), -(-steps // MOST_SEGMENTS))


def spans_of(steps: int, length: int, window: int) -> tuple[Span, ...]:
    """Segments of `length` steps that cross no border of a truncation window (0: no windows)."""
    spans, start = [], 0
    while start < steps:
        stop = min(start + length, steps)
        if window:
            stop = min(stop, (start // window + 1) * window)
        spans.append(Span(start, stop - start, steps))
        start = stop
    return tuple(spans)


def head_of(graph: Graph) -> set[str]:
    """Names of the nodes from the last product to the output."""
    makers = {name: node for node in graph.nodes for name in node.writes}
    result: set[str] = set()
    node = makers.get(graph.outputs[0])
    while node is not None:
        result.add(node.name)
        if structure(node) is Structure.PRODUCT:
            return result
        node = next((makers[name] for name in node.reads if name in makers), None)
    return set()


def region_of(
    graph: Graph, steps: int, length: int, window: int, whole: Collection[str] = ()
) -> Region:
    """Everything that can be cut around recurrences over `steps` steps, except nodes in `whole`."""
    known: dict[str, int] = {}
    cut: dict[str, Mapping[str, int]] = {}
    around: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys((*node.reads, *node.writes)):
            around.setdefault(name, []).append(node)
    seeds = [n for n in graph.nodes if _is_seed(n) and n.attrs["t"] == steps]
    pending = deque(seeds)
    while pending:
        node = pending.popleft()
        if node.name in cut or node.name in whole or MARK in node.attrs:
            continue
        if is_recurrent(node) and not (_is_seed(node) and node.attrs["t"] == steps):
            continue
        layouts = layouts_of(Look(node, graph.values, steps, known))
        if layouts is None or any(known.get(n, layout) != layout for n, layout in layouts.items()):
            continue
        cut[node.name] = layouts
        for name in layouts.keys() - known.keys():
            known[name] = layouts[name]
            pending.extend(around[name])
    backwards = sum(1 if node.attrs["back"] else -1 for node in seeds) > 0
    spans = spans_of(steps, length, window)
    stops = {span.start for span in spans if window and span.start % window == 0}
    return Region(steps, cut, spans, backwards, frozenset(stops))
