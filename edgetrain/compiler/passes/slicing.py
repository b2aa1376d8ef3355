"""Computes wide maps of a frozen forward a few channels at a time.

Before the first trained layer nothing is saved for backward, so fine-tuning needs the working set
of that part of the forward. In inverted residuals (Sandler et al. 2018) this is the expanded map
between a convolution and a depthwise one: see ops/conv_sliced.py. Only maps that determine the peak
are cut, and only as finely as it helps. This is decided before remat, so it is the same in all
plans.

Known limit: a map that a dense convolution reads stays whole; its batch norm needs all samples of
the microbatch, and the next convolution all channels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...ir import Graph, Node, Value

LEAST = 8  # channels of a slice: with fewer, the convolution's tiles are partly empty


@dataclass(frozen=True)
class Expansion:
    """Nodes to be merged into one; `running` is None if running statistics are used."""

    first: Node
    stats: Node
    running: Node | None
    second: Node

    @property
    def wide(self) -> str:
        """The map between the convolutions."""
        return self.first.outputs[0]


def expansions(graph: Graph) -> list[Expansion]:
    """Convolution, batch norm and depthwise convolution without other readers in between."""
    readers = graph.readers()
    viewed = {v.view_of for v in graph.values.values()}
    makers: dict[str, list[Node]] = {}
    for stats in graph.nodes:
        if stats.op == "bn_eval_stats":
            for wide in dict.fromkeys(node.inputs[0] for node in readers[stats.outputs[0]]):
                makers.setdefault(wide, []).append(stats)
    result = []
    for first in graph.nodes:
        wide = first.outputs[0] if first.op == "conv" else ""
        if not wide or wide in viewed or wide in graph.outputs or first.attrs["g"] != 1:
            continue
        result += [e for e in (_expansion(first, readers, makers.get(wide, []), graph),) if e]
    return result


def _expansion(first: Node, readers, makers: list[Node], graph: Graph) -> Expansion | None:
    """The expansion that starts with `first`; `makers` make its evaluation statistics."""
    users = readers[first.outputs[0]]
    stats = [n for n in users if n.op == "bn_stats"] or makers
    convs = [n for n in users if n.op == "conv"]
    if (
        len(stats) != 1
        or len(convs) != 1
        or not {n.name for n in users} <= {stats[0].name, convs[0].name}
    ):
        return None
    ((stat,), second) = stats[0].outputs, convs[0]
    others = [n for n in readers[stat] if n is not second]
    running = others[0] if others and others[0].op == "bn_running" else None
    if len(others) != (running is not None) or stats[0].op == "bn_stats" and running is None:
        return None
    inside = second.inputs[0] == first.outputs[0] and second.inputs[3] == stat
    weight = graph.values[second.inputs[1]].shape
    depthwise = weight[0] == second.attrs["g"] == graph.values[first.outputs[0]].shape[1]
    return Expansion(first, stats[0], running, second) if inside and depthwise else None


def choose(graph: Graph) -> dict[str, int]:
    """{wide map to cut: channels per slice}; empty if no map determines the peak.

    Args:
      graph: training graph; values that backward reads are excluded.
    """
    candidates = expansions(graph)
    if not candidates:
        return {}
    finest = slice_expansions(graph, {e.wide: LEAST for e in candidates})
    live = _live(finest)
    last = max((k for k, node in enumerate(finest.nodes) if node.op == "conv_sliced"), default=-1)
    if last < 0:  # no map has more channels than a slice
        return {}
    peak = max(live[: last + 1])
    chosen = {}
    for index, node in enumerate(finest.nodes):
        if node.op == "conv_sliced":
            part = finest.values[node.outputs[1]]
            channel = part.nbytes // part.shape[1]
            spare = (peak - live[index] + part.nbytes) // channel
            wide = node.attrs["wide"]
            if spare < graph.values[wide].shape[1]:
                chosen[wide] = max(LEAST, spare - spare % LEAST)
    return chosen


def _live(graph: Graph) -> list[int]:
    """Bytes live at each node."""
    spans: dict[str, list[int]] = {graph.root(n): [0, 0] for n in graph.inputs}
    for index, node in enumerate(graph.nodes):
        for name in (*node.reads, *node.writes):
            spans.setdefault(graph.root(name), [index, index])[1] = index
    change = [0] * (len(graph.nodes) + 1)
    for name, (start, stop) in spans.items():
        if not graph.values[name].persistent:
            change[start] += graph.values[name].nbytes
            change[stop + 1] -= graph.values[name].nbytes
    live, total = [], 0
    for step in change[:-1]:
        total += step
        live.append(total)
    return live


def slice_expansions(graph: Graph, chosen: Mapping[str, int]) -> Graph:
    """Replace each expansion of a chosen map by a node in place of its depthwise convolution."""
    values = dict(graph.values)
    made: dict[str, Node] = {}
    gone: set[str] = set()
    for expansion in expansions(graph):
        channels = chosen.get(expansion.wide, 0)
        if 0 < channels < graph.values[expansion.wide].shape[1]:
            node = _sliced(expansion, graph.values[expansion.wide], channels, values)
            made[expansion.second.name] = node
            inner = (expansion.first, expansion.stats, expansion.running)
            gone.update(n.name for n in inner if n is not None)
    nodes = [made.get(n.name, n) for n in graph.nodes if n.name not in gone]
    return graph.with_nodes(nodes, values)


def _sliced(found: Expansion, wide: Value, channels: int, values: dict[str, Value]) -> Node:
    part = replace(wide, name=f"{wide.name}~part", shape=(wide.shape[0], channels, *wide.shape[2:]))
    stat = Value(f"{wide.name}~stat", (3, channels), "f32", "statistic")
    values |= {part.name: part, stat.name: stat}
    running = found.running.inputs[1:3] if found.running else found.stats.inputs
    moving = dict(found.running.attrs) if found.running else {}
    attrs = {
        "first": dict(found.first.attrs),
        "second": dict(found.second.attrs),
        "wide": wide.name,
        "eps": found.stats.attrs["eps"],
        "moving": bool(found.running),
        **moving,
    }
    x, w2, bias2, _, gamma, beta = found.second.inputs
    inputs = (*found.first.inputs, gamma, beta, *running, w2, bias2)
    staged = found.running.outputs if found.running else ()
    outputs = (found.second.outputs[0], part.name, stat.name, *staged)
    return replace(found.second, op="conv_sliced", inputs=inputs, outputs=outputs, attrs=attrs)
