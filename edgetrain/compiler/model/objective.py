"""The forward graph up to the outputs that losses are computed from."""

from collections.abc import Sequence
from dataclasses import replace
from math import log

from ...errors import ModelError, UsageError
from ...formats import FP32
from ...ir import Builder, Graph, Node
from ...losses import Loss
from ...losses.terms import Term
from ...ops.model import Model
from ...ops.registry import op, structure
from ...ops.strides import permuted, prod
from ...ops.structure import Structure
from ..bind import Bound
from ..passes.autodiff import check_output
from ..passes.batch_norm import hold_statistics
from ..passes.verify import verify
from .model_options import ModelOptions
from .trained import Choice

_CLIPS = ("clip", "clamp")
GUARD = 1e-3  # a Clip of probabilities to [GUARD, 1 - GUARD] or wider guards a logarithm


def choice_of(model: Model, options: ModelOptions) -> Choice:
    """Which parameters the options train."""
    return Choice(model, options.train, options.freeze, options.train_constants)


def forward_of(
    bound: Bound, options: ModelOptions, choice: Choice
) -> tuple[Graph, tuple[str, ...]]:
    """The forward graph of the outputs that losses read, and the value that each loss reads.

    Raises:
      ModelError: it has no input.
    """
    graph, outputs = bound.graph, []  # type: Graph, list[str]
    terms = options.terms
    for term in terms:
        output = check_output(bound.graph, bound.outputs, term.output)
        changed, taken = without_absorbed(graph, output, term.loss)
        beside = [other.output for other in terms if other != term]
        others = [check_output(bound.graph, bound.outputs, name) for name in beside]
        if changed is not graph and others:
            _check_apart(graph, changed, others, term)
        graph = changed
        outputs.append(taken)
    _check_own(terms, outputs)
    forward = only_output(graph, *outputs)
    if not forward.inputs:
        raise ModelError(
            f"output {outputs[0]!r} does not depend on any input, so data cannot train it. Choose "
            "another output."
        )
    return verify(hold_statistics(forward, choice, options.freeze_bn)), tuple(outputs)


def _check_own(terms: Sequence[Term], outputs: Sequence[str]) -> None:
    """Check that each output has one value for all its losses, and that no two outputs share one.

    Raises:
      UsageError: two losses see one output differently, or two outputs are one value.
    """
    of_name: dict[str | None, str] = {}
    for term, value in zip(terms, outputs, strict=True):
        if of_name.setdefault(term.output, value) != value:
            raise UsageError(
                f"losses: {term.loss.name} reads output {term.output!r} as it is, another loss "
                "before its activation. Give them two outputs."
            )
    twice = [name for name, value in of_name.items() if [*of_name.values()].count(value) > 1]
    if twice:
        raise UsageError(
            f"losses: outputs {twice[0]!r} and {twice[1]!r} are the same value. Give both losses "
            "to one of them, as a list."
        )


def _check_apart(graph: Graph, changed: Graph, others: list[str], term: Term) -> None:
    """Check that no other loss reads a node that a loss contains and that is therefore not run.

    Raises:
      UsageError: another loss reads such a node.
    """
    gone = {n.name for n, o in zip(graph.nodes, changed.nodes, strict=True) if n.op != o.op}
    read = [node.name for node in only_output(graph, *others).nodes if node.name in gone]
    if read:
        raise UsageError(
            f"losses: {term.loss.name} of output {term.output!r} replaces node {read[0]!r}, but "
            "another loss reads that node. Use an output before it."
        )


def batch_first(graph: Graph, output: str, axis: int) -> tuple[Graph, str]:
    """The graph with the output's samples on axis 0, as losses expect."""
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
    outputs = [made if name == output else name for name in graph.outputs]
    return builder.graph(graph.inputs, outputs), made


def only_output(graph: Graph, *outputs: str) -> Graph:
    """The part of the forward graph that losses depend on, including running statistics."""
    wanted, nodes = {*outputs}, []
    for node in reversed(graph.nodes):
        moving = not op(node.op).recompute and node.inputs[0] in wanted
        needed = moving or any(name in wanted for name in node.writes)
        if needed:
            nodes.append(node)
            wanted.update(node.reads)
    inputs = tuple(name for name in graph.inputs if name in wanted)
    outputs = tuple(dict.fromkeys(outputs))
    return replace(graph.with_nodes(nodes[::-1]), outputs=outputs, inputs=inputs)


