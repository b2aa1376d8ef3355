"""Products, masks and a softmax become one node that never has the matrix of scores.

What is looked for is any softmax over the last axis between two products: scores q k^T, times
numbers anywhere, plus constants or what is computed without parameters, or hidden by masks, with
or without dropout behind it, times v. Copies that only rearrange (heads apart from width, keys and
values repeated for groups of queries) are read through by strides. The same mathematics in another
order of sums, decided by the graph and `allow`: what does not fit stays as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...errors import ModelError
from ...ir import Graph, Node, Value
from ..options import Options
from .masks import Masks, Reader, Scores
from .walks import Index, Source, Walker, affine, batch_index, forward_through, is_dense, pairs

BLOCKS = "attention"  # what `allow` calls it


@dataclass(frozen=True)
class _Chain:
    """Nodes between two products.

    Attributes:
      scores, product: the products; between them `steps` up to the softmax, in order.
      softmax: its input has `shape`; gone: nodes that one node replaces.
    """

    scores: Node
    product: Node
    steps: tuple[Node, ...]
    dropout: Node | None
    shape: tuple[int, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True)
class _Operand:
    """A value as [z1, z2 / group, rows, width]: its strides along the first three."""

    name: str
    strides: tuple[int, int, int]
    scale: float
    steps: int
    group: int


def in_blocks(graph: Graph, arrays: Mapping[str, np.ndarray], options: Options) -> Graph:
    """The forward graph with its attentions by blocks, where `options` allow them.

    Raises:
      ModelError: they are allowed, and the graph has none.
    """
    if BLOCKS not in options.allow:
        return graph
    found = 0
    for softmax in [node for node in graph.nodes if node.op == "softmax"]:
        walker = Walker(graph, arrays)
        chain = _chain(walker, softmax)
        changed = chain and _replaced(walker, chain)
        if changed:
            graph, found = changed, found + 1
    if not found:
        raise ModelError(
            f"allow {BLOCKS}: no softmax between two products whose operands are computed, without "
            f"anything but numbers, masks and dropout in between. Leave {BLOCKS} out."
        )
    return graph


def _chain(walker: Walker, softmax: Node) -> _Chain | None:
    values = walker.graph.values
    x, y = softmax.inputs[0], softmax.outputs[0]
    shape = values[x].shape
    if softmax.attrs["axis"] != len(shape) - 1 or len(shape) < 2:
        return None
    steps: list[Node] = []
    name = x
    while (node := walker.makers.get(name)) is not None and walker.uses[name] == 1:
        steps.append(node)
        if node.op == "matmul":
            break
        inside = _scores_of(walker, node)
        if inside is None:
            return None
        name = inside
    if not steps or steps[-1].op != "matmul":
        return None
    behind: list[Node] = []
    dropout = None
    while (node := walker.only_reader(y)) is not None:
        behind.append(node)
        if node.op == "matmul" or node.op not in ("view", "dropout"):
            break
        if node.op == "dropout" and dropout is not None:
            return None
        dropout = node if node.op == "dropout" else dropout
        y = node.outputs[0]
    if node is None or node.op != "matmul" or node.inputs[0] != y or node.inputs[1] == y:
        return None
    gone = tuple(n.name for n in (*steps, softmax, *behind))
    return _Chain(steps[-1], node, tuple(steps[-2::-1]), dropout, shape, gone)


def _scores_of(walker: Walker, node: Node) -> str | None:
    """Which input of a node between product and softmax has the scores."""
    values = walker.graph.values
    if node.op == "view":
        same = values[node.inputs[0]].shape[-1:] == values[node.outputs[0]].shape[-1:]
        return node.inputs[0] if same else None
    factored = walker.factor(node)
    if factored:
        return factored[0]
    if node.op not in ("add", "where"):
        return None
    shape = values[node.outputs[0]].shape
    inputs = node.inputs[-2:]
    full = [name for name in inputs if values[name].shape == shape and _computed(walker, name)]
    return full[0] if len(full) == 1 else None


def _computed(walker: Walker, name: str) -> bool:
    """Whether a value goes back to a product by what may stand between it and a softmax."""
    while (node := walker.makers.get(name)) is not None:
        if node.op == "matmul":
            return True
        if node.op == "view":
            name = node.inputs[0]
        elif node.op in ("mul", "div") and (found := walker.factor(node)):
            name = found[0]
        elif node.op in ("add", "where"):
            values = walker.graph.values
            shape = values[node.outputs[0]].shape
            return any(values[n].shape == shape and _computed(walker, n) for n in node.inputs[-2:])
        else:
            return False
    return False


def _replaced(walker: Walker, chain: _Chain) -> Graph | None:
    """The graph with one node in the chain's place, None where it does not fit."""
    graph = walker.graph
    m, n = chain.shape[-2:]
    heads = int(np.prod(chain.shape[:-2]))
    d = _inner(graph, chain.scores)
    v_shape = graph.values[chain.product.outputs[0]].shape
    e = v_shape[-1]
    plain = all(_is_plain(graph, node) for node in (chain.scores, chain.product))
    if not plain or _inner(graph, chain.product) != n or chain.product.attrs.get("ta"):
        return None
    if graph.values[chain.scores.outputs[0]].shape[-1] != n:
        return None
    best = None
    for z1, z2 in pairs(heads):
        found = _operands(walker, chain, (z1, z2, m, n, d, e))
        depth = sum(part.steps for part in found) if found else -1
        likely = chain.shape[:-2] == (z1, z2)
        if found and (best is None or (depth, likely) > best[0]):
            best = (depth, likely), (z1, z2), found
    if best is None:
        return None
    (z1, z2), (q, k, v) = best[1:]
    masks, scale = _masks(walker, chain, Scores(z1, z2, m, n))
    if masks is None:
        return None
    numbers = scale * q.scale * k.scale * chain.scores.attrs.get("alpha", 1.0)
    numbers_of_v = v.scale * chain.product.attrs.get("alpha", 1.0)
    if numbers_of_v != 1.0:
        return None
    y, strides, more = _output(walker, chain, (z1, z2, m, e))
    attrs = {"z1": z1, "z2": z2, "group": k.group, "m": m, "n": n, "d": d, "e": e}
    for letter, found_strides in (("q", q.strides), ("k", k.strides), ("v", v.strides)):
        attrs |= {f"{letter}{x}": s for x, s in zip("zhr", found_strides, strict=True)}
    attrs |= {f"y{x}": s for x, s in zip("zhr", strides, strict=True)}
    for letter, table in (("m", masks.mask), ("b", masks.bias)):
        attrs |= {f"{letter}{x}": s for x, s in zip("zhrc", table.strides, strict=True)}
    drop = {"p": 0.0, "key": 0}
    if chain.dropout is not None:
        drop = {name: chain.dropout.attrs[name] for name in drop}
    attrs |= masks.attrs | drop | {"scale": numbers}
    inputs = (q.name, k.name, v.name, masks.mask.name, masks.bias.name)
    return _with_node(graph, chain, (*chain.gone, *more), y, inputs, attrs)


