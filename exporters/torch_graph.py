"""Simplifies the unoptimised graph written by torch, without losing the ability to train it.

onnxscript's optimizer folds everything it can compute, including parameters. Therefore parameters
and buffers are graph inputs while it runs: nothing derived from them can be folded, transposed or
merged. Nodes that draw random numbers temporarily get distinct seeds, because its elimination of
common subexpressions would give two dropouts of one value the same mask.
"""

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes import common

from edgetrain.errors import ModelError
from edgetrain.exporters import torch_detach
from edgetrain.exporters.torch_lrn import fuse_local_response_norm
from edgetrain.exporters.torch_names import Inventory
from edgetrain.exporters.torch_random import constant, masks_as_dropout, random_nodes
from edgetrain.exporters.torch_shapes import fold_shapes

_RANDOM_OPS = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
# index of each initial state among the inputs of a recurrence
_INITIAL_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
_OPERATOR = re.compile(r"target=torch\.ops\.aten\.(\w+)")
_BOUNDS = {"Clip", "Max", "Min"}
_NORM_IN_TRAINING = "aten._native_batch_norm_legit_functional"
_NORM_WITHOUT_STATISTICS = "aten._native_batch_norm_legit.no_stats"
_TRAINING_MARK = "edgetrain.training"


def make_trainable(
    model: ir.Model, inventory: Inventory, output_names: Sequence[str] | None = None
) -> None:
    """Optimise `model` in place and set dropout and batch-norm to training mode.

    Args:
      model: from torch.onnx.export(optimize=False).
      inventory: of the module, after `torch_trace.read_trace`.
      output_names: names of the outputs, in order; default: torch's.
    Raises:
      ModelError: a parameter that the forward pass reads is missing or has another shape; a
        batch-norm in training mode lacks the two statistics to update.
    """
    common.InlinePass()(model)
    graph = model.graph
    _use_kept_names(graph, inventory)
    _compute_outputs(graph, output_names or ())
    _mark_norms(graph)
    torch_detach.hide(graph)
    inventory.held = _held_means(graph)
    _dropout_in_training(graph)
    tensors = _to_inputs(graph, inventory)
    _seed(graph)
    onnxscript.optimizer.optimize_ir(model, should_fold=_may_fold)
    _omit_zero_states(graph)
    common.ShapeInferencePass()(model)
    fold_shapes(graph)
    fuse_local_response_norm(graph)
    inventory.masks = masks_as_dropout(graph)
    _seed(graph)  # the new ones too: equal draws are not one
    onnxscript.optimizer.optimize_ir(model, should_fold=_may_fold)
    _unseed(graph)
    _register_lost(graph)
    _to_initializers(graph, tensors)
    _batch_norm_in_training(graph)
    _name_nodes(graph)
    torch_detach.show(graph)
    inventory.random = random_nodes(graph)
    _check_survivors(graph, inventory)


def _may_fold(node: ir.Node) -> bool | None:
    """Keep nodes that draw random numbers, even from a constant; onnxscript decides about
    others."""
    return False if node.op_type in _RANDOM_OPS else None


def _use_kept_names(graph: ir.Graph, inventory: Inventory) -> None:
    for alias, kept in inventory.tied.items():
        value = graph.initializers.get(alias)
        if value is None:
            continue
        if kept in graph.initializers:
            value.replace_all_uses_with(graph.initializers[kept], replace_graph_outputs=True)
            del graph.initializers[alias]
        else:
            value.name = kept


def _compute_outputs(graph: ir.Graph, names: Sequence[str]) -> None:
    """Copy outputs that are weights or, if they have `names`, inputs: both keep their own names."""
    for index, value in enumerate(graph.outputs):
        is_named = index < len(names)
        if value.name in graph.initializers or (is_named and value.is_graph_input()):
            copy = ir.Node("", "Identity", [value])
            output = copy.outputs[0]
            output.name, output.shape, output.type = f"{value.name}_output", value.shape, value.type
            graph.append(copy)
            graph.outputs[index] = output
        if is_named:
            graph.outputs[index].name = names[index]