def without_absorbed(graph: Graph, output: str, loss: Loss) -> tuple[Graph, str]:
    """The graph without a final function that the loss already contains.

    This is a Softmax before cross-entropy, or a Sigmoid before bce_with_logits, even if followed by
    reshapes, transposes, slices, dropout or a guard against log(0). These become views, or are
    applied to the logits.

    Returns:
      The graph, and its new output.
    """
    makers = {name: node for node in graph.nodes for name in node.writes}
    behind: list[Node] = []
    node, absorbed = makers.get(output), loss.absorbed(graph.values[output].shape)
    while node is not None and node.op not in absorbed:
        if not _is_harmless(node, graph, loss):
            return graph, output
        behind.append(node)
        node = makers.get(node.inputs[0])
    if node is None or not _is_of_loss(node, behind[::-1], graph, output, loss):
        return graph, output
    if not _only_guards(op(node.op).logarithms, behind[::-1], loss):
        return graph, output
    if not behind:
        return graph, node.inputs[0]
    gone = {n.name for n in (node, *behind) if structure(n) not in (Structure.VIEW, Structure.WALK)}
    nodes = [replace(n, op="view", attrs={}) if n.name in gone else n for n in graph.nodes]
    values = dict(graph.values)
    for item in nodes:
        if item.name in gone:
            values[item.outputs[0]] = replace(values[item.outputs[0]], view_of=item.inputs[0])
    return replace(graph, nodes=tuple(nodes), values=values), output


def _is_harmless(node: Node, graph: Graph, loss: Loss) -> bool:
    """Whether an absorbed function may precede this node."""
    if structure(node) is Structure.WALK:
        kinds = {graph.values[name].dtype for name in (*node.reads, *node.writes)}
        return len(node.reads) == 1 and node.attrs.get("fill") is None and kinds == {FP32.name}
    return structure(node) is Structure.VIEW or node.op in (*_CLIPS, "dropout", *loss.passes)


def _only_guards(logarithms: bool, behind: Sequence[Node], loss: Loss) -> bool:
    """Whether clips only guard a logarithm, which is taken once at most.

    Args:
      logarithms: whether the absorbed function's output is logarithms of probabilities.
      behind: the nodes after it.
    """
    for node in behind:
        if node.op in loss.passes:
            if logarithms:
                return False
            logarithms = True
        elif node.op in _CLIPS:
            ends = (log(GUARD), log(1 - GUARD)) if logarithms else (GUARD, 1 - GUARD)
            if not (node.attrs["a"] <= ends[0] and node.attrs["b"] >= ends[1]):
                return False
    return True


def _is_of_loss(node: Node, behind: list[Node], graph: Graph, output: str, loss: Loss) -> bool:
    """Whether the function normalizes the same groups of classes as the loss."""
    axis = node.attrs.get("axis")
    if axis is None:
        return True
    shape = graph.values[node.outputs[0]].shape
    n, step = shape[axis], prod(shape[axis + 1 :])
    for item in behind:
        if structure(item) is Structure.WALK:
            step = _moved(item, n, step)
        if not step:
            return False
    return loss.absorbs_over(graph.values[output].shape, n, step)


def _moved(copy: Node, n: int, step: int) -> int:
    """Distance of two classes after a copy; 0 if it doesn't keep each sample's n classes together.

    Args:
      step: distance before the copy.
    """
    if len(copy.attrs["moves"]) != 1:
        return 0
    _, xo, yo, dims, xs, ys = copy.attrs["moves"][0]
    result, within = 0, xo % step
    for d, x, y in zip(dims, xs, ys, strict=True):
        if d == 1 or (x and x % (n * step) == 0):
            continue
        if x <= 0 or result and x >= step:
            return 0
        if x * d <= step:
            within += (d - 1) * x
        elif step % x or x * d % (n * step):
            return 0
        else:
            result, within = step // x * y, within + step - x
    return result if not yo and within < step and xo // step % n == 0 else 0
