"""Reads tensors of an ONNX file as numpy arrays, with checks of external data.

External data must be in the model's own file, or in a regular file with one link whose real path is
in the model's directory; offset and length must be within the file. onnx's loader does not check
this, so it is not used.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ..errors import ModelError
from ..units.files import open_handle
from .lean import HERE

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
# Limit for all initializers together; 16-bit floats count with their converted size.
MAX_MODEL_NBYTES = 2**30


def tensor_nbytes(tensor: TensorProto) -> int:
    """Size of a tensor in bytes, from its shape and type."""
    count = 1
    for dim in tensor.dims:
        if dim < 0:
            raise ModelError(f"tensor {tensor.name!r}: dimension {dim}; expected at least 0.")
        count *= dim
    try:
        itemsize = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError as error:
        raise ModelError(
            f"tensor {tensor.name!r}: unknown element type {tensor.data_type}; expected a number."
        ) from error
    if count * itemsize > MAX_MODEL_NBYTES:
        raise ModelError(
            f"tensor {tensor.name!r}: shape {list(tensor.dims)} needs {count * itemsize} bytes; "
            f"expected at most {MAX_MODEL_NBYTES}."
        )
    return count * itemsize


def check_total(tensors: Iterable[TensorProto]) -> None:
    """Refuse tensors above MAX_MODEL_NBYTES in total, before reading any."""
    total = 0
    for tensor in tensors:
        nbytes = tensor_nbytes(tensor)
        total += 2 * nbytes if tensor.data_type in _HALVES else nbytes
    if total > MAX_MODEL_NBYTES:
        raise ModelError(
            f"initializers and constants take {total} bytes; expected at most {MAX_MODEL_NBYTES}. "
            "Export a smaller model."
        )


def to_array(tensor: TensorProto, model: Path) -> np.ndarray:
    """The tensor's values.

    Args:
      model: the tensor's ONNX file.
    Raises:
      ModelError: the data does not match the shape, or an external file is not acceptable.
    """
    nbytes = tensor_nbytes(tensor)
    if tensor.data_type == TensorProto.STRING:
        raise ModelError(f"tensor {tensor.name!r}: it contains strings; expected numbers.")
    if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        raise ModelError(f"tensor {tensor.name!r}: complex numbers; expected real ones.")
    try:
        if tensor.data_location == TensorProto.EXTERNAL:
            return _widened(_external(tensor, model, nbytes))
        if tensor.HasField("raw_data") and len(tensor.raw_data) != nbytes:
            raise ModelError(
                f"tensor {tensor.name!r}: {len(tensor.raw_data)} bytes of data; expected {nbytes} "
                f"for shape {list(tensor.dims)}."
            )
        return _widened(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OSError) as error:
        raise ModelError(
            f"tensor {tensor.name!r}: its data cannot be read ({error}). Export the model again."
        ) from error


def is_here(tensor: TensorProto) -> bool:
    """Whether the data is still in the model's own file (lean.py)."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return False
    return any(e.key == "location" and e.value == HERE for e in tensor.external_data)


def restore(tensor: TensorProto, model: Path) -> None:
    """Put data left in the model's own file back into the tensor."""
    with _opened(tensor, model, tensor_nbytes(tensor)) as (file, length):
        tensor.raw_data = file.read(length)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _widened(array: np.ndarray) -> np.ndarray:
    """Convert bfloat16 and 8-bit floats, which numpy lacks, to float32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _external(tensor: TensorProto, model: Path, nbytes: int) -> np.ndarray:
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    with _opened(tensor, model, nbytes) as (file, length):
        if dtype.kind in "fiub" and dtype.isbuiltin:
            return np.fromfile(file, dtype, nbytes // dtype.itemsize).reshape(tuple(tensor.dims))
        copy = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=file.read(length))
    return numpy_helper.to_array(copy)


@contextmanager
def _opened(tensor: TensorProto, model: Path, nbytes: int) -> Iterator[tuple[BinaryIO, int]]:
    """Open the file with the tensor's data: (file, offset), after checking the extent."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", nbytes))
    except ValueError as error:
        raise ModelError(
            f"tensor {tensor.name!r}: bad external offset or length ({error})."
        ) from error
    descriptor = (
        open_handle(model)
        if location == HERE
        else _open_beside(tensor, location, model.parent.resolve())
    )
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if offset < 0 or length != nbytes or offset + length > size:
            where = "the file" if location == HERE else repr(location)
            raise ModelError(
                f"tensor {tensor.name!r}: its data is at bytes {offset} to {offset + length} of "
                f"{where}, which has {size}; shape {list(tensor.dims)} needs {nbytes}."
            )
        file.seek(offset)
        yield file, length


def _open_beside(tensor: TensorProto, location: str, root: Path) -> int:
    try:
        path = (root / location).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: circular links
        raise ModelError(
            f"tensor {tensor.name!r}: external data in {location!r}: {error}. Put the file next "
            "to the model."
        ) from error
    if not location or not path.is_relative_to(root):
        raise ModelError(
            f"tensor {tensor.name!r}: external data in {location!r}, outside the model's "
            "directory. Put the file next to the model."
        )
    return _open_regular(tensor, location, path)


def _open_regular(tensor: TensorProto, location: str, path: Path) -> int:
    try:
        descriptor = open_handle(path, links=False)
    except OSError as error:
        raise ModelError(
            f"tensor {tensor.name!r}: external data file {location!r}: {error.strerror}. "
            "Put it next to the model."
        ) from error
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise ModelError(
            f"tensor {tensor.name!r}: external data {location!r} is a hard link. Copy it next "
            f"to the model."
        )
    return descriptor
