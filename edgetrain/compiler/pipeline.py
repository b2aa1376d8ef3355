"""Model -> graphs of one microbatch: the list of passes, in order, each verified."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from ..errors import ModelError, UsageError
from ..ir import Builder, Graph, Value
from ..ops.bind import bind
from ..ops.model import Model
from ..sparse import Rewiring
from ..storage.csr import POOL, Layer
from . import fusion, slicing
from .autodiff import add_loss, check_output, training_graph
from .options import Options
from .precision import assign_storage, mark_derived
from .sparsify import sparsify
from .verify import verify
from .weights import chosen_weights


@dataclass(frozen=True)
class Graphs:
    """Training and evaluation graph of one microbatch, and what fills their persistent values.

    Attributes:
      layers: sparse weights, in pool order; `rewiring` moves them.
    """

    train: Graph
    evaluate: Graph
    output: str
    arrays: Mapping[str, np.ndarray]
    layers: tuple[Layer, ...] = ()
    rewiring: Rewiring | None = None


def build_graphs(model: Model, options: Options, microbatch: int) -> Graphs:
    """Run every pass.

    Raises:
      ModelError, UsageError: see bind and autodiff.
    """
    model = chosen_weights(model, options)
    bound = bind(model, microbatch, options.dims)
    output = check_output(bound.graph, bound.outputs, options.output)
    whole, output = _peeled(bound.graph, output, options)
    if whole.values[output].shape[:1] != (microbatch,):
        raise ModelError(
            f"output {output!r}: shape {list(whole.values[output].shape)} does not begin with the "
            f"batch ({microbatch}). Export it as [batch, ...], or choose another output."
        )
    forward = _only_output(whole, output)
    forward = fusion.absorb_transposes(forward)
    forward = fusion.absorb_activations(forward)
    forward = mark_derived(forward)
    trainable = _trainable(model, options)
    sparse = sparsify(forward, bound.arrays, options, trainable, model.aliases)
    forward = verify(sparse.graph)

    train = training_graph(
        forward, options.loss, output, lambda name: name == POOL or trainable(name)
    )
    for a_pass in (
        fusion.apply_in_readers,
        fusion.mask_relus,
        fusion.drop_views,
    ):
        train = verify(a_pass(train))
    cuts = slicing.choose(train)
    for a_pass in (
        lambda graph: slicing.slice_expansions(graph, cuts),
        lambda graph: assign_storage(graph, options.precision, options.model_memory),
    ):
        train = verify(a_pass(train))

    evaluate = with_loss(fusion.evaluation_graph(forward), options)
    for a_pass in (
        fusion.apply_in_readers,
        fusion.drop_views,
        lambda graph: slicing.slice_expansions(graph, cuts),
        lambda graph: assign_storage(graph, options.precision, options.model_memory),
    ):
        evaluate = verify(a_pass(evaluate))
    return Graphs(train, evaluate, output, sparse.arrays, sparse.layers, sparse.rewiring)


def with_loss(forward: Graph, options: Options) -> Graph:
    """Forward and loss, without backward."""
    builder = Builder(forward.values)
    builder.values["ctl"] = Value("ctl", (64,), "i64", "control")
    builder.nodes = list(forward.nodes)
    target = add_loss(builder, options.loss, forward.outputs[0])
    return builder.graph([*forward.inputs, target], forward.outputs)


def _only_output(graph: Graph, output: str) -> Graph:
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
    """Cross-entropy takes logits: a trailing Softmax or LogSoftmax is not run in training.

    One with a change of shape behind it becomes a view itself.
    """
    makers = {name: node for node in graph.nodes for name in node.writes}
    node = makers.get(output)
    while node is not None and node.op == "view":
        node = makers.get(node.inputs[0])
    wanted = {
        "cross_entropy": ("softmax", "log_softmax"), "bce_with_logits": ("sigmoid",), "mse": (),
    }[options.loss.kind]  # fmt: skip
    if node is None or node.op not in wanted:
        return graph, output
    logits, name = node.inputs[0], node.outputs[0]
    if name == output:
        return graph, logits
    nodes = [replace(n, op="view", attrs={}) if n is node else n for n in graph.nodes]
    values = {**graph.values, name: replace(graph.values[name], view_of=logits)}
    return replace(graph, nodes=tuple(nodes), values=values), output


def _trainable(model: Model, options: Options):
    def chosen(name: str) -> bool:
        names = [name, *(alias for alias, kept in model.aliases.items() if kept == name)]
        patterns = (*options.train, *options.train_constants)
        kept = any(fnmatchcase(n, pattern) for n in names for pattern in patterns)
        kept = kept or (not options.train and name not in model.frozen)
        return kept and not any(
            fnmatchcase(n, pattern) for n in names for pattern in options.freeze
        )

    for pattern in (*options.train, *options.freeze):
        every = (*model.parameters, *model.aliases)
        if not any(fnmatchcase(name, pattern) for name in every):
            raise UsageError(
                f"pattern {pattern!r}: it matches none of the {len(model.parameters)} parameters, "
                f"such as {', '.join(model.parameters[:3])}."
            )
    return chosen