def _mark_norms(graph: ir.Graph) -> None:
    """Mark batch-norms for which torch uses batch statistics; frozen ones stay unmarked."""
    for node in graph.all_nodes():
        traced = node.metadata_props.get(torch_detach.CALL, "")
        if node.op_type != "BatchNormalization":
            continue
        if _NORM_WITHOUT_STATISTICS in traced:
            _give_statistics(graph, node)
        elif _NORM_IN_TRAINING not in traced:
            continue
        node.metadata_props[_TRAINING_MARK] = "1"


def _held_means(graph: ir.Graph) -> list[str]:
    """Running means that only batch-norms read which keep their running statistics."""
    norms = [node for node in graph.all_nodes() if node.op_type == "BatchNormalization"]
    held: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for node in norms:
        mean = node.inputs[3]
        if mean is not None and mean.name and mean.name in graph.initializers:
            held[_TRAINING_MARK not in node.metadata_props][mean.name] = None
    return [name for name in held[True] if name not in held[False]]


def _give_statistics(graph: ir.Graph, node: ir.Node) -> None:
    """Replace computed statistics by unused ones: in training mode, the op computes its own."""
    value = node.inputs[0]
    assert value is not None and value.shape is not None
    channels = value.shape[1]
    assert isinstance(channels, int)
    for slot, name in ((3, "mean"), (4, "variance")):
        array = np.full(channels, slot - 3, np.float32)
        node.replace_input_with(slot, constant(graph, f"no_{name}_{channels}", array))


def _to_inputs(graph: ir.Graph, inventory: Inventory) -> dict[str, ir.TensorProtocol]:
    tensors: dict[str, ir.TensorProtocol] = {}
    taken = {*inventory.must_survive(), *(value.name for value in graph.inputs)}
    for argument in graph.inputs:  # it may have the name of a parameter
        if argument.name in inventory.must_survive():
            argument.name = next(n for n in _other_names(argument.name, "input") if n not in taken)
    for name in inventory.must_survive():
        value = graph.initializers.pop(name, None)
        if value is not None and value.const_value is not None:
            tensors[name] = value.const_value
            value.const_value = None
            graph.inputs.append(value)
    return tensors


def _other_names(name: str | None, ending: str) -> Iterator[str]:
    """Names instead of `name`: NAME_ending, NAME_ending2, .."""
    yield f"{name}_{ending}"
    yield from (f"{name}_{ending}{k}" for k in itertools.count(2))


def _to_initializers(graph: ir.Graph, tensors: dict[str, ir.TensorProtocol]) -> None:
    values = {value.name: value for value in graph.inputs}
    for name, tensor in tensors.items():
        value = values[name]
        graph.inputs.remove(value)
        if value.uses() or value.is_graph_output():
            value.const_value = tensor
            graph.register_initializer(value)


def _seed(graph: ir.Graph) -> None:
    counter = itertools.count(1)
    for node in graph.all_nodes():
        if node.op_type in _RANDOM_OPS:
            # Bernoulli and the Random ops declare seed as a float, Dropout as an integer.
            seed = next(counter)
            kind = ir.AttrInt64 if node.op_type == "Dropout" else ir.AttrFloat32
            node.attributes["seed"] = kind("seed", seed)


def _unseed(graph: ir.Graph) -> None:
    for node in graph.all_nodes():
        if node.op_type in _RANDOM_OPS:
            node.attributes.pop("seed", None)


def _register_lost(graph: ir.Graph) -> None:
    """Register constants that the optimizer replaced by others of the same name: it names both
    bounds of a Clip after its input, which may be clipped twice."""
    names = {value.name for node in graph.all_nodes() for value in node.outputs}
    names |= {*graph.initializers, *(value.name for value in graph.inputs)}
    for value in dict.fromkeys(v for node in graph.all_nodes() for v in node.inputs if v):
        owner = value.graph.initializers if value.graph is not None else {}
        if value.const_value is None or value.producer() or owner.get(value.name or "") is value:
            continue
        value.name = next(n for n in _other_names(value.name, "again") if n not in names)
        names.add(value.name)
        graph.register_initializer(value)


