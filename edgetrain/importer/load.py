"""Read an ONNX file: size, protobuf, checker, then decode.

The onnx checker catches cycles, undefined names and unknown ops; what it lets pass (extents,
groups, windows, indices) is caught by decode, by the ops' own rules and by bind's limits.
"""

import os
import stat
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from ..errors import ModelError
from ..ops.model import Model
from .decode import decode
from .external import check_total

MAX_FILE_NBYTES = 2**31 - 1
MAX_NODES = 200_000


def load_onnx(path: str | Path, *, seed: int = 0) -> Model:
    """Load a model from an ONNX file, its external tensors included.

    Args:
      seed: weights that the file makes by ConstantOfShape get random values of this seed.
    Raises:
      ModelError: the file is missing, malformed, or beyond the limits.
    """
    path = Path(path)
    proto = parse(_read(path), str(path))
    return decode(proto, path, seed)


def _read(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; expected an ONNX file.") from error
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise ModelError(f"{path}: not a regular file; expected an ONNX file.")
    with os.fdopen(descriptor, "rb") as file:
        if not 0 < info.st_size <= MAX_FILE_NBYTES:
            raise ModelError(
                f"{path}: {info.st_size} bytes; expected an ONNX file of 1 to {MAX_FILE_NBYTES}."
            )
        return file.read()


def parse(data: bytes, label: str) -> onnx.ModelProto:
    """Checked ModelProto of serialized bytes.

    Raises:
      ModelError: not a protobuf, or not a valid model.
    """
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{label}: not an ONNX file ({_first_line(error)}). Export the model again."
        ) from error
    if not proto.graph.output:
        raise ModelError(f"{label}: a model without outputs. Export the model again.")
    if len(proto.graph.node) > MAX_NODES:
        raise ModelError(f"{label}: {len(proto.graph.node)} nodes; at most {MAX_NODES} are read.")
    check_total(proto.graph.initializer)
    proto = _inlined(proto, label)
    try:
        onnx.checker.check_model(_without_external(proto), full_check=False)
    except (onnx.checker.ValidationError, ValueError, RuntimeError, TypeError) as error:
        raise ModelError(f"{label}: {_first_line(error)}. Export the model again.") from error
    return proto


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")


def _inlined(proto: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """Local functions expanded, where nesting cannot blow them up."""
    if not proto.functions:
        return proto
    sizes: dict[tuple[str, str], int] = {}
    names = {(f.domain, f.name) for f in proto.functions}
    for _ in range(len(names) + 1):
        for f in proto.functions:
            count = sum(sizes.get((n.domain, n.op_type), 1) for n in f.node)
            sizes[f.domain, f.name] = min(count, MAX_NODES + 1)
    total = sum(sizes.get((n.domain, n.op_type), 1) for n in proto.graph.node)
    if total > MAX_NODES:
        raise ModelError(f"{label}: its functions expand to over {MAX_NODES} nodes.")
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{label}: its functions cannot be expanded ({error}).") from error


def _without_external(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose tensors are all empty, so that the checker opens no file."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in copy.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.dims[:]
            tensor.dims.append(0)
    return copy
