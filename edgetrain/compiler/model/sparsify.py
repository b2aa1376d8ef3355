"""Moves dense weights of convolutions, linear layers and embeddings to the pool, before autodiff.

Weights stay dense if they are untrained or also read elsewhere. Unless a pattern matches them, the
first convolution, the classifier (with an embedding tied to it) and depthwise kernels stay dense
too (Mostafa and Wang 2019 and the report leave out the first two). Low-rank adapters are always
dense.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from ...errors import UsageError
from ...formats import FORMATS, csr
from ...formats.csr import COLUMNS, LINE, POOL, TABLE, Layer, pointers_name
from ...ir import Graph, Node, Value
from ...ops.registry import op, structure
from ...ops.structure import Structure
from ...sparse import Rewiring, density
from ..options import Options

_POINT: dict = {"sh": 1, "sw": 1, "ph": 0, "pw": 0, "dh": 1, "dw": 1, "g": 1}  # a map of one pixel


@dataclass(frozen=True)
class Sparse:
    """A forward graph whose layers read the pool.

    Attributes:
      arrays: persistent values; without the dense weights of `layers`.
      layers: in pool order; empty if nothing is sparse.
      rewiring: the rewiring method with its parameters; None: nonzeros stay in place.
      dense: weights that stay dense, with the reason; empty if no density was given.
    """

    graph: Graph
    arrays: Mapping[str, np.ndarray]
    layers: tuple[Layer, ...] = ()
    rewiring: Rewiring | None = None
    dense: Mapping[str, str] = field(default_factory=dict)


def sparsify(
    graph: Graph,
    arrays: Mapping[str, np.ndarray],
    options: Options,
    trainable: Callable[[str], bool],
    aliases: Mapping[str, str],
    adapters: Collection[str] = (),
) -> Sparse:
    """Make the weights chosen by `options.density` and its overrides sparse.

    Nonzeros keep their initial values. Their positions depend on the seed, and on zeros in the
    weights.

    Args:
      aliases: other names of tied parameters, which patterns can match.
      adapters: parameters that are low-rank adapters.
    Raises:
      UsageError: an override matches no weight that can be sparse, or nothing would be sparse.
    """
    if options.density == 1.0 and not options.density_overrides:
        return Sparse(graph, arrays)
    result = {n: turn for n, turn in _weights(graph).items() if n not in adapters}
    turned = {n: turn for n, turn in result.items() if trainable(n)}
    shapes = {n: graph.values[n].shape[:: -1 if turn else 1] for n, turn in turned.items()}
    overrides = _overrides(shapes, options, aliases)
    dense = _dense_by_default(graph)
    chosen = {n: s for n, s in shapes.items() if n in overrides or n not in dense}
    counts = density.shares(chosen, options.density, options.distribution, overrides)
    layers = tuple(density.make_layers(shapes, counts, [n for n, t in turned.items() if t]))
    wanted = options.density < 1 or any(d < 1 for d in options.density_overrides.values())
    if not layers and wanted:
        raise UsageError(
            f"density {options.density}: no trained weight would be sparse: the first convolution, "
            "the classifier and depthwise kernels stay dense unless a density override names "
            "them, and adapters always do. Add an override, or leave the density out."
        )
    left = _left_dense(graph, counts, shapes, dense, trainable)
    left |= dict.fromkeys(left.keys() & {*adapters}, "adapter")
    if not layers:
        return Sparse(graph, arrays, dense=left)
    method = options.rewiring
    if isinstance(method, Rewiring):
        method = method.fitted(layers, adaptive=options.optimizer.adaptive)
    assert not isinstance(method, str)  # Options converts names to methods
    patterned = _with_pattern(arrays, layers, options.seed, method)
    return Sparse(_rewritten(graph, layers), patterned, layers, method, left)


def _left_dense(
    graph: Graph,
    counts: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    by_default: Mapping[str, str],
    trainable: Callable[[str], bool],
) -> dict[str, str]:
    """Why each weight with two or more dimensions outside the pool stays dense."""
    out, readers = {}, graph.readers()
    for name, value in graph.values.items():
        if value.role != "parameter" or value.view_of or len(value.shape) < 2 or name in counts:
            continue
        if not trainable(name):
            out[name] = "frozen"
        elif name in shapes:
            out[name] = by_default.get(name, "density 1")
        else:
            ops = ", ".join(sorted({node.op for node in readers[name]})) or "nothing"
            out[name] = f"read by {ops}, which has no sparse form"
    return out


def _weights(graph: Graph) -> dict[str, bool]:
    """Parameters used only as weights, in order of first use -> whether they are read as [c, k]."""
    readers = graph.readers()
    viewed = {value.view_of for value in graph.values.values()}
    out: dict[str, bool] = {}
    for node in graph.nodes:
        name = _slot(node)
        if not name or name in out or name in viewed or graph.values[name].role != "parameter":
            continue
        if graph.values[name].view_of:  # a weight in another shape
            continue
        alone = all(_reads_weight(user, name, graph) for user in readers[name])
        turns = {_is_turned(user) for user in readers[name]}
        kernel = int(np.prod(graph.values[name].shape[2:]))
        if alone and len(turns) == 1 and kernel <= csr.MAX_TAPS and name not in graph.outputs:
            out[name] = turns.pop()
    return out


def _is_turned(node: Node) -> bool:
    return structure(node) is Structure.PRODUCT and not node.attrs.get("tb", False)


def _is_convolution(node: Node) -> bool:
    """Whether it is a convolution whose weight may be sparse."""
    return bool(op(node.op).sparse) and structure(node) is None


def _slot(node: Node) -> str:
    """The input that is the layer's weight; "" if the node has none."""
    number = op(node.op).weight
    return node.inputs[number] if len(node.inputs) > number else ""


