"""Writes an ONNX model so that readers never see half of it."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import onnx
import onnx_ir as ir

from edgetrain.errors import ModelError, UsageError

INLINE_LIMIT_NBYTES = 1_500_000_000
# Protobuf messages are limited to 2 GiB; the rest is for the graph itself.
PROTOBUF_LIMIT_NBYTES = 2_000_000_000


def save_atomically(
    model: ir.Model,
    path: Path,
    external_data: Literal["auto"] | bool,
    check: Callable[[Path], None],
) -> None:
    """Write `model` to `path` with a temporary directory, fsync and rename.

    With external data, `<path>.data` is renamed first: between the two renames, a reader of an
    older `path` can see newer weights.

    Args:
      model: every initializer has its value.
      path: the file; its directory exists.
      external_data: store weights in `<path>.data`; "auto": above INLINE_LIMIT_NBYTES.
      check: is called with the complete file before it replaces `path`; an error prevents that.
    Raises:
      UsageError: inline data was requested, but exceeds protobuf's limit.
      ModelError: onnx's checker refuses the model.
    """
    nbytes = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    external = nbytes > INLINE_LIMIT_NBYTES if external_data == "auto" else external_data
    if not external and nbytes > PROTOBUF_LIMIT_NBYTES:
        raise UsageError(
            f"'{path}': {nbytes} bytes of weights; expected at most "
            f"{PROTOBUF_LIMIT_NBYTES} in one file. Leave out external_data=False."
        )
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        draft = Path(folder) / path.name
        data = f"{path.name}.data" if external else None
        ir.save(model, draft, external_data=data)
        _check(draft, path)
        check(draft)
        written = [draft] if data is None else [Path(folder) / data, draft]
        for file in written:
            if file.exists():  # no data file if every tensor is small
                _fsync(file)
                os.replace(file, path.parent / file.name)
    _fsync(path.parent)


def _check(draft: Path, path: Path) -> None:
    try:
        onnx.checker.check_model(str(draft), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(
            f"'{path}': torch wrote an invalid ONNX graph: {first}. Replace the layer it names."
        ) from error


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
