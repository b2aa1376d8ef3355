"""Keeps the places where a module stops gradients: `detach` and `no_grad`.

torch's exporter drops both. Here an operator of ours is put in their place before it runs. In the
file this operator is an Identity whose metadata names torch's `detach`; other runtimes copy.
"""

import operator
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import opset18
from torch.export import ExportedProgram
from torch.fx import Node

from edgetrain.exporters.torch_names import Inventory

CALL = "pkg.torch.onnx.fx_node"  # metadata of a node: the call it was translated from
_DOMAIN = "edgetrain"  # of these nodes while the optimizer runs, which would drop an Identity
FUNCTION = "edgetrain.function"  # metadata of a node: the torch operator it was exported from
_REGION = "wrap_with_set_grad_enabled"
_DETACH = torch.ops.aten.detach.default
# What only reads the shape of its input, or draws from it.
_WITHOUT_GRADIENT = (
    "rand_like", "randn_like", "randint_like", "zeros_like", "ones_like", "full_like",
    "empty_like", "bernoulli", "sym_size",
)  # fmt: skip


@torch.library.custom_op("edgetrain::detach", mutates_args=())
def _detached(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@_detached.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


_MARK = torch.ops.edgetrain.detach.default
_opset: Any = opset18  # x is a symbol in the graph being written
TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {_MARK: lambda x: _opset.Identity(x)}


def stopped(inventory: Inventory, traced: ExportedProgram) -> ExportedProgram:
    """The program with our operator in place of what stops gradients to trainable parameters.

    Places are found once no op writes into its operands: a view of a value may write into it.
    """
    regions = [
        node for node in traced.graph.nodes if operator_name(node) == _REGION and not node.args[0]
    ]
    stops = [node for node in traced.graph.nodes if operator_name(node) in ("detach", "detach_")]
    if not _may_stop(inventory, traced, {*regions, *stops}):
        return traced
    for node in stops:
        node.target = _DETACH  # torch drops detach_
    for region in regions:
        for user in [user for user in region.users if user.target is operator.getitem]:
            if _is_float(user):
                _put_behind(traced, user, _DETACH)
    traced.graph_module.recompile()
    program = traced.run_decompositions({})
    with_gradient = {*_trainable(inventory, program)}
    for node in program.graph.nodes:
        if not with_gradient.intersection(node.all_input_nodes):
            continue
        if node.target is _DETACH and _is_float(node):
            node.target = _MARK
        elif not _has_no_gradient(node):
            with_gradient.add(node)
    program.graph_module.recompile()
    return program


def _may_stop(inventory: Inventory, traced: ExportedProgram, places: set[Node]) -> bool:
    """Whether a parameter may be read at one of the places; whatever is written into an operand
    may be."""
    with_gradient = {*_trainable(inventory, traced)}
    for node in traced.graph.nodes if places else ():
        if with_gradient.intersection(node.all_input_nodes):
            if node in places or operator_name(node).endswith("_"):
                return True
            with_gradient.add(node)
    return False


def _put_behind(program: ExportedProgram, node: Node, target: Any) -> None:
    users = [*node.users]
    with program.graph.inserting_after(node):
        added = program.graph.call_function(target, (node,))
    added.meta = dict(node.meta)
    for user in users:
        user.replace_input_with(node, added)
    program.graph_signature.replace_all_uses(node.name, added.name)


def _has_no_gradient(node: Node) -> bool:
    return node.target is _MARK or operator_name(node) in _WITHOUT_GRADIENT or _is_integer(node)


def _trainable(inventory: Inventory, program: ExportedProgram) -> dict[Node, str]:
    """Kept name of each placeholder of a trainable parameter; tied ones may have several."""
    parameters = program.graph_signature.inputs_to_parameters
    names = {
        node: inventory.keep(parameters[node.name])
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in parameters
    }
    return {node: name for node, name in names.items() if inventory.parameters[name].requires_grad}


def unreached(inventory: Inventory, lowered: ExportedProgram) -> list[str]:
    """Trainable parameters to which no gradient flows from the outputs.

    Args:
      lowered: the program of `stopped` after the decompositions for ONNX.
    """
    outputs = {*lowered.graph_signature.user_outputs}
    pending = [node for node in lowered.graph.nodes if node.name in outputs]
    reached = set(pending)
    while pending:
        node = pending.pop()
        if not _has_no_gradient(node):
            new = {*node.all_input_nodes} - reached
            reached |= new
            pending.extend(new)
    read = {node: name for node, name in _trainable(inventory, lowered).items() if node.users}
    flowing = {name for node, name in read.items() if node in reached}
    return [name for name in dict.fromkeys(read.values()) if name not in flowing]


def operator_name(node: Node) -> str:
    """The torch operator that a traced node calls: "conv2d" for aten.conv2d.default."""
    return str(node.target).removeprefix("aten.").split(".")[0]


def _is_float(node: Node) -> bool:
    """Whether a node makes one tensor, of floats."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _is_integer(node: Node) -> bool:
    """Whether a node makes one tensor, of integers or booleans."""
    return isinstance(node.meta.get("val"), torch.Tensor) and not _is_float(node)


def hide(graph: ir.Graph) -> None:
    """Move our nodes to a domain that the optimizer does not know."""
    for node in graph.all_nodes():
        if "torch.ops.edgetrain.detach" in node.metadata_props.get(CALL, ""):
            node.domain = _DOMAIN


def show(graph: ir.Graph) -> None:
    """Undo `hide`, and name the operator in the metadata of our nodes."""
    for node in graph.all_nodes():
        if node.domain == _DOMAIN:
            node.domain = ""
            node.metadata_props[FUNCTION] = "detach"
