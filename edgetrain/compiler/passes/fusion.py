"""Fusions that save memory, decided before remat and thus the same in all plans."""

from dataclasses import replace

from ...ir import Graph, Node, Value
from ...kernels.elementwise.formulas import ROWS
from ...ops.strides import contiguous


def absorb_transposes(graph: Graph) -> Graph:
    """Let matrix products read transposed operands directly, without a transposed copy."""
    sources = {
        node.outputs[0]: node.inputs[0] for node in graph.nodes if _swaps_last_two(node, graph)
    }
    nodes = []
    for node in graph.nodes:
        if node.op == "matmul" and any(name in sources for name in node.inputs[:2]):
            attrs, inputs = dict(node.attrs), list(node.inputs)
            for k, flag in enumerate(("ta", "tb")):
                if inputs[k] in sources:
                    inputs[k], attrs[flag] = sources[inputs[k]], not attrs.get(flag, False)
            node = replace(node, inputs=tuple(inputs), attrs=attrs)
        nodes.append(node)
    read = {graph.root(name) for node in nodes for name in node.reads} | set(graph.outputs)
    return graph.with_nodes(
        [
            n
            for n in nodes
            if not (n.op == "copy" and n.outputs[0] in sources) or n.outputs[0] in read
        ]
    )


def _swaps_last_two(node: Node, graph: Graph) -> bool:
    if node.op != "copy" or len(node.attrs["moves"]) != 1 or node.attrs.get("fill") is not None:
        return False
    shape = list(graph.values[node.inputs[0]].shape)
    if len(shape) < 2 or min(shape[-2:]) == 1:
        return False
    swapped = [*shape[:-2], shape[-1], shape[-2]]
    strides = contiguous(shape)
    walk = [*strides[:-2], strides[-1], strides[-2]]
    (_, xo, yo, dims, xs, ys) = node.attrs["moves"][0]
    result = [list(part) for part in (dims, xs, ys)]
    return xo == yo == 0 and result == [swapped, walk, contiguous(swapped)]


# ir op that can apply a batch norm to its input 0 -> index of its inputs stat, gamma, beta.
_PROLOGUE = {"conv": 3, "conv_dw": 2, "conv_csr": 3, "conv_csr_dw": 2}


def absorb_activations(graph: Graph) -> Graph:
    """Merge a batch norm and the activation after it; nothing between them is stored."""
    readers = graph.readers()
    absorbed: dict[str, Node] = {}
    replaced: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "bn_apply" or node.outputs[0] in graph.outputs:
            continue
        users = readers[node.outputs[0]]
        row = ROWS.get(users[0].op) if len(users) == 1 else None
        if row is not None and row.act:
            attrs = {**node.attrs, "act": row.act}
            attrs |= {"lo": users[0].attrs["a"]} if row.a[0] else {}
            attrs |= {"hi": users[0].attrs["b"]} if row.b[0] else {}
            replaced[node.name] = replace(node, outputs=users[0].outputs, attrs=attrs)
            absorbed[users[0].name] = users[0]
    nodes = [replaced.get(n.name, n) for n in graph.nodes if n.name not in absorbed]
    return graph.with_nodes(nodes)


def apply_in_readers(graph: Graph) -> Graph:
    """Let convolutions apply a batch norm while packing their input, if only they read its output.

    The normalized map is never stored: forward, input gradients and weight gradients compute it
    from x and the statistics.
    """
    readers = graph.readers()
    views = {v.view_of for v in graph.values.values() if v.view_of}
    prologues: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op == "bn_apply":
            (name,) = node.outputs
            users = readers[name]
            inside = name not in graph.outputs and name not in views
            if inside and users and all(_takes_prologue(user, name) for user in users):
                prologues[name] = node
    removed = {node.name for node in prologues.values()}
    nodes = [_with_prologue(n, prologues) for n in graph.nodes if n.name not in removed]
    return graph.with_nodes(nodes)