def _is_plain(graph: Graph, node: Node) -> bool:
    """A product without a bias of two activations."""
    computed = all(graph.values[graph.root(x)].role == "activation" for x in node.inputs[:2])
    return computed and not any(node.inputs[2:])


def _inner(graph: Graph, node: Node) -> int:
    return graph.values[node.inputs[0]].shape[-2 if node.attrs.get("ta") else -1]


def _operands(walker: Walker, chain: _Chain, sizes) -> list[_Operand] | None:
    z1, z2, m, n, d, e = sizes
    q, k = chain.scores.inputs[:2]
    v = chain.product.inputs[1]
    ta, tb = (bool(chain.scores.attrs.get(f)) for f in ("ta", "tb"))
    found = [
        _operand(walker, q, _left(walker, chain.scores, m, ta), (z1, z2, m, d), 1),
        _operand(walker, k, _right(walker, chain.scores, m, n, not tb), (z1, z2, n, d)),
        _operand(
            walker,
            v,
            _right(walker, chain.product, m, e, bool(chain.product.attrs.get("tb"))),
            (z1, z2, n, e),
        ),
    ]
    if None in found or found[1].group != found[2].group:
        return None
    return found


def _left(walker: Walker, node: Node, m: int, turned: bool) -> Index | None:
    """(head, query, number) -> linear index in a product's first operand."""
    a, y = (walker.graph.values[x].shape for x in (node.inputs[0], node.outputs[0]))
    rows, width = y[-2], a[-2 if turned else -1]
    batch = batch_index(y[:-2], a[:-2])
    if rows % m:
        return None

    def at(head, i, c):
        row = head * m + i
        first, r = batch(row // rows), row % rows
        return (first * width + c) * rows + r if turned else (first * rows + r) * width + c

    return at


def _right(walker: Walker, node: Node, m: int, columns: int, turned: bool) -> Index | None:
    """(head, key, number) -> linear index in a product's second operand; turned: keys are its last
    axis."""
    b, y = (walker.graph.values[x].shape for x in (node.inputs[1], node.outputs[0]))
    rows = y[-2]
    batch = batch_index(y[:-2], b[:-2])
    keys, width = (b[-1], b[-2]) if turned else (b[-2], b[-1])
    if rows % m:
        return None

    def at(head, j, c):
        first = batch(head * m // rows)
        return (first * width + c) * keys + j if turned else (first * keys + j) * width + c

    return at


def _operand(walker: Walker, name: str, at: Index | None, sizes, group: int = 0) -> _Operand | None:
    """The farthest value that an operand is a dense rearrangement of; group 0: any."""
    if at is None:
        return None
    z1, z2, rows, width = sizes
    best = None
    for source in walker.sources(name):
        value = walker.graph.values[source.name]
        if value.role != "activation" or value.dtype != "f32":
            break
        shared = group or _repeats(at, source, z2)
        strides = _strides(at, source, (z1, z2 // shared, rows, width), z2, shared)
        if strides and value.size == z1 * (z2 // shared) * rows * width:
            best = _Operand(source.name, strides[:3], source.scale, source.steps, shared)
    return best


def _repeats(at: Index, source: Source, z2: int) -> int:
    """How many heads that follow each other are the same one."""
    heads = np.arange(z2)
    places = source.back(at(heads, np.zeros_like(heads), np.zeros_like(heads)))
    changed = np.flatnonzero(places != places[0])
    group = int(changed[0]) if changed.size else z2
    return group if z2 % group == 0 else 1


def _strides(at: Index, source: Source, sizes, z2: int, group: int) -> tuple[int, ...] | None:
    def place(z, h, r, c):
        return source.back(at(z * z2 + h * group, r, c))

    def last(z, h, r, c):
        return source.back(at(z * z2 + h * group + group - 1, r, c))

    strides = affine(place, sizes)
    same = strides and (group == 1 or affine(last, sizes) == strides)
    if not same or not is_dense(sizes, strides) or sizes[3] > 1 and strides[3] != 1:
        return None
    return tuple(strides)


def _masks(walker: Walker, chain: _Chain, scores: Scores) -> tuple[Masks | None, float]:
    """What is done to the scores, and the number they are multiplied by."""
    reader, scale, masked = Reader(walker, scores), 1.0, False
    for node in chain.steps:
        name = _scores_of(walker, node)
        factored = walker.factor(node)
        if node.op == "view":
            continue
        if factored:
            if masked:
                return None, scale
            scale *= factored[1]
            continue
        masked = True
        shape = walker.graph.values[node.outputs[0]].shape
        if node.op == "where":
            taken = reader.where(node, name)
        else:
            other = node.inputs[1] if node.inputs[0] == name else node.inputs[0]
            taken = reader.add(other, shape)
        if not taken:
            return None, scale
    return reader.masks, scale


def _output(walker: Walker, chain: _Chain, sizes) -> tuple[str, tuple[int, ...], list[str]]:
    """(value that is written, its strides, nodes that are not needed for it)."""
    z1, z2, m, e = sizes
    name, gone = chain.product.outputs[0], []
    best = name, (z2 * m * e, m * e, e), list(gone)

    def at(index: Index) -> Index:
        return lambda z, h, i, c: index(((z * z2 + h) * m + i) * e + c)

    index: Index = lambda linear: linear  # noqa: E731
    while (node := walker.only_reader(name)) is not None:
        step = forward_through(node)
        if step is None:
            break
        index, name = _then(index, step), node.outputs[0]
        gone.append(node.name)
        if node.op == "view":
            continue
        strides = affine(at(index), sizes)
        if strides is None or e > 1 and strides[3] != 1 or not is_dense(sizes, strides):
            break
        best = name, tuple(strides[:3]), list(gone)
    return best


def _then(first: Index, second: Index) -> Index:
    return lambda index: second(first(index))


def _with_node(graph: Graph, chain: _Chain, gone, y: str, inputs, attrs) -> Graph:
    """The graph with the node where the second product or what writes y was."""
    rows = attrs["z1"] * attrs["z2"] * attrs["m"]
    stat = f"{y}.scores"
    while stat in graph.values:
        stat += "'"
    values = {**graph.values, stat: Value(stat, (rows, 2), "f32", "statistic")}
    node = Node(y, "attention", inputs, (y, stat), attrs, origin=chain.product.origin)
    nodes = []
    for old in graph.nodes:
        if y in old.writes:
            nodes.append(node)
        elif old.name not in gone:
            nodes.append(old)
    return _without_unread(graph, replace(graph, values=values).with_nodes(nodes, values))


def _without_unread(before: Graph, graph: Graph) -> Graph:
    """Without nodes and constants that were read before and are not any more."""
    once = {name for node in before.nodes for name in node.reads}
    while True:
        read = {name for node in graph.nodes for name in node.reads} | set(graph.outputs)
        nodes = [
            node
            for node in graph.nodes
            if any(name in read or name not in once for name in node.writes)
        ]
        if len(nodes) == len(graph.nodes):
            break
        graph = graph.with_nodes(nodes)
    roots = {graph.root(name) for name in read}
    values = {
        name: value
        for name, value in graph.values.items()
        if value.role != "constant" or name not in once or graph.root(name) in roots
    }
    return replace(graph, values=values)
