"""Model -> graphs of one microbatch: lists of passes in order; each result is verified.

FORWARD prepares the model's graph, TRAIN adds loss and backward to it, EVALUATE only the loss. A
pass takes a PassState and returns a changed one. `--dump` (dump.py) writes the graph after each
pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import ModelError
from ..formats.csr import POOL, Layer
from ..ir import Builder, Graph, Value
from ..ops.loss import LOSS
from ..ops.model import Model
from ..optim import Optimizer
from ..sparse import Rewiring
from . import segments
from .attention import in_blocks
from .compilation import Compilation
from .model.groups import own_optimizers
from .model.objective import batch_first, forward_of
from .model.sparsify import Sparse, sparsify
from .model.trained import Choice
from .options import Options
from .passes import fusion, slicing
from .passes.autodiff import add_loss, add_target, loss_values, training_graph, with_losses
from .passes.batch_norm import stage_statistics
from .passes.convolutions import choose_convolutions
from .passes.frozen import weights_in_file
from .passes.fused_update import fuse_updates
from .passes.head import Head, add_sliced_loss, sliced_head
from .passes.precision import assign_storage, mark_derived
from .passes.saved import pack_saved
from .passes.touched_rows import by_touched_rows
from .passes.verify import verify
from .segments.emit import Cut


@dataclass(frozen=True)
class PassState:
    """The state passed from pass to pass.

    Attributes:
      graph: the graph being changed.
      output: the value that the loss is computed from; `uncut_output`: the same before cutting.
      loss_outputs: the output of each loss; `graph.outputs` contains each of them once, in the
        order of their first loss. `shapes` and `axes` have one entry per loss.
      axes: the batch axes of the file's outputs; here axis 0 counts samples.
      factor: turns a sum over the microbatch into its share of the minibatch's sum.
      arrays: of persistent values, by name.
      cut: recurrences in segments.
      eval_graph: the forward graph of evaluation, with the losses of segments if there are any.
      head: a last product whose logits are never stored whole.
      channels: maps of a frozen forward that are computed a few channels at a time.
      mapped_weights: weights that stay in the Program's file.
      group_optimizers: by parameter, where it differs from the run's optimizer.
    """

    compilation: Compilation
    microbatch: int
    factor: float
    graph: Graph
    output: str
    arrays: Mapping[str, np.ndarray]
    uncut_output: Value
    cut: Cut
    sparse: Sparse
    eval_graph: Graph
    axes: tuple[int, ...]
    loss_outputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    head: Head | None = None
    channels: Mapping[str, int] = field(default_factory=dict)
    mapped_weights: frozenset[str] = frozenset()
    group_optimizers: Mapping[str, Optimizer] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model with its chosen weights, from which the graph was bound."""
        return self.compilation.prepared.chosen

    @property
    def options(self) -> Options:
        return self.compilation.options

    @property
    def choice(self) -> Choice:
        """Which parameters are trained."""
        return self.compilation.prepared.choice

    @property
    def wanted(self) -> tuple[str, ...]:
        """Inputs with requested gradients."""
        return self.model.wanted

    def trained(self, name: str) -> bool:
        """Whether a parameter is trained."""
        return name == POOL or self.choice(name)


@dataclass(frozen=True, slots=True)
class Pass:
    """An entry in a list of passes: a name and a function."""

    name: str
    run: Callable[[PassState], PassState]


def _on_graph(change: Callable[..., Graph], *names: str) -> Callable[[PassState], PassState]:
    """A pass that changes only the graph, given other parts of the state."""
    return lambda state: replace(
        state, graph=change(state.graph, *(getattr(state, name) for name in names))
    )


def _scaled(state: PassState) -> PassState:
    """Scale the output so that a microbatch's sum becomes its share of the minibatch's."""
    if state.factor == 1.0:
        return state
    builder = Builder(state.graph.values, state.graph.nodes)
    value = state.graph.values[state.output]
    number = builder.value(f"{state.output}.factor", (), "f32", "constant")
    scaled = builder.value(f"{state.output}.scaled", value.shape)
    builder.node("mul", [state.output, number], [scaled], origin=state.output)
    graph = builder.graph(state.graph.inputs, [scaled])
    arrays = {**state.arrays, number: np.array(state.factor, np.float32)}
    return replace(
        state, graph=graph, output=scaled, arrays=arrays, uncut_output=graph.values[scaled]
    )


def _segmented(state: PassState) -> PassState:
    cut = segments.segmented(state.graph, state.options)
    return replace(state, graph=cut.graph, cut=cut)


def _sparsified(state: PassState) -> PassState:
    model = state.model
    sparse = sparsify(
        state.graph, state.arrays, state.options, state.choice, model.aliases, model.adapters
    )
    return replace(state, graph=sparse.graph, sparse=sparse)


