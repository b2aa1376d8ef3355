"""Weights and accumulators that a node's kernels can't use as they are stored.

  - In blocks of 8 bits. Kernels that read blocks directly declare it (`blocks`).
  - In another format of floats than activations, if the model computes with a weight itself (such
    as its softmax): then the kernel has one storage for both.

Before the kernel, such a weight is unpacked or copied into a temporary value in the storage of
activations. If the kernel adds to an accumulator, it writes to a temporary value instead, which is
added afterwards. So ops and their kernels need not know about it, and the planner counts the bytes.
For the sparse pool, the temporary value has the slots of one layer. This is decided before remat,
so it is the same in all plans.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...formats import BLOCKED, FORMATS, GROUPED
from ...formats.csr import POOL
from ...ir import Call, Graph, Node, Value
from ...ir.keys import key_of
from ...kernels.registry import variants
from ...ops.registry import op

_WHOLE = (*BLOCKED, *GROUPED)
# Kernel -> the operand that may be in a format of groups, if the kernel has a variant for it.
_IN_GROUPS = {"gemm": "b", "gather": "x", "unpack": "w"}
ATTRIBUTE = "floats"  # node attribute: root of such a value -> its temporary value
# Roles of values that are stored in other formats than activations.
_READ, _ADDED = ("parameter", "buffer", "constant", "statistic"), ("accumulator", "fused")


@dataclass(frozen=True, slots=True)
class _Use:
    """An operand that a call can't use as it is stored.

    Attributes:
      operand, root, stored: its name in the call, its value, and the dtype of that.
      writes: whether the call writes it.
      others: dtypes of the operands that must have the same storage, itself included unless it is
        in blocks.
    """

    operand: str
    root: str
    stored: str
    writes: bool
    others: frozenset[str]

    def needed(self, precision: str) -> str:
        """The dtype of its temporary value, given that of activations."""
        if len(self.others) == 1:
            return next(iter(self.others))
        return precision if self.others or not self.writes else "f32"


def spread(graph: Graph, precision: str) -> Graph:
    """The graph with temporary values as outputs of its nodes.

    Args:
      precision: dtype of activations.
    """
    if {value.dtype for value in graph.values.values() if value.dtype in FORMATS} <= {precision}:
        return graph
    values, nodes = dict(graph.values), []
    for node in graph.nodes:
        floats = {}
        for use in _uses(_calls(node, graph), graph) if _may_need(node, graph, precision) else ():
            dtype = use.needed(precision)
            if use.stored == dtype:
                continue
            shape = (node.attrs["room"],) if _is_pool(use.root) else graph.values[use.root].shape
            value = Value(f"{node.name}.{use.root}~{dtype}", shape, dtype, "gradient")
            values[value.name] = value
            floats[use.root] = value.name
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
    """A node's calls in order, including those that convert operands."""
    floats: Mapping[str, str] = node.attrs.get(ATTRIBUTE, {})
    calls = _calls(bare(node), graph)
    if not floats and not any(_has_whole(call, graph) for call in calls):
        return calls
    before: list[Call] = []
    after: list[Call] = []
    uses = [use for use in _uses(calls, graph) if use.root in floats]
    for number, use in enumerate(uses):
        name, sizes = floats[use.root], _sizes(use.root, floats[use.root], calls, graph)
        if not use.writes:
            before.append(_read(use, name, sizes))
            continue
        after.append(_added(use, name, sizes, key_of(f"{node.name} {number}")))
        if not _overwritten(use.root, calls, graph):
            before.append(Call("fill", {"y": name, "value": 0.0, "n": graph.values[name].size}))
    room = node.attrs.get("room", 0)
    return [*before, *(_on_floats(call, floats, calls, graph, room) for call in calls), *after]


def _sizes(root: str, name: str, calls: Sequence[Call], graph: Graph) -> dict:
    """Sizes of a temporary value, and where a layer of the sparse pool lies."""
    sizes: dict = {"n": graph.values[name].size}
    if not _is_pool(root):
        return sizes
    pointers = next(call.args["pointers"] for call in calls if "pointers" in call.args)
    groups, slots = graph.values[pointers].size - 1, graph.values[root].size
    return {"pointers": pointers, "groups": groups, "slots": slots, "room": sizes["n"]}


