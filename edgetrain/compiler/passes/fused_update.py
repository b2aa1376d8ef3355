"""Updates each weight as soon as nothing reads it any more, without a gradient buffer.

If a minibatch is one microbatch, a weight's gradient is cleared before backward first adds to it,
and freed after the weight's update. The update follows all backward nodes that read the weight, or
need a value computed from it: in some plans such a value is recomputed. So all plans compute with
the weights from the start of the step, and give the same bits as an update at the end. Source: LOMO
(Lv et al. 2023), which supports SGD only.

Layers of the sparse pool are updated separately if there are several and the optimizer treats
elements independently. In blocks of 8 bits, which span layers, and with Adafactor the pool is one
weight.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...formats import BLOCKED
from ...formats.csr import POOL
from ...ir import Call, Graph, Node, Value
from ...ir.keys import key_of
from ...ops.fused import FUSED_UPDATE
from ...ops.registry import op
from ...optim import Optimizer
from ...optim.base import CHUNKS, PARTIALS
from ..model.groups import update_calls
from ..options import Options
from ..remat.problem import Schedule
from .autodiff import accumulator_name
from .precision import storages, stored_as

ROLE = "fused"  # role of a gradient that is live until its update


def trained(graph: Graph) -> list[Value]:
    """Parameters that have a gradient or an update, in the order of the graph's values."""
    moved = {node.inputs[1] for node in graph.nodes if node.op == FUSED_UPDATE.name}
    return [
        value
        for name, value in graph.values.items()
        if value.role == "parameter" and not value.view_of
        if name in moved or accumulator_name(name) in graph.values
    ]


def states_of(graph: Graph, options: Options) -> dict[str, list[Value]]:
    """{parameter: its optimizer state}."""
    kept = storages(options)["state"]
    return {
        p.name: options.optimizer.init(replace(p, dtype=stored_as(p, kept))) for p in trained(graph)
    }


def fuse_updates(
    graph: Graph, options: Options, optimizers: Mapping[str, Optimizer] | None = None
) -> Graph:
    """The training graph with the updates of its weights.

    Args:
      graph: with storage assigned.
      optimizers: by parameter, where it differs from the run's optimizer.
    """
    if not options.fused_update:
        return graph
    states = states_of(graph, options)
    partials = Value(PARTIALS, (CHUNKS * max(1, options.optimizer.sums),), "f64", "statistic")
    values = dict(graph.values) | {PARTIALS: partials}
    for state in states.values():
        values |= {value.name: value for value in state}
    graph, layers = _layered(replace(graph, values=values), options)
    values = dict(graph.values)
    grads = {accumulator_name(p.name): p for p in trained(graph)} | dict.fromkeys(layers)
    for name, value in graph.values.items():
        if graph.root(name) in grads:
            values[name] = replace(value, role=ROLE)
    first, last = _writers(graph), _last_uses(graph)
    # Windows of time may start their backward before the last loss, which counts targets.
    loss = max(index for index, node in enumerate(graph.nodes) if node.phase == "loss")
    before: dict[int, list[Node]] = {}
    behind: dict[int, list[Node]] = {}
    for name, parameter in grads.items():
        if name not in first:
            continue  # the pool's own gradient, if its layers have separate ones
        clear = Node(f"{name}.clear", "grad_clear", (), (name,), phase="backward")
        before.setdefault(first[name], []).append(clear)
        owner = parameter or values[POOL]
        ends = values[layers.get(name, owner.name)]
        key = key_of(f"update {owner.name}")
        state = states[owner.name]
        calls = update_calls(options.optimizer, optimizers or {}, owner, values[name], state, key)
        update = _update(owner, values[name], state, calls, ends)
        behind.setdefault(max(loss, last[name], last.get(ends.name, 0)), []).append(update)
    nodes: list[Node] = []
    behind[loss] = [_begin(options, states.values()), *behind.get(loss, ())]
    for index, node in enumerate(graph.nodes):
        nodes += [*before.get(index, ()), node, *behind.get(index, ())]
    return graph.with_nodes(nodes, values)


