"""What an exporter says about tensors: our metadata, or torch's graph signature.

torch's exporter for inference folds, transposes and merges weights, but records on each node the
call it came from and the parameters passed to it: the node's claims.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from ..ops.onnx_ops import onnx_op

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_LINE = re.compile(r"^(\w+): (PARAMETER|BUFFER|CONSTANT_TENSOR) target='([^']*)'", re.MULTILINE)
_CALL = "pkg.torch.onnx.fx_node"
_FUNCTION = "edgetrain.function"  # on nodes from our own exporter
_SCOPES = "pkg.torch.onnx.name_scopes"
_OPERATOR = re.compile(r"target=torch\.ops\.aten\.(\w+)")
_ARGUMENT = re.compile(r"%(\w+)")

# Names that exporters generate: numbers, results of nodes, constants.
_ANONYMOUS = re.compile(
    r"^(onnx::|/|\d+$|val_\d+$|_?tensor_constant|lifted_tensor|c_lifted|Constant|.*_output_\d+$)"
)

# A module's name for its own number; exporters name constants differently.
_NUMBER = re.compile(r"^(?!const|eps)[A-Za-z_]\w*(\.\w+)*$", re.IGNORECASE)

_WEIGHT = re.compile(r"weight|kernel|filter|embed|proj|(^|[^a-z])w\d*($|[^a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Origin:
    """What the file says about its tensors.

    Attributes:
      parameters: torch names of trained tensors; None if unknown.
      others: torch names of buffers and constants.
      aliases: other names of tied parameters.
      arguments: input of the traced program -> torch name.
    """

    parameters: tuple[str, ...] | None = None
    others: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)

    def missing(self, names) -> list[str]:
        """Parameters missing from these names."""
        known = {*names, *self.aliases}
        return [name for name in self.parameters or () if name not in known]


def origin_of(proto: onnx.ModelProto) -> Origin:
    """Read the metadata of model and graph; damaged metadata is ignored."""
    meta = {e.key: e.value for e in (*proto.graph.metadata_props, *proto.metadata_props)}
    try:
        listed = json.loads(meta.get("edgetrain.parameters", "null"))
        others = json.loads(meta.get("edgetrain.buffers", "[]"))
        aliases = json.loads(meta.get("edgetrain.tied", "{}"))
    except (ValueError, RecursionError):
        listed = None
    if isinstance(listed, list) and isinstance(aliases, dict):
        kept = {str(k): str(v) for k, v in aliases.items()}
        buffers = frozenset(map(str, others)) if isinstance(others, list) else frozenset()
        return Origin(tuple(map(str, listed)), buffers, kept)
    signed = _LINE.findall(meta.get(_SIGNATURE, ""))
    parameters = tuple(name for _, kind, name in signed if kind == "PARAMETER")
    if not parameters:
        return Origin()
    others = frozenset(name for _, kind, name in signed if kind != "PARAMETER")
    return Origin(parameters, others, {}, {argument: name for argument, _, name in signed})


def is_anonymous(name: str) -> bool:
    """Whether the name was made up by an exporter."""
    return bool(_ANONYMOUS.match(name))


def is_named_number(name: str) -> bool:
    """Whether the name may be that of a scalar in a module."""
    return bool(_NUMBER.match(name)) and not is_anonymous(name)


def is_weight_name(name: str) -> bool:
    """Whether a name looks like weights and is not an exporter's number."""
    return not is_anonymous(name) and bool(_WEIGHT.search(name))


def scope_of(node: onnx.NodeProto) -> str:
    """Dotted path of the module a node was traced in; "" for the root or if unknown."""
    meta = {e.key: e.value for e in node.metadata_props}
    if _SCOPES in meta:
        scopes = re.findall(r"'([^']*)'", meta[_SCOPES])
        return scopes[-2] if len(scopes) > 1 else ""
    if not node.name.startswith("/"):
        return ""
    path: list[str] = []
    for part in node.name.split("/")[1:-1]:
        if path and part.startswith(f"{path[-1]}."):
            path.pop()  # a Sequential repeats its own name
        path.append(part)
    return ".".join(path)


def function_of(node: onnx.NodeProto) -> str:
    """The torch operator a node was exported from; "" if unknown."""
    if not node.metadata_props:
        return ""
    meta = {e.key: e.value for e in node.metadata_props}
    result = _OPERATOR.search(meta.get(_CALL, ""))
    name: str = meta.get(_FUNCTION) or (result[1] if result else "")
    return name.rstrip("_")


def called_with(node: onnx.NodeProto, origin: Origin) -> list[str] | None:
    """Torch names of parameters and buffers in a node's torch call; None if unknown."""
    for entry in node.metadata_props:
        if entry.key == _CALL:
            result = _ARGUMENT.findall(entry.value.partition("(args")[2])
            return list(dict.fromkeys(origin.arguments[a] for a in result if a in origin.arguments))
    return None


def claim(node: onnx.NodeProto, index: int, origin: Origin) -> tuple[str, ...] | None:
    """Torch names of a node's input; None if unknown."""
    kind = onnx_op(node.op_type).names.get(index)
    given = called_with(node, origin)
    if kind is None or given is None:
        return None
    if index < len(node.input) and node.input[index] in given:
        return (node.input[index],)
    return tuple(name for name in given if _is_called(name.rpartition(".")[2], kind))


def _is_called(last: str, kind: str) -> bool:
    if kind != "weight":
        return kind in last
    return "bias" not in last and not last.startswith("running_")
