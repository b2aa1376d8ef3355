"""Model -> graphs of one microbatch: the list of passes, in order, each verified."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import ModelError
from ..formats.csr import POOL, Layer
from ..ir import Builder, Graph, Value
from ..ops.model import Model
from ..sparse import Rewiring
from . import fusion, segments, slicing
from .attention import in_blocks
from .autodiff import add_loss, add_target, array_name, check_output, training_graph
from .batch_norm import hold_statistics, stage_statistics
from .bind import Bound, bind
from .choice import Choice
from .frozen import frozen_names
from .head import Head, add_sliced_loss, sliced_head
from .options import Options
from .precision import assign_storage, mark_derived
from .saved import pack_saved
from .sparsify import sparsify
from .touched import by_touched_rows
from .verify import verify
from .weights import chosen_weights


@dataclass(frozen=True)
class Graphs:
    """Training and evaluation graph of one microbatch, and what fills their persistent values.

    Attributes:
      layers: sparse weights, in pool order; `rewiring` moves them.
      shape: of the model's output, which need not be a value of the graphs; `evaluate` has none
        where it is too large to be kept whole.
      sliced: whether its logits are never whole (compiler/head.py).
      dense: weights that stay dense, and why; empty where no density was asked for.
    """

    train: Graph
    evaluate: Graph
    shape: tuple[int, ...]
    arrays: Mapping[str, np.ndarray]
    layers: tuple[Layer, ...] = ()
    rewiring: Rewiring | None = None
    dense: Mapping[str, str] = field(default_factory=dict)
    sliced: bool = False


def build_graphs(model: Model, options: Options, microbatch: int) -> Graphs:
    """Run every pass.

    Raises:
      ModelError, UsageError: see bind and autodiff.
    """
    model = chosen_weights(model, options)
    bound = bind(model, microbatch, options.dims)
    choice = _choice(model, options)
    forward, output = _forward(bound, options, choice)
    shape = forward.values[output].shape
    if not options.loss.takes_mean(shape):
        _check_batch(output, shape, microbatch)
    forward = fusion.absorb_transposes(forward)
    forward = fusion.absorb_activations(forward)
    cut = segments.segmented(forward, options)
    forward = verify(in_blocks(cut.graph, bound.arrays, options))
    forward = mark_derived(forward)
    sparse = sparsify(forward, bound.arrays, options, choice, model.aliases, model.adapters)
    head = sliced_head(verify(sparse.graph), output, options)
    forward = verify(head.forward) if head else sparse.graph

    def trained(name: str) -> bool:
        return name == POOL or choice(name)

    forward, judged = segments.judged(forward, cut, bound.graph.values[output], options.loss)
    train = training_graph(forward, options, output, trained, microbatch, head)
    for a_pass in (
        lambda graph: segments.interleaved(graph) if options.bptt else graph,
        lambda graph: by_touched_rows(graph, options, microbatch),
        stage_statistics,
        fusion.apply_in_readers,
        lambda graph: fusion.mask_relus(graph, every=options.saved is not None),
        fusion.drop_views,
    ):
        train = verify(a_pass(train))
    cuts = slicing.choose(train)
    still = frozen_names(train, options)
    for a_pass in (
        lambda graph: slicing.slice_expansions(graph, cuts),
        lambda graph: assign_storage(graph, options, still),
        lambda graph: pack_saved(graph, options.saved),
    ):
        train = verify(a_pass(train))

    evaluate = with_loss(fusion.evaluation_graph(judged), options, microbatch, head)
    for a_pass in (
        fusion.apply_in_readers,
        fusion.drop_views,
        lambda graph: slicing.slice_expansions(graph, cuts),
        lambda graph: assign_storage(graph, options, still),
    ):
        evaluate = verify(a_pass(evaluate))
    arrays = dict(sparse.arrays)
    arrays |= {array_name(name): array for name, array in options.loss.arrays(shape).items()}
    pool = sparse.layers, sparse.rewiring, sparse.dense
    return Graphs(train, evaluate, shape, arrays, *pool, head is not None)


def _check_batch(output: str, shape: tuple[int, ...], microbatch: int) -> None:
    if shape[:1] != (microbatch,):
        raise ModelError(
            f"output {output!r}: shape {list(shape)} does not begin with "
            f"the batch ({microbatch}). Export it as [batch, ...], or choose another output."
        )


def unfused_training_graph(model: Model, options: Options, microbatch: int) -> Graph:
    """Forward, loss and backward node by node, dense and in float32: nothing is fused."""
    model = chosen_weights(model, options)
    choice = _choice(model, options)
    forward, output = _forward(bind(model, microbatch, options.dims), options, choice)
    forward = verify(fusion.absorb_transposes(forward))
    return verify(training_graph(forward, options, output, choice, microbatch))


def _choice(model: Model, options: Options) -> Choice:
    return Choice(model, options.train, options.freeze, options.train_constants)


def mixes_samples(model: Model, options: Options) -> bool:
    """Whether a batch-norm takes the statistics of its microbatch, so that its size matters."""
    if not any(node.op_type == "BatchNormalization" for node in model.nodes):
        return False
    model = chosen_weights(model, options)
    choice = _choice(model, options)
    if options.freeze_bn is None and choice.everything:
        return True
    bound = bind(model, options.minibatch, options.dims)
    forward, _ = _forward(bound, options, choice)
    return any(node.op == "bn_running" for node in forward.nodes)


def _forward(bound: Bound, options: Options, choice: Choice) -> tuple[Graph, str]:
    """The forward graph of the output that the loss is taken of, and that value."""
    output = check_output(bound.graph, bound.outputs, options.output)
    whole, output = _peeled(bound.graph, output, options)
    forward = only_output(whole, output)
    return verify(hold_statistics(forward, choice, options.freeze_bn)), output


def with_loss(forward: Graph, options: Options, microbatch: int, head: Head | None = None) -> Graph:
    """Forward and loss, without backward."""
    if any(node.op == "loss" for node in forward.nodes):
        return forward
    builder = Builder(forward.values, forward.nodes)
    builder.values["ctl"] = Value("ctl", (64,), "i64", "control")
    if head is not None:
        staged, arrays = add_target(builder, options.loss, head.logits, microbatch)
        found = add_sliced_loss(builder, head, forward.outputs[0], arrays, options, evaluate=True)
        return builder.graph([*forward.inputs, *staged], [found["best"]])
    staged = add_loss(builder, options.loss, forward.outputs[0], microbatch)
    return builder.graph([*forward.inputs, *staged], forward.outputs)


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