def _dropout_in_training(graph: ir.Graph) -> None:
    """Set training_mode for every dropout: those in the trace were active."""
    for node in list(graph.all_nodes()):
        if node.op_type == "Dropout":
            node.resize_inputs(3)
            node.replace_input_with(2, constant(graph, "training_mode", np.array(True)))


def _batch_norm_in_training(graph: ir.Graph) -> None:
    """Give marked batch-norms their two statistics as outputs, chained if they are shared."""
    latest: dict[ir.Value, ir.Value] = {}
    uses: Counter[ir.Value] = Counter()
    for node in graph.all_nodes():
        if node.op_type != "BatchNormalization" or _TRAINING_MARK not in node.metadata_props:
            continue
        node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
        node.resize_outputs(3)
        _unshare(graph, node)
        for slot in (3, 4):
            first = node.inputs[slot]
            assert first is not None and first.name is not None
            node.replace_input_with(slot, latest.get(first, first))
            uses[first] += 1
            again = f"_{uses[first]}" if uses[first] > 1 else ""
            output = node.outputs[slot - 2]
            output.name = f"{first.name}.updated{again}"
            output.shape, output.type = first.shape, first.type
            latest[first] = output


def _unshare(graph: ir.Graph, node: ir.Node) -> None:
    """Give a batch-norm its own scale and shift: onnxruntime updates statistics in place, and with
    them all names of the same array, such as equal constants."""
    for slot, name in ((1, "scale"), (2, "shift")):
        value = node.inputs[slot]
        if value in node.inputs[3:] and value is not None and value.const_value is not None:
            array = value.const_value.numpy()
            own = constant(graph, f"no_{name}_{array.size}", array)
            node.replace_input_with(slot, own)


def _omit_zero_states(graph: ir.Graph) -> None:
    """Drop initial states that are zero: omitting them has the same meaning and takes no bytes."""
    for node in list(graph.all_nodes()):
        for slot in _INITIAL_STATES.get(node.op_type, ()):
            if slot < len(node.inputs) and _is_zero(node.inputs[slot]):
                node.replace_input_with(slot, None)


def _is_zero(value: ir.Value | None) -> bool:
    while value is not None and (producer := value.producer()) is not None:
        if producer.op_type not in ("Expand", "Slice"):
            return False
        value = producer.inputs[0]
    if value is None or value.const_value is None or value.is_graph_input():
        return False
    return not np.any(value.const_value.numpy())


def _name_nodes(graph: ir.Graph) -> None:
    """Name every node `<module path>/<op>`, and remove torch's traces of source files."""
    seen: Counter[str] = Counter()
    for node in graph.all_nodes():
        scopes = ast.literal_eval(node.metadata_props.get("pkg.torch.onnx.name_scopes", "[]"))
        scope = scopes[-2] if len(scopes) > 1 else ""
        base = f"{scope}/{node.op_type}".lstrip("/")
        node.name = f"{base}_{seen[base]}" if seen[base] else base
        seen[base] += 1
        _keep_function(node)
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*graph.inputs, *graph.initializers.values()):
        value.metadata_props.clear()


def _keep_function(node: ir.Node) -> None:
    """Remove all metadata except the torch operator of a bound, which determines its gradient."""
    result = _OPERATOR.search(node.metadata_props.get(torch_detach.CALL, ""))
    node.metadata_props.clear()
    if result and node.op_type in _BOUNDS:
        node.metadata_props[torch_detach.FUNCTION] = result[1]


def _check_survivors(graph: ir.Graph, inventory: Inventory) -> None:
    shapes = inventory.shapes()
    lost, changed = [], []
    for name in inventory.must_survive():
        value = graph.initializers.get(name)
        if value is None or value.const_value is None:
            lost.append(name)
        elif tuple(value.const_value.shape.numpy()) != shapes[name]:
            changed.append(name)
    if lost or changed:
        raise ModelError(
            f"module '{inventory.owner}': torch's exporter folded or merged "
            f"{', '.join(lost + changed)}, so they could not be trained. Rewrite the forward pass "
            "to use each directly (no data-dependent constants, no .item())."
        )
