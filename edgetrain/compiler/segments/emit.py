"""Turns a region into one chain of nodes for each segment of time.

A recurrence passes its last states to the next segment. A whole value is split if a segment reads
it; a value in parts is joined if a node that stays whole reads it. Segments run one after the
other, each with all layers, so few bytes cross from one to the next.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir import Builder, Graph, Node, Value
from ...ops.registry import op, structure
from ...ops.strides import contiguous
from ...ops.structure import Structure
from .layout import Move, Span, part_shape, part_side, source_inner, unfold
from .picks import picked
from .region import MARK, Region
from .rules import is_recurrent, moves_of


@dataclass(frozen=True)
class Cut:
    """A graph whose recurrences are in segments.

    Attributes:
      graph: contains the whole output only if another node reads it.
      parts: of the output, in order of execution: (name, steps); empty if the output is whole.
      inner: layout of the output.
    """

    graph: Graph
    parts: tuple[tuple[str, Span], ...] = ()
    inner: int = 0


class Cutter:
    """Builds the nodes of a region one by one; `ordered` then sorts them by segment."""

    def __init__(self, graph: Graph, region: Region, first: int = 0) -> None:
        """first: number of the first segment."""
        self.graph, self.region, self.first = graph, region, first
        self.builder = Builder(graph.values)
        self.segments: dict[str, int] = {}  # name of a built node -> its segment
        self.made = {
            name: region.cut[node.name][name]
            for node in graph.nodes
            if node.name in region.cut
            for name in node.writes
            if name in region.cut[node.name]
        }
        self._parts: dict[tuple[str, int, int], str] = {}
        self._whole: set[str] = set()
        self._rank = {
            span.start: number
            for number, span in enumerate(region.spans[::-1] if region.backwards else region.spans)
        }

    def run(self, splits: Callable[[tuple[int, ...], tuple[int, ...]], bool]) -> Cut:
        """Build all nodes.

        Args:
          splits: whether the loss of an output of one shape is the sum of the losses of its parts.
        """
        for node in self.graph.nodes:
            layouts = self.region.cut.get(node.name)
            if layouts is None:
                self._keep(node)
            elif is_recurrent(node):
                self._recurrence(node, layouts)
            else:
                for span in self.region.spans:
                    self._segment(node, layouts, span)
        outputs, parts = list(self.graph.outputs), []  # type: list[str], list[tuple[str, Span]]
        inner = self.made.get(outputs[0], 0) if len(outputs) == 1 else 0
        shape = self.graph.values[outputs[0]].shape
        if inner and splits(shape, part_shape(shape, inner, self.region.spans[0]) or ()):
            spans = sorted(self.region.spans, key=lambda span: self._rank[span.start])
            parts = [(self.part(outputs[0], span, inner), span) for span in spans]
            outputs = [name for name, _ in parts]
        else:
            outputs = [self.whole(name) for name in outputs]
        built = self.builder.graph(self.graph.inputs, outputs)
        nodes = ordered(built, lambda index: (self.segments[built.nodes[index].name], index))
        return Cut(built.with_nodes(nodes), tuple(parts), inner)

    def node(self, op: str, inputs, outputs, attrs, like: Node, segment: int) -> None:
        """Append a node of a segment; -1: before all segments; their number: after them."""
        name = like.name if segment < 0 else f"{like.name}~{segment}"
        inside = 0 <= segment < len(self.region.spans)
        marked = {**attrs, MARK: self.first + segment} if inside else attrs
        made = self.builder.node(
            op, inputs, outputs, marked, name=name, phase=like.phase, origin=like.origin
        )
        self.segments[made.name] = segment

    def value(self, like: Value, name: str, shape: Sequence[int], view_of: str = "") -> str:
        """Add a value with the same storage as another one."""
        role = "activation" if like.persistent or like.role in ("input", "target") else like.role
        return self.builder.value(name, shape, like.dtype, role, view_of)

    def part(self, name: str, span: Span, inner: int) -> str:
        """The part of a value; copied if the value is whole."""
        key = (name, span.start, inner)
        if key in self._parts:
            return self._parts[key]
        value, segment = self.graph.values[name], self._rank[span.start]
        if name in self.made:
            assert self.made[name] == inner, name
        shape = part_shape(value.shape, inner, span)
        assert shape is not None, name
        result = self._parts[key] = self.value(value, f"{name}~{segment}", shape)
        if name not in self.made:
            dims = (value.size // (span.steps * inner), span.length, inner)
            strides, own = (span.steps * inner, inner, 1), contiguous(dims)
            move = (0, span.start * inner, 0, dims, strides, tuple(own))
            attrs = {"moves": (move,), "fill": None}
            like = Node(result, "copy", (), ())
            self.node("copy", [name], [result], attrs, replace(like, name=f"{name}.part"), segment)
        return result

    def whole(self, name: str) -> str:
        """A value as one array; joined if it was made in parts."""
        if name not in self.made or name in self._whole:
            return name
        self._whole.add(name)
        value, inner = self.graph.values[name], self.made[name]
        root = self.graph.root(name)
        if root != name:
            self.whole(root)
            self.node("view", [root], [name], {}, Node(name, "view", (), ()), -1)
            return name
        steps = self.region.steps
        dims = (value.size // (steps * inner), steps, inner)
        walk = tuple(contiguous(dims))
        moves, names = self._picked([Move(0, 0, 0, dims, walk, walk)], [name])
        attrs = {"moves": moves, "fill": None}
        behind = len(self.region.spans)
        self.node("copy", names, [name], attrs, Node(f"{name}.whole", "copy", (), ()), behind)
        return name

    def _picked(self, moves: Iterable[Move], inputs: Sequence[str]) -> tuple[tuple, list[str]]:
        """Replace loops over whole values by loops over their parts."""
        names: dict[str, int] = {}
        out = []
        for move in moves:
            name = inputs[move.source]
            inner = self.made.get(name, 0)
            result = picked(move, inner, self.region.spans) if inner else [(None, move)]
            for span, part_of_move in result or ():
                part = self.part(name, span, inner) if span else name
                out.append(tuple(part_of_move._replace(source=names.setdefault(part, len(names)))))
        return tuple(out), list(names)

    def _keep(self, node: Node) -> None:
        """Keep a node whole; a copy of some steps reads the parts that contain them."""
        attrs, inputs, fits = node.attrs, list(node.inputs), False
        if structure(node) is Structure.WALK and any(name in self.made for name in inputs):
            moves = moves_of(node)
            fits = all(
                picked(move, self.made[inputs[move.source]], self.region.spans) is not None
                for move in moves
                if inputs[move.source] in self.made
            )
            if fits:
                result, inputs = self._picked(moves, inputs)
                attrs = {**attrs, "moves": result}
        inputs = inputs if fits else [self.whole(name) for name in inputs]
        self.node(node.op, inputs, node.outputs, attrs, node, -1)

    def _read(self, node: Node, layouts: Mapping[str, int], span: Span) -> list[str]:
        return [
            self.part(name, span, layouts[name]) if name in layouts else self.whole(name)
            for name in node.inputs
        ]

    def _segment(self, node: Node, layouts: Mapping[str, int], span: Span) -> None:
        """Append one segment of a node without a state."""
        segment, attrs, name_of_op = self._rank[span.start], node.attrs, node.op
        if structure(node) is Structure.WALK:
            inputs, attrs = self._copied(node, layouts, span)
        else:
            inputs = self._read(node, layouts, span)
        outputs = []
        for name in node.outputs:
            if structure(node) is Structure.VIEW:
                value = self.graph.values[name]
                shape = part_shape(value.shape, layouts[name], span)
                assert shape is not None
                label = f"{name}~{segment}"
                out = self.value(value, label, shape, inputs[0])
                self._parts[name, span.start, layouts[name]] = out
            else:
                out = self.part(name, span, layouts[name]) if name in layouts else name
            outputs.append(out)
        if op(node.op).part:
            inner = layouts[node.outputs[0]]
            run = {"span": span.length * inner, "stride": span.steps * inner}
            name_of_op, attrs = op(node.op).part, {**attrs, **run, "skip": span.start * inner}
        self.node(name_of_op, inputs, outputs, attrs, node, segment)

    def _copied(self, node: Node, layouts: Mapping[str, int], span: Span) -> tuple[list[str], dict]:
        """Inputs and attributes of a copy; from a whole value it takes only the segment's steps."""
        inner, moves = layouts[node.outputs[0]], []
        for move in moves_of(node):
            unfolded = unfold(move, inner, span.steps)
            assert unfolded is not None
            walk, axis = unfolded
            own = source_inner(walk, axis, span.steps)
            assert own is not None
            yo, ys = part_side(walk.yo, walk.ys, axis, inner, span)
            xo, xs = walk.xo + span.start * own, walk.xs
            if node.inputs[move.source] in self.made:
                xo, xs = part_side(walk.xo, walk.xs, axis, own, span)
            dims = (*walk.dims[:axis], span.length, *walk.dims[axis + 1 :])
            moves.append((move.source, xo, yo, dims, xs, ys))
        inputs = [
            self.part(name, span, layouts[name]) if name in self.made else name
            for name in node.inputs
        ]
        return inputs, {**node.attrs, "moves": tuple(moves)}

    def _recurrence(self, node: Node, layouts: Mapping[str, int]) -> None:
        """Append the segments of a recurrence, in its own direction."""
        back = node.attrs["back"] == 1
        spans = self.region.spans[::-1] if back else self.region.spans
        whole = dict(zip(node.attrs["made"], node.outputs, strict=True))
        x, w, r, bias, lens, h, c, peep = node.inputs
        states = op(node.op).states
        handed = dict(zip(states, (h, c), strict=False))
        like = self.graph.values[whole["y"]]
        shape = like.shape[1:]
        for number, span in enumerate(spans):
            segment, last = self._rank[span.start], number == len(spans) - 1
            own = replace(node, inputs=(x, w, r, bias, "", "", "", peep))
            inputs = self._read(own, layouts, span)
            inputs[4] = self._lengths(node, lens, span, segment)
            inputs[5] = handed["yh"]
            inputs[6] = handed.get("yc", c)
            made = {
                key: self.part(name, span, layouts[name])
                for key, name in whole.items()
                if key not in ("yh", "yc")
            }
            for key in states:
                if last and key in whole:
                    made[key] = whole[key]
                elif not last:
                    made[key] = self.value(like, f"{whole['y']}.{key}~{segment}", shape)
            attrs = {**node.attrs, "t": span.length, "made": tuple(made)}
            self.node(node.op, inputs, list(made.values()), attrs, node, segment)
            edge = span.start if back else span.start + span.length
            for key in () if last else states:
                handed[key] = made[key]
                if edge in self.region.stops:
                    handed[key] = self.value(like, f"{made[key]}.stopped", shape)
                    stop = replace(node, name=f"{made[key]}.stop")
                    self.node("detach", [made[key]], [handed[key]], {}, stop, segment)

    def _lengths(self, node: Node, lens: str, span: Span, segment: int) -> str:
        """For each row, how many of a segment's steps are valid."""
        if not lens:
            return ""
        key = (lens, span.start, -1)
        if key not in self._parts:
            value = self.graph.values[self.whole(lens)]
            self._parts[key] = self.value(value, f"{lens}~{segment}", value.shape)
            attrs = {"start": span.start, "count": span.length}
            like = replace(node, name=f"{lens}.part")
            self.node("segment_lengths", [lens], [self._parts[key]], attrs, like, segment)
        return self._parts[key]


def ordered(graph: Graph, rank: Callable[[int], tuple[int, int]]) -> list[Node]:
    """The nodes sorted by the rank of their positions, each after the nodes it depends on.

    A node that overwrites a value stays after all earlier readers and writers of it. Additions to
    accumulators may be reordered.
    """
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    waits = [0] * len(graph.nodes)
    followers: list[list[int]] = [[] for _ in graph.nodes]
    for index, node in enumerate(graph.nodes):
        before: set[int] = set()
        for name in node.reads:
            root = graph.root(name)
            before.update(writers.get(root, ()))
            readers.setdefault(root, []).append(index)
        for name in node.writes:
            root = graph.root(name)
            if graph.values[root].role == "accumulator":
                continue
            before.update(writers.get(root, ()), readers.get(root, ()))
            writers.setdefault(root, []).append(index)
        for other in before - {index}:
            followers[other].append(index)
            waits[index] += 1
    ready = [(rank(index), index) for index, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    nodes = []
    while ready:
        _, index = heapq.heappop(ready)
        nodes.append(graph.nodes[index])
        for other in followers[index]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (rank(other), other))
    return nodes