def _head_sliced(state: PassState) -> PassState:
    if state.options.joined:
        return state
    head = sliced_head(state.graph, state.output, state.options)
    return replace(state, graph=head.forward, head=head) if head else state


def _losses_by_segments(state: PassState) -> PassState:
    if state.options.joined:
        order = [*dict.fromkeys(state.loss_outputs)]
        outputs = [state.graph.outputs[order.index(name)] for name in state.loss_outputs]
        graph = with_losses(state.graph, state.options.terms, outputs, state.microbatch)
        return replace(state, graph=graph, eval_graph=graph)
    graph, eval_graph = segments.graphs_with_losses(
        state.graph, state.cut, state.uncut_output, state.options.loss
    )
    return replace(state, graph=graph, eval_graph=eval_graph)


def _interleaved(graph: Graph, options: Options) -> Graph:
    return segments.interleaved(graph) if options.bptt else graph


def _relus_masked(graph: Graph, options: Options) -> Graph:
    return fusion.mask_relus(graph, every=options.saved is not None)


def _channels_chosen(state: PassState) -> PassState:
    mapped_weights = weights_in_file(state.graph, state.options)
    return replace(state, channels=slicing.choose(state.graph), mapped_weights=mapped_weights)


def _saved_packed(graph: Graph, options: Options) -> Graph:
    return pack_saved(graph, options.saved)


def with_loss(graph: Graph, options: Options, microbatch: int, head: Head | None = None) -> Graph:
    """Forward and loss, without backward."""
    if any(node.op == LOSS.name for node in graph.nodes):
        return graph
    builder = Builder(graph.values, graph.nodes)
    builder.values["ctl"] = Value("ctl", (64,), "i64", "control")
    if head is not None:
        staged, arrays = add_target(builder, options.loss, head.logits, microbatch)
        values = add_sliced_loss(builder, head, graph.outputs[0], arrays, options, evaluate=True)
        return builder.graph([*graph.inputs, *staged], [values["best"]])
    staged = add_loss(builder, options.loss, graph.outputs[0], microbatch)
    return builder.graph([*graph.inputs, *staged], graph.outputs)


FORWARD = (
    Pass("scale", _scaled),
    Pass("absorb_transposes", _on_graph(fusion.absorb_transposes)),
    Pass("absorb_activations", _on_graph(fusion.absorb_activations)),
    Pass("segment", _segmented),
    Pass("attention_in_blocks", _on_graph(in_blocks, "arrays", "options")),
    Pass("mark_derived", _on_graph(mark_derived)),
    Pass("sparsify", _sparsified),
    Pass("slice_head", _head_sliced),
    Pass("loss_by_segments", _losses_by_segments),
)
TRAIN = (
    Pass(
        "differentiate",
        _on_graph(training_graph, "options", "output", "trained", "microbatch", "head", "wanted"),
    ),
    Pass("interleave_segments", _on_graph(_interleaved, "options")),
    Pass("touched_rows", _on_graph(by_touched_rows, "options", "microbatch")),
    Pass("stage_statistics", _on_graph(stage_statistics)),
    Pass("apply_in_readers", _on_graph(fusion.apply_in_readers)),
    Pass("mask_relus", _on_graph(_relus_masked, "options")),
    Pass("drop_views", _on_graph(fusion.drop_views)),
    Pass("choose_convolutions", _on_graph(choose_convolutions, "options")),
    Pass("choose_channels", _channels_chosen),
    Pass("slice_expansions", _on_graph(slicing.slice_expansions, "channels")),
    Pass("assign_storage", _on_graph(assign_storage, "options", "mapped_weights")),
    Pass("pack_saved", _on_graph(_saved_packed, "options")),
    Pass("fuse_updates", _on_graph(fuse_updates, "options", "group_optimizers")),
)
EVALUATE = (
    Pass("evaluation", _on_graph(fusion.evaluation_graph)),
    Pass("loss", _on_graph(with_loss, "options", "microbatch", "head")),
    Pass("apply_in_readers", _on_graph(fusion.apply_in_readers)),
    Pass("drop_views", _on_graph(fusion.drop_views)),
    Pass("choose_convolutions", _on_graph(choose_convolutions, "options")),
    Pass("slice_expansions", _on_graph(slicing.slice_expansions, "channels")),
    Pass("assign_storage", _on_graph(assign_storage, "options", "mapped_weights")),
)
Watch = Callable[[str, Graph], None]


def _unwatched(name: str, graph: Graph) -> None:
    pass


def run(
    passes: tuple[Pass, ...], state: PassState, watch: Watch = _unwatched, of: str = ""
) -> PassState:
    """Run a list of passes; `watch` is called with "list-pass" and the graph after each pass."""
    for item in passes:
        before, state = state.graph, item.run(state)
        if state.graph is not before:
            verify(state.graph)
        watch(f"{of}-{item.name}", state.graph)
    return state


