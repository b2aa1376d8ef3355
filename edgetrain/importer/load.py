"""Reads an ONNX file: outline, protobuf, functions, checker, types, then decode.

The onnx checker finds cycles, undefined names and unknown ops. Other faults (extents, groups,
windows, indices) are found by decode, by the rules of ops and by the limits of bind.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError

from ..errors import ModelError
from ..ops.model import Model, name_file
from ..ops.onnx_ops import onnx_op
from ..units.files import open_handle, refusal
from ..units.public import as_path, public
from .branches import flat, subgraphs
from .decode import decode
from .external import check_total
from .functions import check_functions, expanded, inlined
from .lean import MAX_LEAN_NBYTES, check_numbers, read_lean, tensors_of
from .names import check_names
from .outline import MAX_NODES, check_outline
from .quantised import LIFTED
from .types import check_types

_DOMAINS = ("", "ai.onnx")
_UNCHECKED = "edgetrain.unchecked"  # a domain whose nodes the checker leaves alone


@public
def load_onnx(path: str | os.PathLike[str] | onnx.ModelProto, *, seed: int = 0) -> Model:
    """Load a model from an ONNX file, including external tensors.

    Args:
      path: the file, or an `onnx.ModelProto` that holds all its tensors.
      seed: for random values of weights that the file only describes (ConstantOfShape).
    Raises:
      ModelError: the file is missing, malformed, or too large.
    """
    if isinstance(path, onnx.ModelProto):
        return _of_proto(path, seed)
    path = as_path(
        "load_onnx", path, "the path of an ONNX file or an onnx.ModelProto", any_name=True
    )
    return replace(_loaded(path, str(path), seed), source=str(path))


def _of_proto(proto: onnx.ModelProto, seed: int) -> Model:
    """Load a model in memory through a file, from which large tensors are read one by one."""
    label = f"ModelProto {proto.graph.name!r}"
    away = [t.name for t in tensors_of(proto.graph) if t.data_location == t.EXTERNAL]
    if away:
        raise ModelError(
            f"{label}: tensor {away[0]!r} is in another file; expected all tensors in the model. "
            "Save the model, and pass its path."
        )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "model.onnx")
        try:
            path.write_bytes(proto.SerializeToString())
        except (EncodeError, ValueError, OSError) as error:
            raise ModelError(
                f"{label}: it cannot be written ({_first_line(error)}). Save the model with "
                "external data, and pass its path."
            ) from error
        return _loaded(path, label, seed)


def _loaded(path: Path, label: str, seed: int) -> Model:
    try:
        model = decode(parse(_read(path, label), label), path, seed)
        check_names(model)
    except ModelError as error:
        name_file(error, label)
        raise
    return model


def _read(path: Path, label: str) -> bytes:
    try:
        descriptor = open_handle(path)
    except (OSError, ValueError) as error:
        result = refusal(error)
        raise ModelError(f"{label}: {result}; expected an ONNX file. Check the path.") from error
    with os.fdopen(descriptor, "rb"):
        check_outline(descriptor, label)
        try:
            return read_lean(descriptor, label)
        except OSError as error:
            raise ModelError(f"{label}: {error.strerror}; expected an ONNX file.") from error


def parse(data: bytes, label: str) -> onnx.ModelProto:
    """Parse and check a serialized ModelProto.

    Raises:
      ModelError: not a protobuf file, or not a valid model.
    """
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{label}: not an ONNX file ({_first_line(error)}). Export the model again."
        ) from error
    if not proto.graph.output:
        raise ModelError(f"{label}: the model has no outputs. Export it again.")
    check_numbers(proto, label)
    check_total(tensors_of(proto.graph))
    given, proto = proto, expanded(_inlined(proto, label), LIFTED)
    if proto is not given:
        check_total(tensors_of(proto.graph))
    if sum(1 for _ in flat(proto.graph.node)) > MAX_NODES:
        raise ModelError(f"{label}: more than {MAX_NODES} nodes, branches included.")
    _check_sparse(proto.graph, label)
    try:
        onnx.checker.check_model(_checked(proto), full_check=False)
    except (onnx.checker.ValidationError, ValueError, RuntimeError, TypeError) as error:
        raise ModelError(f"{label}: {_first_line(error)}. Export the model again.") from error
    check_types(proto)
    return proto


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")


def _inlined(proto: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """Expand local functions, after a check of their size."""
    if not proto.functions:
        return proto
    check_functions(proto, label, MAX_NODES, MAX_LEAN_NBYTES)
    try:
        result = inlined(proto)
    except (RuntimeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"{label}: its functions cannot be expanded ({_first_line(error)}). Export the model "
            "without local functions."
        ) from error
    check_total(tensors_of(result.graph))
    return result


def _check_sparse(graph: onnx.GraphProto, label: str) -> None:
    parts = [part for node in flat(graph.node) for part in subgraphs(node)]
    names = [t.values.name for part in (graph, *parts) for t in part.sparse_initializer]
    if names:
        raise ModelError(
            f"{label}: initializer {names[0]!r} is sparse; expected dense tensors. Save the model "
            "with dense initializers."
        )


def _checked(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The copy that the checker gets.

    It refuses ops that were deprecated for some opsets and came back in later ones; supported ones
    get a domain that it does not know.
    """
    copy = _without_external(proto)
    version = max((o.version for o in copy.opset_import if o.domain in _DOMAINS), default=1)
    ops = {node.op_type for node in flat(copy.graph.node) if node.domain in _DOMAINS}
    back = {op for op in ops if onnx_op(op).rule and _came_back(op, version)}
    if back:
        for node in flat(copy.graph.node):
            if node.domain in _DOMAINS and node.op_type in back:
                node.domain = _UNCHECKED
        copy.opset_import.add(domain=_UNCHECKED, version=1)
    return copy


def _came_back(op: str, version: int) -> bool:
    """Whether an op is deprecated in this opset, but not in the newest."""
    try:
        here, newest = onnx.defs.get_schema(op, version, ""), onnx.defs.get_schema(op)
    except (onnx.defs.SchemaError, TypeError):  # or no version of 32 bits
        return False
    return here.deprecated and not newest.deprecated


def _without_external(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with empty external tensors, so the checker opens no files.

    Outputs of unknown shape get one, because only the checker refuses them.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    for tensor in tensors_of(copy.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.dims[:]
            tensor.dims.append(0)
    return copy
