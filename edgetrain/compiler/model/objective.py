"""The forward graph of the output that the loss is taken of."""

from dataclasses import replace

from ...errors import ModelError
from ...ir import Builder, Graph, Node
from ...losses import Loss
from ...ops.model import Model
from ...ops.strides import permuted, prod
from ..bind import Bound
from ..options import Options
from ..passes.autodiff import check_output
from ..passes.batch_norm import hold_statistics
from ..passes.verify import verify
from .trained import Choice

GUARD = 1e-3  # a Clip of probabilities to [GUARD, 1 - GUARD] or wider guards a logarithm


def choice_of(model: Model, options: Options) -> Choice:
    """Which parameters the options train."""
    return Choice(model, options.train, options.freeze, options.train_constants)


def forward_of(bound: Bound, options: Options, choice: Choice) -> tuple[Graph, str]:
    """The forward graph of the output that the loss is taken of, and that value.

    Raises:
      ModelError: no input is among it.
    """
    output = check_output(bound.graph, bound.outputs, options.output)
    whole, output = without_absorbed(bound.graph, output, options.loss)
    forward = only_output(whole, output)
    if not forward.inputs:
        raise ModelError(
            f"output {output!r} does not depend on any input, so data cannot train it. Choose "
            "another output."
        )
    return verify(hold_statistics(forward, choice, options.freeze_bn)), output


def batch_first(graph: Graph, output: str, axis: int) -> tuple[Graph, str]:
    """The graph with its output's samples counted by axis 0, where the losses want them."""
    if not axis:
        return graph, output
    builder, value = Builder(graph.values, graph.nodes), graph.values[output]
    perm = [axis, *(k for k in range(len(value.shape)) if k != axis)]
    shape, moves = permuted(value.shape, perm)
    kept = [k for k in perm if value.shape[k] != 1]
    view = kept == sorted(kept)
    made = builder.value(
        f"{output}.batch_first", shape, value.dtype, value.role, output if view else ""
    )
    attrs = None if view else {"moves": moves, "fill": None}
    builder.node("view" if view else "copy", [output], [made], attrs, origin=output)
    return builder.graph(graph.inputs, [made]), made


def only_output(graph: Graph, output: str) -> Graph:
    """The part of the forward graph that the loss depends on, running statistics included."""
    wanted, nodes = {output}, []
    for node in reversed(graph.nodes):
        moving = node.op == "bn_running" and node.inputs[0] in wanted
        needed = moving or any(name in wanted for name in node.writes)
        if needed:
            nodes.append(node)
            wanted.update(node.reads)
    inputs = tuple(name for name in graph.inputs if name in wanted)
    return replace(graph.with_nodes(nodes[::-1]), outputs=(output,), inputs=inputs)


def without_absorbed(graph: Graph, output: str, loss: Loss) -> tuple[Graph, str]:
    """The graph whose output is what the loss takes: what it contains itself is not run.

    That is a Softmax before cross-entropy, or a Sigmoid before bce_with_logits, with changes of
    shape, transposes, slices, dropout or a guard against log(0) behind it. These become views, or
    work on the logits.

    Returns:
      The graph, and the value that takes the output's place.
    """
    makers = {name: node for node in graph.nodes for name in node.writes}
    behind: list[Node] = []
    node = makers.get(output)
    while node is not None and node.op not in loss.absorbs:
        if not _is_harmless(node, graph, loss):
            return graph, output
        behind.append(node)
        node = makers.get(node.inputs[0])
    if node is None or not _is_of_loss(node, behind[::-1], graph, output, loss):
        return graph, output
    if not behind:
        return graph, node.inputs[0]
    gone = {n.name for n in (node, *behind) if n.op not in ("view", "copy")}
    nodes = [replace(n, op="view", attrs={}) if n.name in gone else n for n in graph.nodes]
    values = dict(graph.values)
    for one in nodes:
        if one.name in gone:
            values[one.outputs[0]] = replace(values[one.outputs[0]], view_of=one.inputs[0])
    return replace(graph, nodes=tuple(nodes), values=values), output


def _is_harmless(node: Node, graph: Graph, loss: Loss) -> bool:
    """Whether an absorbed function may lie before it."""
    if node.op == "copy":
        kinds = {graph.values[name].dtype for name in (*node.reads, *node.writes)}
        return len(node.reads) == 1 and node.attrs.get("fill") is None and kinds == {"f32"}
    if node.op == "clip":
        low, high = node.attrs["a"], node.attrs["b"]
        return low <= GUARD and high >= 1 - GUARD
    return node.op in ("view", "dropout", *loss.passes)


def _is_of_loss(node: Node, behind: list[Node], graph: Graph, output: str, loss: Loss) -> bool:
    """Whether the loss's groups of classes are those that the function works on."""
    axis = node.attrs.get("axis")
    if axis is None:
        return True
    shape = graph.values[node.outputs[0]].shape
    n, step = shape[axis], prod(shape[axis + 1 :])
    for one in behind:
        if one.op == "copy":
            step = _moved(one, n, step)
        if not step:
            return False
    return loss.absorbs_over(graph.values[output].shape, n, step)


def _moved(copy: Node, n: int, step: int) -> int:
    """Distance of two classes behind a copy, 0 where it does not keep each sample's n together.

    Args:
      step: distance before it.
    """
    if len(copy.attrs["moves"]) != 1:
        return 0
    _, xo, yo, dims, xs, ys = copy.attrs["moves"][0]
    found, within = 0, xo % step
    for d, x, y in zip(dims, xs, ys, strict=True):
        if d == 1 or (x and x % (n * step) == 0):
            continue
        if x <= 0 or found and x >= step:
            return 0
        if x * d <= step:
            within += (d - 1) * x
        elif step % x or x * d % (n * step):
            return 0
        else:
            found, within = step // x * y, within + step - x
    return found if not yo and within < step and xo // step % n == 0 else 0
