"""Recurrences in segments of time, before autodiff.

LSTM, GRU and RNN nodes over many steps, and nodes along time between and after them, including head
and loss, become a chain of nodes for each segment, which passes its last states to the next one. So
the planner may keep only the states and recompute a segment for its backward. A segment's length
depends only on the number of steps, not on the plan; gradients of weights are summed over segments
in one fixed order.
"""

from dataclasses import dataclass, replace

from ...errors import UsageError
from ...ir import Graph, Value
from ...losses import Loss
from ...ops.strides import prod
from ..options import Options
from ..passes.head import SLICES
from .emit import Cut, Cutter, ordered
from .losses import target_layout, with_losses, with_output
from .region import LEAST, MARK, head_of, lengths_of, region_of, segment_steps
from .rules import is_recurrent

MOST_ASKED = 4096  # most segments if their length is requested


@dataclass(frozen=True)
class Choice:
    """The requested options.

    Attributes:
      length: steps of a segment; None: chosen for long sequences; 0: no segments.
      window: steps after which gradients stop; 0: never.
      head: whether the last product and the loss are cut too.
    """

    length: int | None = None
    window: int = 0
    head: bool = True

    def of(self, steps: int) -> int:
        """Steps of a segment, for a recurrence over `steps` steps."""
        window = self.window if 0 < self.window < steps else 0
        if self.length is not None:
            return min(self.length or steps, window or steps)
        if window:
            return window if window < LEAST else segment_steps(window)
        return segment_steps(steps) if steps >= LEAST else steps


def _choice(options: Options) -> Choice:
    """The options' choice. The head stays one product over all steps if its classes are sliced."""
    named: dict[str | int, int | None] = {"auto": None, "off": 0}
    asked = options.segments
    head = SLICES not in options.allow and not options.joined
    return Choice(named[asked] if asked in named else int(asked), options.bptt, head)


def segmented(forward: Graph, options: Options) -> Cut:
    """The graph with its recurrences in segments; unchanged if they are too short."""
    choice, loss = _choice(options), options.loss
    _check_asked(forward, options)
    cut, tried, first = Cut(forward), set(), 0  # type: Cut, set[int], int
    while True:
        left = [steps for steps in lengths_of(cut.graph) if steps not in tried]
        if not left:
            return cut
        steps = left[0]
        tried.add(steps)
        length = choice.of(steps)
        if length >= steps:
            continue
        if steps > length * MOST_ASKED:
            raise UsageError(
                f"segments {length:,}: a recurrence over {steps:,} steps would have "
                f"{-(-steps // length):,} of them; expected at most {MOST_ASKED:,}."
            )
        head_nodes = set() if choice.head else head_of(cut.graph)
        region = region_of(cut.graph, steps, length, choice.window, head_nodes)
        span = region.spans[0]

        def splits(shape, part, span=span) -> bool:
            return not options.joined and target_layout(loss, shape, part, span) is not None

        next_cut = Cutter(cut.graph, region, first).run(splits)
        first += len(region.spans)
        cut = next_cut if next_cut.parts or not cut.parts else replace(cut, graph=next_cut.graph)


def _check_asked(forward: Graph, options: Options) -> None:
    """Reject segments or truncation if no recurrence runs in one direction.

    Raises:
      UsageError: names the option and the recurrences of the model.
    """
    asked = f"segments {options.segments}" if str(options.segments).isdecimal() else ""
    asked = f"bptt {options.bptt}" if options.bptt else asked
    recurrent = [node for node in forward.nodes if is_recurrent(node)]
    if not asked or any(node.attrs["back"] != 2 for node in recurrent):
        return
    name = asked.partition(" ")[0]
    if recurrent:
        there = f"{recurrent[0].origin} (over {recurrent[0].attrs['t']} steps) is bidirectional"
    else:
        there = "the model has none"
    raise UsageError(
        f"{asked}: expected an LSTM, GRU or RNN in one direction; {there}. Leave {name} out."
    )


def described(graph: Graph) -> str:
    """A sentence about the recurrences of a training graph; "" if none has many steps."""
    nodes = [n for n in graph.nodes if is_recurrent(n) and n.phase == "forward"]
    cut = [node for node in nodes if MARK in node.attrs]
    uncut = {n.origin: n for n in nodes if MARK not in n.attrs and n.attrs["t"] >= LEAST}
    parts = []
    if cut:
        count = len({node.attrs[MARK] for node in cut})
        most = max(node.attrs["t"] for node in cut)
        parts.append(f"in {count} segments of at most {most} time steps")
    for name, node in uncut.items():
        why = " (bidirectional)" if node.attrs["back"] == 2 else ""
        parts.append(f"{name}{why} over all {node.attrs['t']} steps at once")
    return f"Recurrences run {', '.join(parts)}." if parts else ""


def graphs_with_losses(forward: Graph, cut: Cut, output: Value, loss: Loss) -> tuple[Graph, Graph]:
    """The forward graphs of training and of evaluation; if the output is in parts, with a loss for
    each part.

    Args:
      forward: `cut.graph`, possibly after further passes.
      output: the whole output before it was cut.
    """
    if not cut.parts:
        return forward, forward
    joined = with_output(forward, cut, output) if _keeps(forward, output.shape) else forward
    train, evaluate = (with_losses(graph, cut, loss, output.shape) for graph in (forward, joined))
    return train, evaluate


def _keeps(graph: Graph, shape: tuple[int, ...]) -> bool:
    """Whether evaluation joins an output in parts: only if it takes no more memory than the states
    passed on by segments, which training may keep anyway.
    """
    handed = sum(
        graph.values[name].size
        for node in graph.nodes
        if MARK in node.attrs and "made" in node.attrs
        for key, name in zip(node.attrs["made"], node.outputs, strict=True)
        if key in ("yh", "yc")
    )
    return prod(shape) <= handed


def interleaved(graph: Graph) -> Graph:
    """Move each window's backward right after its forward, in a training graph whose segments pass
    on no gradients.

    A node belongs to the last segment among its inputs; gradients that are summed over segments
    keep the order of their sums.
    """
    window: dict[str, int] = {}
    ranks = []
    for index, node in enumerate(graph.nodes):
        last_segment = node.attrs.get(MARK, -1) if node.phase == "forward" else -1
        for name in node.reads:
            last_segment = max(last_segment, window.get(graph.root(name), -1))
        for name in node.writes:
            root = graph.root(name)
            if not graph.values[root].persistent:
                window[root] = last_segment
        ranks.append((last_segment, index))
    return graph.with_nodes(ordered(graph, ranks.__getitem__))


__all__ = ["MARK", "Choice", "described", "graphs_with_losses", "interleaved", "segmented"]
