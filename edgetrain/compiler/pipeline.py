"""Model -> graphs of one microbatch: the list of passes, in order, each verified."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import ModelError
from ..formats.csr import POOL, Layer
from ..ir import Builder, Graph, Value
from ..ops.model import Model
from ..sparse import Rewiring
from . import fusion, segments, slicing
from .attention import in_blocks
from .autodiff import add_loss, add_target, array_name, training_graph
from .batch_norm import stage_statistics
from .bind import bind
from .frozen import frozen_names
from .head import Head, add_sliced_loss, sliced_head
from .objective import choice_of, forward_of
from .options import Options
from .precision import assign_storage, mark_derived
from .samples import samples_of
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
      UsageError: a microbatch, and samples that are not independent.
    """
    factor = 1.0
    if microbatch != options.minibatch:
        factor = samples_of(model, options).factor(options.minibatch, microbatch)
    model = chosen_weights(model, options)
    bound = bind(model, microbatch, options.dims)
    choice = choice_of(model, options)
    forward, output = forward_of(bound, options, choice)
    shape = forward.values[output].shape
    if not options.loss.takes_mean(shape):
        _check_batch(output, shape, microbatch)
    forward, output, known = _scaled(forward, output, factor, bound.arrays)
    whole = forward.values[output]
    forward = fusion.absorb_transposes(forward)
    forward = fusion.absorb_activations(forward)
    cut = segments.segmented(forward, options)
    forward = verify(in_blocks(cut.graph, known, options))
    forward = mark_derived(forward)
    sparse = sparsify(forward, known, options, choice, model.aliases, model.adapters)
    head = sliced_head(verify(sparse.graph), output, options)
    forward = verify(head.forward) if head else sparse.graph

    def trained(name: str) -> bool:
        return name == POOL or choice(name)

    forward, judged = segments.judged(forward, cut, whole, options.loss)
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
    evaluate = _evaluation(evaluate, options, cuts, still)
    arrays = dict(sparse.arrays)
    arrays |= {array_name(name): array for name, array in options.loss.arrays(shape).items()}
    pool = sparse.layers, sparse.rewiring, sparse.dense
    return Graphs(train, evaluate, shape, arrays, *pool, head is not None)


def _evaluation(
    graph: Graph, options: Options, cuts: Mapping[str, int], still: frozenset[str]
) -> Graph:
    """The passes of evaluation, which follow forward and loss."""
    for a_pass in (
        fusion.apply_in_readers,
        fusion.drop_views,
        lambda graph: slicing.slice_expansions(graph, cuts),
        lambda graph: assign_storage(graph, options, still),
    ):
        graph = verify(a_pass(graph))
    return graph


def _scaled(
    forward: Graph, output: str, factor: float, arrays: Mapping[str, np.ndarray]
) -> tuple[Graph, str, Mapping[str, np.ndarray]]:
    """The output times a number: a sum over a microbatch as its share of the minibatch's."""
    if factor == 1.0:
        return forward, output, arrays
    builder = Builder(forward.values, forward.nodes)
    value = forward.values[output]
    number = builder.value(f"{output}.factor", (), "f32", "constant")
    scaled = builder.value(f"{output}.scaled", value.shape)
    builder.node("mul", [output, number], [scaled], origin=output)
    graph = verify(builder.graph(forward.inputs, [scaled]))
    return graph, scaled, {**arrays, number: np.array(factor, np.float32)}


def _check_batch(output: str, shape: tuple[int, ...], microbatch: int) -> None:
    if shape[:1] != (microbatch,):
        raise ModelError(
            f"output {output!r}: shape {list(shape)} does not begin with "
            f"the batch ({microbatch}). Export it as [batch, ...], or choose another output."
        )


def unfused_training_graph(model: Model, options: Options, microbatch: int) -> Graph:
    """Forward, loss and backward node by node, dense and in float32: nothing is fused."""
    model = chosen_weights(model, options)
    choice = choice_of(model, options)
    forward, output = forward_of(bind(model, microbatch, options.dims), options, choice)
    forward = verify(fusion.absorb_transposes(forward))
    return verify(training_graph(forward, options, output, choice, microbatch))


def mixes_samples(model: Model, options: Options) -> bool:
    """Whether a batch-norm takes the statistics of its microbatch, so that its size matters."""
    if not any(node.op_type == "BatchNormalization" for node in model.nodes):
        return False
    model = chosen_weights(model, options)
    choice = choice_of(model, options)
    if options.freeze_bn is None and choice.everything:
        return True
    bound = bind(model, options.minibatch, options.dims)
    forward, _ = forward_of(bound, options, choice)
    return any(node.op == "bn_running" for node in forward.nodes)


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