@dataclass(frozen=True)
class Graphs:
    """Training and evaluation graph of one microbatch, and their persistent arrays.

    Attributes:
      layers: sparse weights, in pool order; `rewiring` moves their nonzeros.
      shape: of the model's output, which need not be a value of the graphs: `evaluate` lacks it if
        it is too large to be stored whole.
      sliced: whether its logits are never stored whole (compiler/passes/head.py).
      axis: the batch axis of the output in the file; in `shape` it is axis 0.
      group_optimizers: by parameter, where it differs from the run's optimizer.
      dense: weights that stay dense, and why; empty if no density was requested.
      outputs: staged value of targets -> `shape` and `axis` of their output.
    """

    train: Graph
    evaluate: Graph
    shape: tuple[int, ...]
    arrays: Mapping[str, np.ndarray]
    layers: tuple[Layer, ...] = ()
    rewiring: Rewiring | None = None
    dense: Mapping[str, str] = field(default_factory=dict)
    sliced: bool = False
    axis: int = 0
    group_optimizers: Mapping[str, Optimizer] = field(default_factory=dict)
    outputs: Mapping[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)


def build_graphs(compilation: Compilation, microbatch: int, watch: Watch = _unwatched) -> Graphs:
    """Run all passes.

    Raises:
      ModelError, UsageError: see bind and autodiff.
      UsageError: a microbatch was given, but samples aren't independent.
    """
    options, bound = compilation.options, _bound(compilation, microbatch)
    watch("forward-bind", bound.graph)
    shape = bound.uncut_output.shape
    state = run(FORWARD, bound, watch, "forward")
    optimizers = own_optimizers(state.model, options, state.choice, state.sparse.layers)
    state = replace(state, group_optimizers=optimizers)
    train = run(TRAIN, state, watch, "train")
    evaluate = run(EVALUATE, replace(train, graph=train.eval_graph), watch, "evaluate")
    sparse = state.sparse
    outputs = zip(bound.shapes, bound.axes, strict=True)
    return Graphs(
        train.graph,
        evaluate.graph,
        shape,
        {**sparse.arrays, **loss_values(options.terms, bound.shapes)},
        sparse.layers,
        sparse.rewiring,
        sparse.dense,
        sliced=state.head is not None,
        axis=bound.axes[0],
        group_optimizers=state.group_optimizers,
        outputs=dict(zip((term.target for term in options.terms), outputs, strict=True)),
    )


def _bound(compilation: Compilation, microbatch: int) -> PassState:
    """The initial state: dimensions are integers, constants are folded."""
    options, prepared = compilation.options, compilation.prepared
    samples, factor = prepared.samples, 1.0
    if microbatch != options.minibatch:
        factor = samples.factor(options.minibatch, microbatch)
    axes, bound = prepared.axes, prepared.bind(microbatch)
    graph, declared = forward_of(bound, prepared.options, prepared.choice)
    outputs: list[str] = []
    for term, output, axis in zip(options.terms, declared, axes, strict=True):
        shape = graph.values[output].shape
        if output in graph.outputs and not term.loss.takes_mean(shape):
            _check_batch(output, shape, axis, microbatch)
            graph, output = batch_first(graph, output, axis)
        elif output not in graph.outputs:  # already changed for an earlier loss
            output = outputs[declared.index(output)]
        outputs.append(output)
    return PassState(
        compilation,
        microbatch,
        factor,
        graph,
        outputs[0],
        bound.arrays,
        uncut_output=graph.values[outputs[0]],
        cut=Cut(graph),
        sparse=Sparse(graph, bound.arrays),
        eval_graph=graph,
        axes=axes,
        loss_outputs=tuple(outputs),
        shapes=tuple(graph.values[name].shape for name in outputs),
    )


def _check_batch(output: str, shape: tuple[int, ...], axis: int, microbatch: int) -> None:
    if shape[axis : axis + 1] != (microbatch,):
        raise ModelError(
            f"output {output!r}: shape {list(shape)} has no batch axis ({microbatch}). Export it "
            "with one, such as [batch, ...], or choose another output."
        )


def unfused_training_graph(compilation: Compilation, microbatch: int) -> Graph:
    """Forward, loss and backward node by node, dense and in float32, without fusions."""
    prepared = compilation.prepared
    axis, bound = prepared.samples.axis, prepared.bind(microbatch)
    forward, (output, *_) = forward_of(bound, prepared.options, prepared.choice)
    forward, output = batch_first(forward, output, axis)
    forward = verify(fusion.absorb_transposes(forward))
    options, choice = compilation.options, prepared.choice
    return verify(training_graph(forward, options, output, choice, microbatch))