def _layered(graph: Graph, options: Options) -> tuple[Graph, dict[str, str]]:
    """The graph with a gradient for each layer of the pool, and {gradient: pointers}."""
    pool = accumulator_name(POOL)
    if pool not in graph.values or options.optimizer.sums:
        return graph, {}
    stored = {graph.values[name].dtype for name in graph.values if name.startswith(POOL)}
    writers = [n for n in graph.nodes if pool in {graph.root(name) for name in n.writes}]
    if stored & set(BLOCKED) or any(node.op != "conv_csr_dw" for node in writers):
        return graph, {}
    values, nodes = dict(graph.values), []
    layers: dict[str, str] = {}
    for node in graph.nodes:
        if node in writers:
            pointers = op(node.op).named(node)["pointers"]
            name = f"{pointers}.grad"
            shape, dtype = (node.attrs["room"],), values[pool].dtype
            values.setdefault(name, Value(name, shape, dtype, "accumulator"))
            layers[name] = pointers
            inputs = tuple("" if n and graph.root(n) == pool else n for n in node.inputs)
            node = replace(node, inputs=inputs, outputs=(name,))
        nodes.append(node)
    if any(values[name].size >= values[POOL].size for name in layers):
        return graph, {}
    return replace(graph, nodes=tuple(nodes), values=values), layers


def _begin(options: Options, states: Iterable[list[Value]]) -> Node:
    b1, b2 = options.optimizer.betas
    calls: tuple[Call, ...] = (Call("fused_begin", {"ctl": "ctl", "c1": 1.0 - b1, "c2": 1.0 - b2}),)
    if any(options.optimizer.is_scaled(value) for state in states for value in state):
        calls = (*calls, Call("state_begin", {"ctl": "ctl"}))
    return Node("fused_begin", "fused_begin", (), ("ctl",), {"calls": calls}, "update")


def _update(
    parameter: Value, grad: Value, state: list[Value], calls: list[Call], ends: Value
) -> Node:
    """The update of a parameter, or of a layer of the pool.

    Args:
      calls: of the whole parameter.
      ends: the parameter, or the layer's pointers; the update follows all its readers.
    """
    sums = {"g": grad.name, "partials": PARTIALS, "n": grad.size, "first": 1}
    alone = ends.name == parameter.name
    if not alone:
        calls = [
            _of_layer(call, parameter, grad, ends) if "g" in call.args else call for call in calls
        ]
    check = Call("fused_check", {"partials": PARTIALS, "ctl": "ctl"})
    outputs = (parameter.name, grad.name, *(value.name for value in state), PARTIALS)
    inputs = (grad.name, parameter.name, *(() if alone else (ends.name,)))
    name = f"{ends.name}.update"
    attrs = {"calls": (Call("grad_sumsq", sums), check, *calls), "ends": ends.name}
    return Node(name, "fused_update", inputs, outputs, attrs, "update")


def _of_layer(call: Call, pool: Value, grad: Value, pointers: Value) -> Call:
    args = {name: arg for name, arg in call.args.items() if name != "n"}
    args |= {"pointers": pointers.name, "slots": pool.size}
    args |= {"room": grad.size, "groups": pointers.size - 1}
    return replace(call, kernel=f"csr_{call.kernel}", args=args)


def _writers(graph: Graph) -> dict[str, int]:
    """{root: position of the first node that writes it}."""
    result: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in node.writes:
            result.setdefault(graph.root(name), index)
    return result


def _last_uses(graph: Graph) -> dict[str, int]:
    """{persistent root or gradient: position of its last use}.

    Uses of values computed from it by nodes that may run again count too.
    """
    makers: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.phase != "backward":
            for name in node.writes:
                makers.setdefault(graph.root(name), []).append(index)
    result: dict[str, int] = {}
    seen: set[int] = set()
    for index in range(len(graph.nodes) - 1, -1, -1):
        pending = [index]
        while pending:
            here = pending.pop()
            if here in seen:
                continue
            seen.add(here)
            node = graph.nodes[here]
            for root in {graph.root(name) for name in (*node.reads, *node.writes)}:
                result.setdefault(root, index)
            for name in node.reads:
                pending += makers.get(graph.root(name), ())
    return result


def keeps_weights(
    nodes: Sequence[Node | None], graph: Graph, schedules: Iterable[Schedule]
) -> list[Schedule]:
    """Only schedules in which no step reads a weight after its update.

    Searches propose others only if they contain a redundant step.

    Args:
      nodes: the nodes of the steps.
    """
    readers: dict[str, set[int]] = {}
    for step, node in enumerate(nodes):
        for name in node.reads if node is not None else ():
            readers.setdefault(graph.root(name), set()).add(step)
    ended = {
        step: readers[node.attrs["ends"]] - {step}
        for step, node in enumerate(nodes)
        if node is not None and node.op == FUSED_UPDATE.name
    }
    return [s for s in schedules if not ended or _keeps(s, ended)]


def _keeps(schedule: Schedule, ended: Mapping[int, set[int]]) -> bool:
    done: set[int] = set()
    for step in schedule:
        if step in done:
            return False
        done |= ended.get(step, set())
    return True