def _read(use: _Use, name: str, sizes: Mapping) -> Call:
    """Unpack or copy a value to its temporary one."""
    if use.stored in GROUPED:
        return Call(f"unpack_{use.stored}", {"w": use.root, "y": name, **sizes})
    if use.stored in BLOCKED:
        kernel = "csr_unpack" if _is_pool(use.root) else "unpack"
        return Call(kernel, {"w": use.root, "y": name, **sizes})
    return _copied(use.root, name, sizes["n"], {"acc": 0, "sr": 0, "key": 0})


def _added(use: _Use, name: str, sizes: Mapping, key: int) -> Call:
    """Add a temporary value to the accumulator, with stochastic rounding."""
    numbers = {"ctl": "ctl", "key": key}
    if use.stored in BLOCKED:
        kernel = "csr_pack_add" if _is_pool(use.root) else "pack_add"
        return Call(kernel, {"x": name, "g": use.root, **numbers, **sizes})
    return _copied(name, use.root, sizes["n"], {"acc": 1, "sr": 1, **numbers})


def _copied(x: str, y: str, n: int, store: Mapping) -> Call:
    """Copy a whole value in its order."""
    along = (*(1,) * 5, n), (*(0,) * 5, 1)
    walk = {"d": along[0], "xs": along[1], "ys": along[1], "xo": 0, "yo": 0, "nx": n, "ny": n}
    return Call("copy", {"x": x, "y": y, "scale": 1.0, **store, **walk})


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


def _may_need(node: Node, graph: Graph, precision: str) -> bool:
    """Whether any value of the node is a weight or accumulator in another format of floats."""
    for name in (*node.reads, *node.writes):
        root = graph.values[graph.root(name)]
        if root.role in (*_READ, *_ADDED) and root.dtype in FORMATS and root.dtype != precision:
            return True
    return False


def _is_pool(root: str) -> bool:
    return root.partition(".")[0] == POOL


def _uses_of(call: Call, graph: Graph) -> Iterator[_Use]:
    every = variants(call.kernel)
    operands = {operand.name: operand for operand in every[0].spec.operands}
    taken = " ".join(kernel.blocks for kernel in every).split()
    stored = {
        name: graph.values[arg].dtype for name, arg in call.args.items() if isinstance(arg, str)
    }
    whole = {
        name
        for name, dtype in stored.items()
        if dtype in _WHOLE and operands[name].storage not in (*taken, dtype)
    }
    together: dict[str, set[str]] = {}  # variable -> storages of its operands
    for name, dtype in stored.items():
        if name not in whole and operands[name].storage.isupper():
            together.setdefault(operands[name].storage, set()).add(dtype)
    for name, dtype in stored.items():
        root = graph.values[graph.root(str(call.args[name]))]
        writes = operands[name].mode != "r"
        others = together.get(operands[name].storage, set())
        floats = all(FORMATS[other].floats for other in others)
        mixed = len(others) > 1 and floats and root.role in (_ADDED if writes else _READ)
        if name in whole or (mixed and not _is_pool(root.name)):
            yield _Use(name, root.name, dtype, writes, frozenset(others))


def _uses(calls: Sequence[Call], graph: Graph) -> list[_Use]:
    """Operands that these calls can't use as they are stored, one for each value."""
    result: dict[str, _Use] = {}
    for call in calls:
        for use in _uses_of(call, graph):
            known = result.get(use.root)
            result[use.root] = replace(known, writes=known.writes or use.writes) if known else use
    return [*result.values()]


def _overwritten(root: str, calls: Sequence[Call], graph: Graph) -> bool:
    """Whether a single call overwrites a whole gradient, so it need not add.

    A copy may write only a slice, so it never counts.
    """
    writers = [call for call in calls for u in _uses_of(call, graph) if u.writes and u.root == root]
    alone = len(writers) == 1 and writers[0].kernel != "copy"
    return alone and "acc" in writers[0].args and not writers[0].skip


def _on_floats(
    call: Call, floats: Mapping[str, str], calls: Sequence[Call], graph: Graph, room: int
) -> Call:
    args = dict(call.args)
    pooled = [a for a in args.values() if isinstance(a, str) and graph.values[a].dtype in BLOCKED]
    if "held" in args and any(map(_is_pool, pooled)):
        args["held"] = room
    for use in _uses_of(call, graph):
        if use.root not in floats:
            continue
        args[use.operand] = floats[use.root]
        if use.writes and _overwritten(use.root, calls, graph):
            args["acc"] = 0
        if _is_pool(use.root):
            args["room"] = graph.values[floats[use.root]].size
    return replace(call, args=args)
