"""Replaces products, masks and softmax by one node that never stores the matrix of scores.

It looks for a softmax over the last axis between two products: scores q k^T, scaled, with constant
or parameter-free biases or masks, optionally dropout, times v. Copies that only rearrange
(splitting heads, repeating keys and values for groups of queries) are replaced by strides. The
mathematics is the same, with another order of sums. The result depends only on the graph and
`allow`; all other nodes are unchanged.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...errors import ModelError
from ...ir import Graph, Node, Value
from ..options import Options
from .chain import Chain, chain_of, scores_of
from .masks import Masks, Reader, Scores
from .operands import operands, output
from .walks import Walker, pairs

BLOCKS = "attention"  # its name in `allow`


def in_blocks(graph: Graph, arrays: Mapping[str, np.ndarray], options: Options) -> Graph:
    """The forward graph with attention in blocks, if `options` allow it.

    Raises:
      ModelError: it is allowed, but the graph has no attention.
    """
    if BLOCKS not in options.allow:
        return graph
    count = 0
    for softmax in [node for node in graph.nodes if node.op == "softmax"]:
        walker = Walker(graph, arrays)
        chain = chain_of(walker, softmax)
        changed = chain and _replaced(walker, chain)
        if changed:
            graph, count = changed, count + 1
    if not count:
        raise ModelError(
            f"allow {BLOCKS}: the model has no attention: a softmax between two products of "
            f"activations, with only scaling, masks and dropout in between. Leave {BLOCKS} out."
        )
    return graph


def _replaced(walker: Walker, chain: Chain) -> Graph | None:
    """The graph with one node instead of the chain; None if not possible."""
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
    for z1, z2 in sorted(pairs(heads), key=lambda pair: pair != chain.shape[:-2]):
        parts = operands(walker, chain, (z1, z2, m, n, d, e))
        depth = sum(part.steps for part in parts) if parts else -1
        if parts and (best is None or depth > best[0]):
            best = depth, (z1, z2), parts
        if parts and chain.shape[:-2] == (z1, z2):
            break
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
    y, strides, more = output(walker, chain, (z1, z2, m, e))
    attrs = {"z1": z1, "z2": z2, "group": k.group, "m": m, "n": n, "d": d, "e": e}
    for letter, found_strides in (("q", q.strides), ("k", k.strides), ("v", v.strides)):
        attrs |= {f"{letter}{x}": s for x, s in zip("zhr", found_strides, strict=True)}
    attrs |= {f"y{x}": s for x, s in zip("zhr", strides, strict=True)}
    for letter, table in (("m", masks.mask), ("b", masks.bias)):
        attrs |= {f"{letter}{x}": s for x, s in zip("zhrc", table.strides, strict=True)}
    drop = {"p": 0.0, "key": 0}
    if chain.dropout is not None:
        drop = {name: chain.dropout.attrs[name] for name in drop}
    attrs |= masks.attrs | drop | {"scale": numbers, "guard": int(chain.guard)}
    inputs = (q.name, k.name, v.name, masks.mask.name, masks.bias.name)
    return _with_node(graph, chain, (*chain.gone, *more), y, inputs, attrs)


def _is_plain(graph: Graph, node: Node) -> bool:
    """Whether it is a product of two activations without bias."""
    computed = all(graph.values[graph.root(x)].role == "activation" for x in node.inputs[:2])
    return computed and not any(node.inputs[2:])


def _inner(graph: Graph, node: Node) -> int:
    return graph.values[node.inputs[0]].shape[-2 if node.attrs.get("ta") else -1]


def _masks(walker: Walker, chain: Chain, scores: Scores) -> tuple[Masks | None, float]:
    """The masks and biases applied to the scores, and their scale."""
    reader, scale, masked = Reader(walker, scores), 1.0, False
    for node in chain.steps:
        name = scores_of(walker, node)
        factored = walker.factor(node)
        if node.op == "view" or name is None:
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


def _with_node(graph: Graph, chain: Chain, gone, y: str, inputs, attrs) -> Graph:
    """The graph with the new node in place of the second product or of the writer of y."""
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
    """Remove nodes and constants that are no longer read.

    A node without named outputs changes state, so it stays.
    """
    once = {name for node in before.nodes for name in node.reads}
    while True:
        read = {name for node in graph.nodes for name in node.reads} | set(graph.outputs)
        nodes = [
            node
            for node in graph.nodes
            if not node.writes or any(name in read or name not in once for name in node.writes)
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