def _takes_prologue(node: Node, name: str) -> bool:
    first = _PROLOGUE.get(node.op)
    if first is None or node.inputs[first]:
        return False
    return node.inputs[0] == name and name not in node.inputs[1:]


def _with_prologue(node: Node, prologues: dict[str, Node]) -> Node:
    apply = prologues.get(node.inputs[0]) if node.op in _PROLOGUE else None
    if apply is None:
        return node
    first = _PROLOGUE[node.op]
    x, *affine = apply.inputs
    inputs = (x, *node.inputs[1:first], *affine, *node.inputs[first + 3 :])
    attrs = {key: apply.attrs[key] for key in ("act", "lo", "hi") if key in apply.attrs}
    return replace(node, inputs=inputs, attrs={**node.attrs, **attrs})


def mask_relus(graph: Graph, every: bool = False) -> Graph:
    """Store one bit per element of a ReLU output that only its own backward would keep.

    Args:
      every: even if others keep the output, in a format whose rounding doesn't preserve zeros.
    """
    kept: dict[str, int] = {}
    for node in graph.nodes:
        if node.phase == "backward":
            for name in node.reads:
                root = graph.root(name)
                kept[root] = kept.get(root, 0) + 1
    values, changed = dict(graph.values), {}
    for node in graph.nodes:
        readers = kept.get(graph.root(node.outputs[0]), 0) if node.op == "relu" else 0
        if readers == 1 or every and readers:
            y = graph.values[node.outputs[0]]
            label = f"{y.name}.mask"
            while label in values:
                label += "'"
            mask = Value(label, (-(-y.size // 8),), "u8")
            values[mask.name] = mask
            changed[y.name] = mask.name
    nodes = [_masked(node, changed) for node in graph.nodes]
    used = {n.inputs[0] for n in nodes if n.op == "relu_mask_bwd"}
    if used != set(changed.values()):  # The one reader was not the ReLU's own backward.
        changed = {y: mask for y, mask in changed.items() if mask in used}
        nodes = [_masked(node, changed) for node in graph.nodes]
    return graph.with_nodes(nodes, values)


def _masked(node: Node, masks: dict[str, str]) -> Node:
    if node.op == "relu" and node.outputs[0] in masks:
        return replace(node, op="relu_mask", outputs=(*node.outputs, masks[node.outputs[0]]))
    if node.op == "unary_bwd" and node.attrs["f"] == "relu" and node.inputs[0] in masks:
        return replace(node, op="relu_mask_bwd", inputs=(masks[node.inputs[0]], *node.inputs[1:]))
    return node


def drop_views(graph: Graph) -> Graph:
    """Remove views: they are only names."""
    return graph.with_nodes([node for node in graph.nodes if node.op != "view"])


def evaluation_graph(graph: Graph) -> Graph:
    """Forward with running statistics and without dropout.

    A batch-norm without running statistics uses those of its input here too.
    """
    nodes: list[Node] = []
    names: dict[str, str] = {}
    running = {n.inputs[0]: n for n in graph.nodes if n.op == "bn_running"}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(names.get(n, n) for n in node.inputs), phase="eval")
        if node.op == "bn_stats" and node.outputs[0] in running:
            _, mean, variance = running[node.outputs[0]].inputs
            node = replace(node, op="bn_eval_stats", inputs=(mean, variance))
        elif node.op in ("dropout", "dropout_part"):
            names[node.outputs[0]] = node.inputs[0]
            continue
        elif node.op == "attention":
            node = replace(node, attrs={**node.attrs, "p": 0.0})
        elif node.op == "bn_running":
            continue
        nodes.append(node)
    values = {
        name: replace(v, view_of=names.get(v.view_of, v.view_of))
        for name, v in graph.values.items()
    }
    outputs = tuple(names.get(n, n) for n in graph.outputs)
    return replace(graph.with_nodes(nodes, values), outputs=outputs)
