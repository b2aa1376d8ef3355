"""Graph -> remat Problem: a tape as the planner sees it, and from a schedule back to buffers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...ir import Call, Graph, Node
from ...kernels.cache import jit
from ...ops.registry import op
from ..arena.problem import aligned
from ..cost import COUNTED
from ..passes.packed import bare, lowered
from ..remat.problem import Problem, Simulation, Step
from ..segments import MARK
from .lowering import Instruction, bind_call

ALIGN = 64


@dataclass(frozen=True)
class TapeProblem:
    """A tape's nodes as a Problem.

    Attributes:
      roots: value index -> name of the root value.
      calls, instructions: per step; step 0 fills the inputs and has none.
    """

    graph: Graph
    problem: Problem
    roots: tuple[str, ...]
    nodes: tuple[Node | None, ...]
    calls: tuple[tuple[Call, ...], ...]
    instructions: tuple[tuple[Instruction, ...], ...]


def tape_problem(
    graph: Graph, threads: int, target: jit.Target, kept: Sequence[str] = ()
) -> TapeProblem:
    """Steps, values and costs of a graph with assigned storage.

    Args:
      kept: values that must survive the tape, such as predictions.
    """
    index: dict[str, int] = {}
    for name, value in graph.values.items():
        if not value.view_of and not value.persistent:
            index[name] = len(index)
    nbytes = [aligned(graph.values[name].nbytes, ALIGN) for name in index]
    steps = [Step(0, "inputs", (), tuple(index[graph.root(n)] for n in graph.inputs))]
    order = _Order()
    for name in graph.inputs:
        order.write(graph.root(name), 0)
    calls: list[tuple[Call, ...]] = [()]
    instructions: list[tuple[Instruction, ...]] = [()]
    update = 0
    for node in graph.nodes:
        calls.append(tuple(lowered(node, graph)))
        bound = tuple(bind_call(call, graph, threads, target) for call in calls[-1])
        instructions.append(bound)
        step = _step(len(steps), node, graph, index, order, bound, threads)
        if node.phase == "update":  # it writes weights, so it follows all earlier steps
            step = replace(step, after=tuple(range(update, step.id)))
            update = step.id
        steps.append(step)
    surviving = frozenset(index[graph.root(n)] for n in kept)
    problem = Problem(tuple(nbytes), tuple(steps), kept=surviving, cuts=_cuts(graph))
    nodes = (None, *graph.nodes)
    return TapeProblem(graph, problem, tuple(index), nodes, tuple(calls), tuple(instructions))


def _cuts(graph: Graph) -> tuple[int, ...]:
    """Steps that begin a segment of the forward; empty unless segments run one after the other."""
    marks = [
        (index, node.attrs[MARK])
        for index, node in enumerate(graph.nodes, 1)
        if MARK in node.attrs and node.phase == "forward"
    ]
    begun = [index for k, (index, mark) in enumerate(marks) if not k or marks[k - 1][1] != mark]
    backward = next((k for k, n in enumerate(graph.nodes, 1) if n.phase == "backward"), 0)
    in_order = len(begun) == len({mark for _, mark in marks})
    return tuple(begun[1:]) if in_order and begun and begun[-1] < backward else ()


class _Order:
    """The readers and writers of each value, so that updates in place keep the graph's order."""

    def __init__(self) -> None:
        self.writers: dict[str, list[int]] = {}
        self.readers: dict[str, list[int]] = {}

    def read(self, root: str, step: int) -> None:
        self.readers.setdefault(root, []).append(step)

    def write(self, root: str, step: int) -> bool:
        """Note a write; True if the value was written before (an update)."""
        before = root in self.writers
        self.writers.setdefault(root, []).append(step)
        return before

    def predecessors(self, root: str) -> list[int]:
        """Steps that an update of `root` must follow."""
        return self.writers.get(root, []) + self.readers.get(root, [])