def _reads_weight(node: Node, name: str, graph: Graph) -> bool:
    """Whether `name` is read as a kernel [k, c/g, ..] or as the matrix of a product.

    The table of a row lookup has the layout of a product's weight.
    """
    if not op(node.op).sparse:
        return False
    if structure(node) is Structure.TAKE:
        linear = node.attrs["axis"] == 0 and len(graph.values[name].shape) == 2
    elif structure(node) is Structure.PRODUCT:
        plain = not node.attrs.get("ta") and node.attrs.get("alpha", 1.0) == 1.0
        linear = plain and len(graph.values[name].shape) == 2
    else:
        linear = True
    return linear and _slot(node) == name and node.reads.count(name) == 1


def _overrides(
    shapes: Mapping[str, tuple[int, ...]], options: Options, aliases: Mapping[str, str]
) -> dict[str, float]:
    out: dict[str, float] = {}
    for pattern, value in options.density_overrides.items():
        names = [n for n in shapes if fnmatchcase(n, pattern)]
        names += [kept for other, kept in aliases.items() if fnmatchcase(other, pattern)]
        matching = [name for name in names if name in shapes]
        if not matching:
            raise UsageError(
                f"density override {pattern!r}: no match among trained weights that can be sparse "
                f"({', '.join(list(shapes)[:3]) or 'none'} ..)."
            )
        out |= dict.fromkeys(matching, value)
    return out


def _dense_by_default(graph: Graph) -> dict[str, str]:
    """Convolutions before any other weighted layer, weights after all others, depthwise kernels."""
    after: set[str] = set()  # values that depend on a weighted layer
    out: dict[str, str] = {}
    for node in graph.nodes:
        weighted = op(node.op).layer
        if weighted and _is_convolution(node):
            depthwise = graph.values[node.inputs[1]].shape[1] == 1
            if depthwise or node.inputs[0] not in after:
                first = node.inputs[0] not in after
                out[node.inputs[1]] = "first convolution" if first else "depthwise"
        if weighted or any(name in after for name in node.reads):
            after.update(node.writes)
    before: set[str] = set()  # values that a weighted layer depends on
    for node in reversed(graph.nodes):
        weighted = op(node.op).layer
        if weighted and not any(name in before for name in node.writes):
            out.setdefault(node.inputs[1], "classifier")
        if weighted or any(name in before for name in node.writes):
            before.update(node.reads)
    return out


def _rewritten(graph: Graph, layers: tuple[Layer, ...]) -> Graph:
    by_name = {layer.name: layer for layer in layers}
    slots = csr.slots_of(layers)
    values = {name: value for name, value in graph.values.items() if name not in by_name}
    added = [
        # Two dimensions, so it is stored like other weight matrices (compiler/passes/precision.py).
        Value(POOL, (slots // LINE, LINE), "f32", "parameter"),
        Value(COLUMNS, (slots,), csr.column_dtype(layers), "index"),
        Value(TABLE, (csr.HEADER + csr.LAYER_WORDS * len(layers),), "i64", "index"),
        *(Value(pointers_name(x.name), (x.groups + 1,), "i32", "index") for x in layers),
    ]
    values |= {value.name: value for value in added}
    nodes = [_sparse_node(node, by_name, slots) for node in graph.nodes]
    return graph.with_nodes(nodes, values)


def _sparse_node(node: Node, layers: Mapping[str, Layer], slots: int) -> Node:
    layer = layers.get(_slot(node))
    if layer is None:
        return node
    attrs: dict = {"shape": layer.shape, "chunk": layer.chunk, "nonzeros": layer.share}
    attrs["room"] = min(layer.cap, slots)  # most slots that the layer may ever take
    name = op(node.op).sparse
    if structure(node) is Structure.TAKE:
        table = (POOL, COLUMNS, pointers_name(layer.name), node.inputs[1])
        return replace(node, op=name, inputs=table, attrs=attrs)
    x, _, *rest = node.inputs
    if structure(node) is Structure.PRODUCT:
        rest = [*rest[:1], "", "", ""]
        attrs |= _POINT
    else:
        attrs |= node.attrs
    inputs = (x, POOL, *rest, COLUMNS, pointers_name(layer.name))
    return replace(node, op=name, inputs=inputs, attrs=attrs)


def _with_pattern(
    arrays: Mapping[str, np.ndarray],
    layers: tuple[Layer, ...],
    seed: int,
    method: Rewiring | None,
) -> dict[str, np.ndarray]:
    slots = csr.slots_of(layers)
    pool = np.zeros(slots, np.float32)
    columns = np.zeros(slots, FORMATS[csr.column_dtype(layers)].dtype)
    table = np.zeros(csr.HEADER + csr.LAYER_WORDS * len(layers), np.int64)
    out, start = dict(arrays), 0
    for number, layer in enumerate(layers):
        weight = layer.flat(out.pop(layer.name))
        positions = density.first_positions(layer, seed, number, weight)
        stop = start + layer.share
        pool[start:stop] = weight[positions]
        columns[start:stop], out[pointers_name(layer.name)] = csr.encode(layer, positions, start)
        words = csr.HEADER + csr.LAYER_WORDS * number
        table[words + csr.CAP] = layer.cap
        table[words + csr.KEPT] = layer.share
        start = stop
    if method is not None:
        first = method.first_threshold(pool[:start], layers)
        table.view(np.float64)[csr.THRESHOLD] = first
    return out | {POOL: pool.reshape(-1, LINE), COLUMNS: columns, TABLE: table}
