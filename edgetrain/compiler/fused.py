"""Weights are updated as soon as nothing reads them any more: gradients have no buffer.

Where a minibatch is one microbatch, the gradient of a weight is cleared before backward first adds
to it and gone after the weight's update. The update stands behind every node of backward that reads
the weight or needs, in whatever plan, a value that is computed with it: such a node may have it
recomputed. So every plan computes with the weights of the step's beginning, and has the bits of a
run that updates at the end. Source: LOMO (Lv et al. 2023), for which there is SGD alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..ir import Call, Graph, Node, Value
from ..ir.keys import key_of
from ..optim.base import CHUNKS, PARTIALS
from .autodiff import accumulator_name
from .options import Options
from .precision import storages, stored_as
from .remat.problem import Schedule

ROLE = "fused"  # of a gradient that lives until its update


def trained(graph: Graph) -> list[Value]:
    """Parameters that have a gradient, in the order of the graph's values."""
    return [
        value
        for name, value in graph.values.items()
        if value.role == "parameter"
        and not value.view_of
        and accumulator_name(name) in graph.values
    ]


def states_of(graph: Graph, options: Options) -> dict[str, list[Value]]:
    """Parameter -> the optimizer's state of it."""
    kept = storages(options)["state"]
    return {
        p.name: options.optimizer.init(replace(p, dtype=stored_as(p, kept))) for p in trained(graph)
    }


def fuse_updates(graph: Graph, options: Options) -> Graph:
    """The training graph with the updates of its weights.

    Args:
      graph: its storage assigned.
    """
    if not options.fused_update:
        return graph
    parameters, states = trained(graph), states_of(graph, options)
    partials = Value(PARTIALS, (CHUNKS * options.optimizer.sums,), "f64", "statistic")
    values = dict(graph.values) | {PARTIALS: partials}
    for parameter in parameters:
        values |= {value.name: value for value in states[parameter.name]}
        name = accumulator_name(parameter.name)
        values[name] = replace(values[name], role=ROLE)
    for name, value in values.items():
        if value.view_of and values[graph.root(name)].role == ROLE:
            values[name] = replace(value, role=ROLE)
    first, last = _writers(graph), _last_uses(graph)
    before: dict[int, list[Node]] = {}
    behind: dict[int, list[Node]] = {}
    for parameter in parameters:
        grad = values[accumulator_name(parameter.name)]
        clear = Node(f"{grad.name}.clear", "grad_clear", (), (grad.name,), phase="backward")
        before.setdefault(first[grad.name], []).append(clear)
        at = max(last[grad.name], last.get(parameter.name, 0))
        update = _update(parameter, grad, states[parameter.name], options)
        behind.setdefault(at, []).append(update)
    nodes: list[Node] = []
    loss = max(at for at, node in enumerate(graph.nodes) if node.phase == "loss")
    behind[loss] = [_begin(options), *behind.get(loss, ())]
    for at, node in enumerate(graph.nodes):
        nodes += [*before.get(at, ()), node, *behind.get(at, ())]
    return graph.with_nodes(nodes, values)


def _begin(options: Options) -> Node:
    b1, b2 = options.optimizer.betas
    calls = (Call("fused_begin", {"ctl": "ctl", "c1": 1.0 - b1, "c2": 1.0 - b2}),)
    return Node("fused_begin", "fused_begin", (), ("ctl",), {"calls": calls}, "update")


def _update(parameter: Value, grad: Value, state: list[Value], options: Options) -> Node:
    sums = {"g": grad.name, "partials": PARTIALS, "n": grad.size, "first": 1}
    key = key_of(f"update {parameter.name}")
    calls = (
        Call("grad_sumsq", sums),
        Call("fused_check", {"partials": PARTIALS, "ctl": "ctl"}),
        *options.optimizer.update(parameter, grad, state, key),
    )
    outputs = (parameter.name, grad.name, *(value.name for value in state), PARTIALS)
    inputs = (grad.name, parameter.name)
    return Node(
        f"{parameter.name}.update", "fused_update", inputs, outputs, {"calls": calls}, "update"
    )


def _writers(graph: Graph) -> dict[str, int]:
    """Root -> position of the first node that writes it."""
    found: dict[str, int] = {}
    for at, node in enumerate(graph.nodes):
        for name in node.writes:
            found.setdefault(graph.root(name), at)
    return found


def _last_uses(graph: Graph) -> dict[str, int]:
    """Persistent root, or gradient, -> position of the last node that uses it, or needs a value
    that is computed from it by nodes that may run again."""
    makers: dict[str, list[int]] = {}
    for at, node in enumerate(graph.nodes):
        if node.phase != "backward":
            for name in node.writes:
                makers.setdefault(graph.root(name), []).append(at)
    found: dict[str, int] = {}
    seen: set[int] = set()
    for at in range(len(graph.nodes) - 1, -1, -1):
        pending = [at]
        while pending:
            here = pending.pop()
            if here in seen:
                continue
            seen.add(here)
            node = graph.nodes[here]
            for root in {graph.root(name) for name in (*node.reads, *node.writes)}:
                found.setdefault(root, at)
            for name in node.reads:
                pending += makers.get(graph.root(name), ())
    return found


def keeps_weights(
    nodes: Sequence[Node | None], graph: Graph, schedules: Iterable[Schedule]
) -> list[Schedule]:
    """The schedules that run no step on a weight after its update; searches propose no others but
    by a run that nobody needs.

    Args:
      nodes: of the steps.
    """
    readers: dict[str, set[int]] = {}
    for step, node in enumerate(nodes):
        for name in node.reads if node is not None else ():
            readers.setdefault(graph.root(name), set()).add(step)
    ended = {
        step: readers[node.inputs[1]]
        for step, node in enumerate(nodes)
        if node is not None and node.op == "fused_update"
    }
    return [s for s in schedules if not ended or _keeps(s, ended)]


def _keeps(schedule: Schedule, ended: Mapping[int, set[int]]) -> bool:
    done: set[int] = set()
    for step in schedule:
        if step in done:
            return False
        done |= ended.get(step, set())
    return True