def _step(
    number: int,
    node: Node,
    graph: Graph,
    index: Mapping[str, int],
    order: _Order,
    instructions: tuple[Instruction, ...],
    threads: int,
) -> Step:
    reads = [graph.root(n) for n in node.reads]
    written = list(dict.fromkeys(graph.root(n) for n in node.writes))
    # Inputs are filled before the first step, even if it reads only weights.
    after: set[int] = set() if any(r in index for r in reads) else {0}
    writes, updates = [], []
    for root in written:
        predecessors = order.predecessors(root)
        if order.write(root, number):
            after.update(predecessors)
            updates.append(root)
        else:
            writes.append(root)
    for root in reads:
        if len(order.writers.get(root, ())) > 1 and root not in written:
            after.add(order.writers[root][-1])  # reads the sum so far, not an earlier one
        order.read(root, number)
    inplace = []
    if not updates:
        for out, source in op(node.op).in_place:
            pair = node.outputs[out], node.inputs[source] if source < len(node.inputs) else ""
            roots = [graph.root(n) for n in pair if n]
            if len(roots) == 2 and all(r in index for r in roots) and _same_bytes(graph, *roots):
                inplace.append((index[roots[0]], index[roots[1]]))
    scratch = max((i.scratch for i in instructions), default=0) * threads
    moved = moved_nbytes(node, graph)
    flops = op(node.op).flops(bare(node), graph)
    return Step(
        number,
        node.name,
        tuple(dict.fromkeys(index[r] for r in reads if r in index and r not in updates)),
        tuple(index[r] for r in writes if r in index),
        tuple(index[r] for r in updates if r in index),
        tuple(sorted(after - {number})),
        scratch,
        COUNTED.seconds(flops, moved, threads),
        flops,
        node.phase in ("forward", "eval") and op(node.op).recompute,
        tuple(inplace),
    )


def moved_nbytes(node: Node, graph: Graph) -> int:
    """Bytes of all values that a node reads or writes."""
    return sum(graph.values[n].nbytes for n in {*node.reads, *node.writes})


def _same_bytes(graph: Graph, a: str, b: str) -> bool:
    x, y = graph.values[a], graph.values[b]
    return x.dtype == y.dtype and x.size == y.size and a != b


@dataclass(frozen=True, eq=False)
class Placed:
    """Buffers of a schedule; instances that share bytes in place share a buffer.

    Attributes:
      buffers: every instance of a value and every step's scratch: start, stop, nbytes; int64
        (buffers, 3).
      of_instance: instance index -> index of its buffer.
      scratch_of: schedule position -> index of its scratch buffer.
    """

    buffers: np.ndarray
    of_instance: tuple[int, ...]
    scratch_of: Mapping[int, int]


def buffers_of(problem: Problem, schedule: Sequence[int], simulation: Simulation) -> Placed:
    """The buffers to place for a schedule."""
    value, start, stop, source = simulation.lives.T
    owner = np.arange(len(value))
    taken = np.flatnonzero(source >= 0)
    while len(taken):  # back to the first instance of those that pass on the same bytes
        owner[taken] = source[owner[taken]]
        taken = taken[source[owner[taken]] >= 0]
    first = source < 0
    of_instance = (np.cumsum(first) - 1)[owner]
    last = stop[first]
    np.maximum.at(last, of_instance, stop)
    nbytes = np.array(problem.nbytes, np.int64)[value[first]]
    scratch = np.array([step.workspace for step in problem.steps], np.int64)[np.array(schedule)]
    steps = np.flatnonzero(scratch)
    spans = np.stack([start[first], last, nbytes], 1)
    buffers = np.concatenate([spans, np.stack([steps, steps + 1, scratch[steps]], 1)])
    scratch_of = dict(zip(steps.tolist(), range(len(spans), len(buffers)), strict=True))
    return Placed(buffers, tuple(of_instance.tolist()), scratch_of)
