"""Weights and accumulators in blocks of 8 bits, with floats only around the node that uses them.

Kernels that read blocks directly declare it (`blocks`). Before any other kernel, the weight is
unpacked into a temporary value in the storage of activations. If such a kernel adds to an
accumulator, it writes to a temporary float32 value instead, and `pack_add` adds that. So ops and
their kernels need not know about blocks, and the planner counts the bytes. For the sparse pool, the
temporary value has the slots of one layer. This is decided before remat, so it is the same in all
plans.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...formats import BLOCKED, GROUPED
from ...formats.csr import POOL
from ...ir import Call, Graph, Node, Value
from ...ir.keys import key_of
from ...kernels.registry import variants
from ...ops.registry import op

_WHOLE = (*BLOCKED, *GROUPED)
# Kernel -> the operand that may be in a format of groups, if the kernel has a variant for it.
_IN_GROUPS = {"gemm": "b", "gather": "x", "unpack": "w"}
ATTRIBUTE = "floats"  # node attribute: root of a value in blocks -> its temporary value of floats


def spread(graph: Graph, precision: str) -> Graph:
    """The graph with temporary unpacked values as outputs of its nodes.

    Args:
      precision: dtype of activations.
    """
    if not any(value.dtype in _WHOLE for value in graph.values.values()):
        return graph
    values, nodes = dict(graph.values), []
    for node in graph.nodes:
        floats = {}
        for root, writes in _uses(_calls(node, graph), graph).items():
            dtype = "f32" if writes else precision
            shape = (node.attrs["room"],) if _is_pool(root) else graph.values[root].shape
            value = Value(f"{node.name}.{root}~{dtype}", shape, dtype, "gradient")
            values[value.name] = value
            floats[root] = value.name
        if floats:
            attrs = {**node.attrs, ATTRIBUTE: floats}
            node = replace(node, outputs=(*node.outputs, *floats.values()), attrs=attrs)
        nodes.append(node)
    return graph.with_nodes(nodes, values)


def bare(node: Node) -> Node:
    """The node without temporary values, as its op expects it."""
    floats = node.attrs.get(ATTRIBUTE)
    if not floats:
        return node
    attrs = {name: value for name, value in node.attrs.items() if name != ATTRIBUTE}
    return replace(node, outputs=node.outputs[: -len(floats)], attrs=attrs)


def lowered(node: Node, graph: Graph) -> list[Call]:
    """A node's calls in order, including those that unpack and pack."""
    floats: Mapping[str, str] = node.attrs.get(ATTRIBUTE, {})
    calls = _calls(bare(node), graph)
    if not floats and not any(_has_whole(call, graph) for call in calls):
        return calls
    room = node.attrs.get("room", 0)
    before: list[Call] = []
    after: list[Call] = []
    for number, (root, writes) in enumerate(_uses(calls, graph).items() if floats else ()):
        name, kind = floats[root], "csr_" if _is_pool(root) else ""
        sizes: dict = {"n": graph.values[name].size}
        if kind:
            pointers = next(call.args["pointers"] for call in calls if "pointers" in call.args)
            groups = graph.values[pointers].size - 1
            slots = graph.values[root].size
            sizes = {"pointers": pointers, "groups": groups, "slots": slots, "room": sizes["n"]}
        if not writes:
            dtype = graph.values[root].dtype
            kernel = f"unpack_{dtype}" if dtype in GROUPED else f"{kind}unpack"
            before.append(Call(kernel, {"w": root, "y": name} | sizes))
            continue
        numbers = {"ctl": "ctl", "key": key_of(f"{node.name} {number}")}
        after.append(Call(f"{kind}pack_add", {"x": name, "g": root} | numbers | sizes))
        if not _overwritten(root, calls, graph):
            before.append(Call("fill", {"y": name, "value": 0.0, "n": graph.values[name].size}))
    return [*before, *(_on_floats(call, floats, calls, graph, room) for call in calls), *after]


def _calls(node: Node, graph: Graph) -> list[Call]:
    """A node's calls, with kernels that read groups directly where they exist."""
    return [_in_groups(call, graph) for call in op(node.op).lower(node, graph)]


def _in_groups(call: Call, graph: Graph) -> Call:
    operand = call.args.get(_IN_GROUPS.get(call.kernel, ""))
    dtype = graph.values[operand].dtype if isinstance(operand, str) else ""
    return replace(call, kernel=f"{call.kernel}_{dtype}") if dtype in GROUPED else call


def _has_whole(call: Call, graph: Graph) -> bool:
    """Whether an operand is stored in blocks or groups."""
    names = [arg for arg in call.args.values() if isinstance(arg, str)]
    return any(graph.values[name].dtype in _WHOLE for name in names)


def _is_pool(root: str) -> bool:
    return root.partition(".")[0] == POOL


def _blocks(call: Call, graph: Graph) -> Iterator[tuple[str, str, bool]]:
    """(operand, root, whether it is written) of operands in blocks that a call can't use."""
    if not _has_whole(call, graph):
        return
    every = variants(call.kernel)
    operands = {operand.name: operand for operand in every[0].spec.operands}
    taken = " ".join(kernel.blocks for kernel in every).split()
    for name, arg in call.args.items():
        dtype = graph.values[arg].dtype if isinstance(arg, str) else ""
        if dtype in _WHOLE and operands[name].storage not in (*taken, dtype):
            yield name, graph.root(arg), operands[name].mode != "r"


def _uses(calls: Sequence[Call], graph: Graph) -> dict[str, bool]:
    """{root of a value that these calls need as floats: whether they write it}."""
    result: dict[str, bool] = {}
    for call in calls:
        for _, root, writes in _blocks(call, graph):
            result[root] = result.get(root, False) or writes
    return result


def _overwritten(root: str, calls: Sequence[Call], graph: Graph) -> bool:
    """Whether a single call overwrites a whole gradient, so it need not add.

    A copy may write only a slice, so it never counts.
    """
    writers = [c for c in calls for _, r, writes in _blocks(c, graph) if writes and r == root]
    alone = len(writers) == 1 and writers[0].kernel != "copy"
    return alone and "acc" in writers[0].args and not writers[0].skip


def _on_floats(
    call: Call, floats: Mapping[str, str], calls: Sequence[Call], graph: Graph, room: int
) -> Call:
    args = dict(call.args)
    pooled = [a for a in args.values() if isinstance(a, str) and graph.values[a].dtype in BLOCKED]
    if "held" in args and any(map(_is_pool, pooled)):
        args["held"] = room
    for operand, root, writes in _blocks(call, graph):
        args[operand] = floats[root]
        if writes and _overwritten(root, calls, graph):
            args["acc"] = 0
        if _is_pool(root):
            args["room"] = graph.values[floats[root]].size
    return replace(call, args=args)
