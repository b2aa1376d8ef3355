"""Finds torch names of weights that an exporter renamed, and constants that repeat a parameter."""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from ..errors import ModelError
from ..ops.model import Model
from ..ops.onnx_ops import OnnxNode, onnx_op
from .branches import subgraphs
from .origin import Origin, claim, is_anonymous, scope_of
from .usage import Usage

MOST_NAME = 256  # bytes of UTF-8
_ALIAS = 128  # bytes to keep of a longer name


def check_names(model: Model) -> None:
    """Refuse names too long for tables, headers and checkpoints.

    Raises:
      ModelError: the name of a weight, input or output has more than MOST_NAME bytes.
    """
    weights = (*model.parameters, *model.buffers, *model.aliases)
    values = (*(spec.name for spec in model.inputs), *model.outputs)
    for kind, names in (("parameter", weights), ("input or output", values)):
        for name in names:
            nbytes = len(name.encode("utf-8", "surrogatepass"))
            if nbytes > MOST_NAME:
                raise ModelError(
                    f"{kind} {name[:40]!r}...: the name has {nbytes:,} bytes; expected at most "
                    f"{MOST_NAME}. Export the model with a shorter name."
                )


def aliases_of(names: Sequence[str], taken: Iterable[str]) -> dict[str, str]:
    """Weight names of more than MOST_NAME bytes -> unused short names.

    tf2onnx joins the names of fused ops with semicolons; the first is kept.
    """
    long = [n for n in names if len(n.encode("utf-8", "surrogatepass")) > MOST_NAME]
    known, result = {*names, *taken} if long else set(), {}
    for name in long:
        first = name.partition(";")[0].encode("utf-8", "ignore")[:_ALIAS].decode("utf-8", "ignore")
        alias, count = first or "weight", 1
        while alias in known:
            count += 1
            alias = f"{first or 'weight'}~{count}"
        known.add(alias)
        result[name] = alias
    return result


def tied_copies(
    parameters: Sequence[str], arrays: Mapping[str, np.ndarray], usage: Usage
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Anonymous parameters equal to an embedding table or its transpose: name -> (table, axes).

    An exporter folds an output layer that shares the embedding's weight into its own constant;
    trained separately, the two would diverge.
    """
    known: dict[tuple, tuple[str, tuple[int, ...]]] = {}
    for name in parameters:
        array = arrays[name]
        if name in usage.tables and array.ndim == 2 and np.any(array != array.flat[0]):
            known |= {_digest(array.transpose(axes)): (name, axes) for axes in ((1, 0), (0, 1))}
    result = {}
    for name in parameters:
        if is_anonymous(name) and name not in usage.tables:
            table, axes = known.get(_digest(arrays[name]), ("", ()))
            if table and np.array_equal(arrays[name], arrays[table].transpose(axes)):
                result[name] = (table, axes)
    return result


def _digest(array: np.ndarray) -> tuple:
    return array.shape, zlib.crc32(array.tobytes())


def derived_names(
    proto: onnx.ModelProto,
    parameters: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    usage: Usage,
    origin: Origin,
) -> dict[str, str]:
    """Name in the file -> torch name, if the node that uses a weight reveals it.

    Sources, in this order: the torch call of the node, the bias added after it, the module the
    node was traced in. Ambiguous names are not used; weights left without a name are named after
    their node, such as `encoder.MatMul_1.weight`.
    """
    unnamed = [
        name
        for name in parameters
        if name in usage.readers
        and name not in origin.others
        and (name not in origin.parameters if origin.parameters else is_anonymous(name))
    ]
    if not unnamed:
        return {}
    # Nodes without a name are named as in decode.py.
    nodes = {n.name or f"{n.op_type}_{k}": n for k, n in enumerate(proto.graph.node)}
    taken = {*arrays, *(name for node in proto.graph.node for name in node.output)}
    taken.update(value.name for value in proto.graph.input)
    inside = {name for node in proto.graph.node for name in _used_inside(node)}
    biases = _biases(proto, arrays)
    layers: Counter[tuple[str, str]] = Counter()
    numbers = {}
    for node in proto.graph.node:
        if onnx_op(node.op_type).states:
            key = (node.op_type, scope_of(node))
            numbers[node.name] = layers[key]
            layers[key] += 1
    result: dict[str, str] = {}
    for name in unnamed:
        by, index = usage.readers[name]
        if by not in nodes or name in inside:
            continue
        node = nodes[by]
        result[name] = _claimed(node, index, origin) or _by_place(
            node, index, biases, numbers.get(node.name, 0)
        )
    counts = Counter(result.values())
    sure = {n: to for n, to in result.items() if to and counts[to] == 1 and to not in taken}
    taken.update(sure.values())
    for name in result:
        if name not in sure and is_anonymous(name):
            by, index = usage.readers[name]
            near = _by_node(nodes[by], by, index)
            if near not in taken:
                sure[name] = near
                taken.add(near)
    return {name: sure[name] for name in parameters if name in sure}


def _by_node(node: onnx.NodeProto, name: str, index: int) -> str:
    """A name from the node's name, its module and the kind of weight."""
    scope, own = scope_of(node), name.rpartition("/")[2]
    kind = onnx_op(node.op_type).names.get(index, f"input{index}")
    return ".".join(filter(None, (scope, own, kind)))


def _claimed(node: onnx.NodeProto, index: int, origin: Origin) -> str:
    """The parameter at this position of the node's torch call."""
    names = claim(node, index, origin) if origin.arguments else None
    return names[0] if names and len(names) == 1 else ""


def _by_place(node: onnx.NodeProto, index: int, biases: Mapping[str, str], layer: int) -> str:
    op, scope = onnx_op(node.op_type), scope_of(node)
    kind = op.names.get(index, "")
    if op.states and kind:
        return f"{scope}.{kind}_l{layer}" if scope else ""
    bias = biases.get(node.output[0], "")
    if kind == "weight" and bias:
        return f"{bias.removesuffix('bias')}weight"
    return f"{scope}.{kind}" if scope and kind else ""


def _biases(proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Result of a product -> the named bias added to it."""
    result: dict[str, str] = {}
    for node in proto.graph.node:
        named = [n for n in node.input if n in arrays and n.endswith("bias")]
        if len(named) == 1 and not is_anonymous(named[0]):
            results = node.input if onnx_op(node.op_type).adds else node.output
            result |= dict.fromkeys(results, named[0])
    return result


def _used_inside(node: onnx.NodeProto) -> list[str]:
    """Names read by the branches of a node."""
    return [
        name
        for graph in subgraphs(node)
        for inner in graph.node
        for name in (*inner.input, *_used_inside(inner))
    ]


def renamed(nodes: Sequence[OnnxNode], names: Mapping[str, str]) -> list[OnnxNode]:
    """The nodes with renamed inputs."""
    return [
        OnnxNode(
            n.name,
            n.op_type,
            tuple(names.get(i, i) for i in n.inputs),
            n.outputs,
            n.attrs,
            n.domain,
        )
        if any(i in names for i in n.inputs)
        else n
        for n in nodes
    ]
