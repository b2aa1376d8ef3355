"""Reads an ONNX file: outline, protobuf, functions, checker, types, then decode.

The onnx checker finds cycles, undefined names and unknown ops. Other faults (extents, groups,
windows, indices) are found by decode, by the rules of ops and by the limits of bind.
"""

import os
from dataclasses import replace
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from ..errors import ModelError
from ..ops.model import Model, name_file
from ..units.files import open_handle, refusal
from ..units.public import as_path, public
from .decode import decode
from .external import check_total
from .functions import called, check_functions, expanded
from .lean import MAX_LEAN_NBYTES, check_numbers, read_lean, tensors_of
from .names import check_names
from .outline import MAX_NODES, check_outline
from .quantised import LIFTED
from .types import check_types


@public
def load_onnx(path: str | os.PathLike[str], *, seed: int = 0) -> Model:
    """Load a model from an ONNX file, including external tensors.

    Args:
      seed: for random values of weights that the file only describes (ConstantOfShape).
    Raises:
      ModelError: the file is missing, malformed, or too large.
    """
    path = as_path("load_onnx", path, "the path of an ONNX file")
    try:
        model = decode(parse(_read(path), str(path)), path, seed)
        check_names(model)
    except ModelError as error:
        name_file(error, str(path))
        raise
    return replace(model, source=str(path))


def _read(path: Path) -> bytes:
    try:
        descriptor = open_handle(path)
    except (OSError, ValueError) as error:
        found = refusal(error)
        raise ModelError(f"{path}: {found}; expected an ONNX file. Check the path.") from error
    with os.fdopen(descriptor, "rb"):
        check_outline(descriptor, str(path))
        try:
            return read_lean(descriptor, str(path))
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror}; expected an ONNX file.") from error


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
    proto = expanded(_inlined(proto, label), LIFTED)
    check_total(tensors_of(proto.graph))
    if sum(1 for _ in called(proto.graph.node)) > MAX_NODES:
        raise ModelError(f"{label}: more than {MAX_NODES} nodes, branches included.")
    try:
        onnx.checker.check_model(_without_external(proto), full_check=False)
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
        expanded = onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"{label}: its functions cannot be expanded ({_first_line(error)}). Export the model "
            "without local functions."
        ) from error
    check_total(tensors_of(expanded.graph))
    return expanded


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
