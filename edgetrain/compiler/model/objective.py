"""The forward graph of the output that the loss is taken of."""

from dataclasses import replace

from ...ir import Builder, Graph
from ...ops.model import Model
from ...ops.strides import permuted
from ..bind import Bound
from ..options import Options
from ..passes.autodiff import check_output
from ..passes.batch_norm import hold_statistics
from ..passes.verify import verify
from .trained import Choice


def choice_of(model: Model, options: Options) -> Choice:
    """Which parameters the options train."""
    return Choice(model, options.train, options.freeze, options.train_constants)


def forward_of(bound: Bound, options: Options, choice: Choice) -> tuple[Graph, str]:
    """The forward graph of the output that the loss is taken of, and that value."""
    output = check_output(bound.graph, bound.outputs, options.output)
    whole, output = _peeled(bound.graph, output, options)
    forward = only_output(whole, output)
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


def _peeled(graph: Graph, output: str, options: Options) -> tuple[Graph, str]:
    """What the loss absorbs (a Softmax before cross-entropy) is not run in training.

    One with a change of shape behind it becomes a view itself.
    """
    makers = {name: node for node in graph.nodes for name in node.writes}
    node = makers.get(output)
    while node is not None and node.op == "view":
        node = makers.get(node.inputs[0])
    if node is None or node.op not in options.loss.absorbs:
        return graph, output
    logits, name = node.inputs[0], node.outputs[0]
    if name == output:
        return graph, logits
    nodes = [replace(n, op="view", attrs={}) if n is node else n for n in graph.nodes]
    values = {**graph.values, name: replace(graph.values[name], view_of=logits)}
    return replace(graph, nodes=tuple(nodes), values=values), output
