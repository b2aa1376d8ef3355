"""Reads what a traced torch program says about its tensors, and what ONNX would lose."""

import operator
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from edgetrain.errors import ModelError
from edgetrain.exporters.torch_detach import operator_name, unreached
from edgetrain.exporters.torch_names import Inventory

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
# indices of (number of layers, dropout, train) in the arguments of aten's recurrent ops
_RECURRENT_ARGS = slice(4, 7)


def read_trace(inventory: Inventory, lowered: ExportedProgram) -> None:
    """Complete `inventory`: what outputs depend on, what is written, what is lost.

    Args:
      inventory: of the module; changed in place.
      lowered: the program from torch.export after the decompositions for ONNX.
    Raises:
      ModelError: a recurrence with dropout between its layers (ONNX ops have none).
    """
    signature = lowered.graph_signature
    targets = _targets(inventory, lowered)
    inventory.mutated = {inventory.keep(name) for name in signature.buffers_to_mutate.values()}
    outputs = set(signature.user_outputs)
    for node in _upstream([node for node in lowered.graph.nodes if node.name in outputs]):
        if node.name in targets:
            inventory.used.add(targets[node.name])
        elif node.op == "call_function":
            _read_padding(inventory, node, targets)
            _check_recurrence(inventory, node)
    for node in lowered.graph.nodes:
        buffer = inventory.keep(signature.buffers_to_mutate.get(node.name, ""))
        if buffer in inventory.used and not _is_batch_norm_update(node):
            inventory.stale.append(buffer)
    inventory.unreached = unreached(inventory, lowered)


def _targets(inventory: Inventory, program: ExportedProgram) -> dict[str, str]:
    """Kept name of each placeholder that is a parameter or a buffer."""
    signature = program.graph_signature
    pairs = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return {placeholder: inventory.keep(name) for placeholder, name in pairs.items()}


def _upstream(pending: list[Node]) -> set[Node]:
    seen = set(pending)
    while pending:
        new = set(pending.pop().all_input_nodes) - seen
        seen |= new
        pending.extend(new)
    return seen


def _read_padding(inventory: Inventory, node: Node, targets: dict[str, str]) -> None:
    if operator_name(node) != "embedding" or len(node.args) < 3:
        return
    if len(node.args) > 3 and node.args[3]:
        inventory.changed_gradients["scale_grad_by_freq"] = None
    weight, row = node.args[0], node.args[2]
    if isinstance(row, int) and row >= 0 and isinstance(weight, Node) and weight.name in targets:
        inventory.padding_idx[targets[weight.name]] = row


def _check_recurrence(inventory: Inventory, node: Node) -> None:
    if operator_name(node) not in _RECURRENT:
        return
    layers, dropout, train = node.args[_RECURRENT_ARGS]
    if train and dropout and isinstance(layers, int) and layers > 1:
        raise ModelError(
            f"module '{inventory.owner}': {operator_name(node)} with dropout {dropout} between its "
            f"{layers} layers; ONNX does not support this, and torch drops it silently. Stack "
            "single-layer modules with nn.Dropout between them, or set dropout=0."
        )


def _is_batch_norm_update(node: Node) -> bool:
    source: Any = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, Node) and "batch_norm" in str(source.target)
