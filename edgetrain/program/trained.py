"""Exports a trained Program to ONNX: the original graph with trained weights, ready for inference.

Names, dtypes and layout are those of the original file; batch-norm and dropout are set to
inference. Metadata is kept, so the result can be trained further. The onnx package is not needed:
the stored model is edited as bytes (protobuf.py).
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ProgramError, RunError, UsageError, warn
from ..formats import decoded
from ..formats.csr import dense_state, layers_of
from ..units.public import as_path
from ..units.statistics import is_tracked
from .adapters import merged
from .atomic import write_atomically
from .finite import finite_part, nonfinite
from .mapped_file import check_files
from .metadata import LABELS, METADATA, text_of
from .onnx_fields import (
    ATTRIBUTES,
    BFLOAT16,
    DIMS,
    EXTERNAL,
    FACTS,
    FLOATS,
    GRAPH,
    INITIALIZERS,
    INPUTS,
    IR_VERSION,
    LOCATION,
    NAME,
    NODES,
    OP_TYPE,
    OUTPUTS,
    OWN_INITIALIZERS,
    RAW,
    READS,
    STORED,
    TENSOR,
    TENSOR_NAME,
    TYPE,
    TYPED,
    VALUES,
    WRITES,
)
from .predictions import LOSSES, LeftOut, leave_out_losses, losses_of, outer_names
from .program import Program
from .protobuf import Message, entry
from .quantised import QUANTISED, Stored, beyond, integers_of, names_of

# A protobuf message may not exceed 2 GiB; above this the weights go into `<path>.data`.
INLINE_LIMIT_NBYTES = 1_500_000_000
_WRITTEN = ("parameter", "buffer")  # roles of values that are written to the file
# Metadata: name in the file -> [parameter, axes], if the file's name or layout differs.
_SOURCES = "edgetrain.sources"
# Metadata: parameter -> [output of a node, name of its float attribute with the parameter].
_GIVEN = "edgetrain.attributes"


def export_trained(
    program: Program,
    state: Mapping[str, np.ndarray],
    path: str | Path,
    *,
    inline_limit_nbytes: int = INLINE_LIMIT_NBYTES,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write the trained model as ONNX.

    Leaves out outputs that training did not need and whose weights the Program therefore lacks, and
    a loss in the model together with the inputs that only the loss reads.

    Args:
      program: the trained Program; it contains the graph without weights.
      state: parameters and running statistics by name, in the Program's storage (sparse weights are
        written dense); everything else (optimizer state) is ignored.
      inline_limit_nbytes: weights beyond this size go into `<path>.data`.
      labels: class names, written as metadata (`LABELS`).
    Returns:
      The path written.
    Raises:
      UsageError: the name has the extension of another kind of file.
      ProgramError: the Program's graph is damaged, or an array doesn't have the graph's shape.
      RunError: a weight is not finite, or the file can't be written.
    """
    path = as_path("export_onnx", path)
    if path.suffix.lower() not in ("", ".onnx"):
        raise UsageError(
            f"export {path}: ends in {path.suffix}, but the file will be ONNX. Expected a name "
            "ending in .onnx."
        )
    _check_finite(path, nonfinite(finite_part(_trained(program, state), program.init)))
    try:
        model, graph = _parsed(program)
        shapes = {slot.name: slot.shape for slot in program.lasting}
        state = {n: decoded(a, shapes[n]) if n in shapes else a for n, a in state.items()}
        state = dense_state(layers_of(program.recipe), state)
        with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
            state = merged(program, state)
        _check_finite(path, nonfinite(finite_part(state, program.init)))
        plain = program.recipe.get("quantized") == "float"
        losses = losses_of(model)
        overflown = _finish(graph, _by_file_name(model, graph, state, plain), losses)
        _check_finite(path, overflown)
        if labels is not None:
            model.keep(METADATA, lambda item: item.text(1) != LABELS)
            text = json.dumps(list(labels), ensure_ascii=False)
            model.replace(METADATA, [*model.messages(METADATA), entry(LABELS, text)])
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise ProgramError(_damaged(program, error)) from error
    _save(model, graph, path, inline_limit_nbytes)
    return path


def write_initial(program: Program, path: Path) -> Path:
    """Write the model a Program was compiled from, with its initial weights.

    Batch-norm, dropout and metadata are unchanged, so it can be compiled again; weights that the
    Program stores in fewer bits have the rounded values.

    Args:
      path: a file in a directory that belongs to the caller.
    Raises:
      ProgramError: the Program's graph is damaged.
      RunError: the file can't be written.
    """
    check_files(program.init)
    try:
        model, graph = _parsed(program)
        shapes = {slot.name: slot.shape for slot in program.lasting}
        state: Mapping[str, np.ndarray] = {
            name: decoded(array, shapes[name]) for name, array in program.init.items()
        }
        state = _by_file_name(model, graph, dense_state(layers_of(program.recipe), state))
        missing, _ = _fill(graph, state)
        if missing:
            _drop_outputs(graph, missing)
            inputs = {value.text(NAME) for value in graph.messages(INPUTS)}
            _drop_unused(graph, {*state, *inputs})
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise ProgramError(_damaged(program, error)) from error
    _save(model, graph, path, INLINE_LIMIT_NBYTES)
    return path


def _check_finite(path: Path, wrong: str) -> None:
    """Raise RunError if a value to be written is not finite."""
    if wrong:
        raise RunError(
            f"{path}: not written, because {wrong!r} is not finite. Export an older checkpoint, or "
            "train with a lower learning rate."
        )


def names_in_file(program: Program) -> list[str]:
    """The stored model's tensors by their names in the Program, in file order.

    Raises:
      ProgramError: the Program's graph is damaged.
    """
    try:
        model, graph = _parsed(program)
        known = sources_of(model)
        names = [known.get(name, (name, None))[0] for name, _ in tensors_of(graph)]
        return [*names, *_given(model)]
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise ProgramError(_damaged(program, error)) from error


def outputs_in_file(program: Program) -> list[str]:
    """The outputs of the stored model.

    Raises:
      ProgramError: the Program's graph is damaged.
    """
    try:
        return [value.text(NAME) for value in _parsed(program)[1].messages(OUTPUTS)]
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise ProgramError(_damaged(program, error)) from error


def _trained(program: Program, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The part of `state` that goes into the file."""
    roles = {slot.name: slot.role for slot in program.persistent}
    return {n: a for n, a in state.items() if roles.get(n) in _WRITTEN}


def _parsed(program: Program) -> tuple[Message, Message]:
    """The stored model and its graph."""
    model = Message(program.onnx)
    graphs = model.messages(GRAPH)
    if not graphs or not graphs[-1].has(NODES):
        raise ProgramError(
            f"Program of {program.model_name!r}: it contains no ONNX graph. Compile it from an "
            "ONNX file."
        )
    if model.integer(IR_VERSION) < OWN_INITIALIZERS:
        model.set(IR_VERSION, OWN_INITIALIZERS)
    return model, graphs[-1]


def _damaged(program: Program, error: Exception) -> str:
    return (
        f"Program of {program.model_name!r}: its ONNX graph is damaged ({error}). Compile the "
        "model again."
    )


def left_out(program: Program) -> LeftOut:
    """The parts left out of a trained file, because only a loss in the model needs them.

    Raises:
      ProgramError: the Program's graph is damaged.
    """
    try:
        model, graph = _parsed(program)
        trained = {s.name for s in program.lasting if s.role in _WRITTEN}
        return loss_of(model, graph, losses_of(model), trained)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise ProgramError(_damaged(program, error)) from error


def loss_of(
    model: Message, graph: Message, losses: Sequence[str], names: Container[str]
) -> LeftOut:
    """Remove everything from a stored model that only its losses need; returns what was removed.

    Args:
      losses: outputs that are losses.
      names: of trained tensors.
    """
    if not losses:
        return LeftOut()
    known, tensors = sources_of(model), dict(tensors_of(graph))
    names = {name for name in tensors if known.get(name, (name, None))[0] in names}
    missing = {n for n, tensor in tensors.items() if n not in names and _is_emptied(tensor)}
    if missing:
        _drop_outputs(graph, missing)
    return leave_out_losses(graph, losses, names)


def _finish(graph: Message, state: Mapping[str, np.ndarray], losses: Sequence[str]) -> str:
    """Set trained weights and switch to inference; damage raises ordinary exceptions.

    Args:
      losses: outputs that are losses.
    Returns:
      Name of a tensor whose type is too narrow for its values; "" if all values fit.
    """
    missing, overflown = _fill(graph, state)
    _set_inference(graph)
    if missing:
        _drop_outputs(graph, missing)
    gone = leave_out_losses(graph, losses, state)
    inputs = {value.text(NAME) for value in graph.messages(INPUTS)}
    _drop_unused(graph, {*state, *inputs} if not gone.inputs else inputs)
    return overflown


def _by_file_name(
    model: Message, graph: Message, state: Mapping[str, np.ndarray], plain: bool = False
) -> dict[str, np.ndarray]:
    """The state with the file's names and layout: see importer/decode.py.

    Args:
      plain: integer weights were trained without rounding, so nothing kept them in range.
    """
    out = dict(state)
    for name, (source, axes) in sources_of(model).items():
        if source in state:
            array = np.asarray(state[source])
            out[name] = array if axes is None else np.transpose(array, axes)
    text = text_of(model, QUANTISED)
    named = names_of(text)
    tensors = {name: _stored(tensor) for name, tensor in tensors_of(graph) if name in named}
    lost, count = beyond(text, tensors, out) if plain else (0, 0)
    if lost:
        warn(
            f"{lost} of {count} quantised weights exceed the range of the file's scales and were "
            "clipped. Train with --quantized keep, or quantise the float model again."
        )
    out |= integers_of(text, tensors, out)
    _give(graph, _given(model), out)
    model.keep(METADATA, lambda item: item.text(1) not in (_SOURCES, QUANTISED, _GIVEN, LOSSES))
    return out


def _give(
    graph: Message, given: Mapping[str, tuple[str, str]], state: Mapping[str, np.ndarray]
) -> None:
    """Write parameters that are node attributes."""
    for name, (output, attribute) in given.items():
        if name not in state:
            continue
        for node in graph.messages(NODES):
            if output in node.texts(WRITES):
                for item in node.messages(ATTRIBUTES):
                    if item.text(NAME) == attribute:
                        item.clear(FLOATS)
                        item.set(FLOATS, decoded(np.asarray(state[name])).astype("<f4").tobytes())


def with_tensors(onnx: bytes, arrays: Mapping[str, np.ndarray]) -> bytes:
    """A stored model with values for its emptied tensors with these names."""
    model = Message(onnx)
    graph = model.messages(GRAPH)[-1]
    sources: dict[str, tuple[np.ndarray, Any]] = {n: (a, None) for n, a in arrays.items()}
    for name, (source, axes) in sources_of(model).items():
        if source in arrays:
            sources[name] = (arrays[source], axes)
    known, text = dict(tensors_of(graph)), text_of(model, QUANTISED)
    grids = {name: _stored(known[name]) for name in names_of(text) if name in known}
    integers = integers_of(text, grids, {name: array for name, (array, _) in sources.items()})
    sources |= {name: (array, None) for name, array in integers.items()}
    for name, tensor in known.items():
        if name in sources and not _has_data(tensor):
            array, axes = sources[name]
            _store(tensor, name, array if axes is None else np.transpose(array, axes))
    return b"".join(bytes(part) for part in model.chunks())


def _stored(tensor: Message) -> Stored:
    dims = tuple(tensor.integers(DIMS))
    return Stored(dims, STORED[tensor.integer(TYPE)], tensor.data(RAW))


def sources_of(model: Message) -> dict[str, tuple[str, Any]]:
    """{name in the file: (name here, axes of its layout)}, for names where either differs.

    Raises:
      ProgramError: the entry is damaged.
    """
    try:
        result = json.loads(text_of(model, _SOURCES) or "{}").items()
        return {name: (str(source), axes) for name, (source, axes) in result}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProgramError(
            f"its ONNX graph: metadata {_SOURCES} is damaged ({error}). Compile the model again."
        ) from error


def _given(model: Message) -> dict[str, tuple[str, str]]:
    """{parameter: (output of a node, attribute)} for parameters that the file has as attributes."""
    try:
        result = json.loads(text_of(model, _GIVEN) or "{}").items()
        return {name: (str(output), str(attribute)) for name, (output, attribute) in result}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProgramError(
            f"its ONNX graph: metadata {_GIVEN} is damaged ({error}). Compile the model again."
        ) from error


def tensors_of(graph: Message) -> Iterator[tuple[str, Message]]:
    """Initializers and the values of Constant nodes, by name."""
    for tensor in graph.messages(INITIALIZERS):
        yield tensor.text(TENSOR_NAME), tensor
    for node in graph.messages(NODES):
        if node.text(OP_TYPE) == "Constant":
            for attribute in node.messages(ATTRIBUTES):
                if attribute.text(NAME) == "value":
                    yield node.texts(WRITES)[0], attribute.messages(TENSOR)[-1]


def _fill(graph: Message, state: Mapping[str, np.ndarray]) -> tuple[set[str], str]:
    """Set the values of all tensors in `state`.

    Returns:
      Names of emptied tensors without values, and one whose type is too narrow for its values, or
      "".
    """
    missing, overflown = set(), ""
    for name, tensor in tensors_of(graph):
        if name in state:
            if not _store(tensor, name, np.asarray(state[name])):
                overflown = overflown or name
        elif _is_emptied(tensor):
            missing.add(name)
    return missing, overflown


def _is_emptied(tensor: Message) -> bool:
    return 0 not in tensor.integers(DIMS) and not _has_data(tensor)


def _has_data(tensor: Message) -> bool:
    return bool(tensor.numbers() - FACTS)


def _store(tensor: Message, name: str, array: np.ndarray) -> bool:
    """Set a tensor's values; False if finite values become infinite in its type."""
    dims, code = tensor.integers(DIMS), tensor.integer(TYPE)
    if tuple(dims) != array.shape:
        raise ProgramError(
            f"parameter {name!r}: its trained shape is {list(array.shape)}; the graph has {dims}. "
            "Use a state of this Program."
        )
    values = wide = decoded(array).astype("<f4")
    if (array.dtype.kind in "iu") != (np.dtype(STORED.get(code, "<f4")).kind in "iu"):
        raise ValueError(f"parameter {name!r} is {array.dtype}; the graph has element type {code}")
    if array.dtype.kind in "iu":
        values, finite = array.astype(STORED[code]), np.True_
    elif code == BFLOAT16:
        values = _bfloat16(wide)
        finite = values & 0x7F80 != 0x7F80
    elif code in STORED:
        with np.errstate(over="ignore"):
            values = wide.astype(STORED[code])
        finite = np.isfinite(values)
    else:
        raise ValueError(f"parameter {name!r} has the unsupported element type {code}")
    tensor.clear(*TYPED, EXTERNAL)
    tensor.set(RAW, values.tobytes())
    tensor.set(LOCATION, 0)
    return bool((finite | ~np.isfinite(wide)).all())


def _bfloat16(array: np.ndarray) -> np.ndarray:
    """The upper halves of float32, rounded to nearest even."""
    bits = np.ascontiguousarray(array).view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def _set_inference(graph: Message) -> None:
    """Use running statistics in batch-norm, and remove dropout and extra outputs."""
    moved: dict[str, str] = {}
    untracked: set[str] = set()
    for node in graph.messages(NODES):
        reads = [moved.get(name, name) for name in node.texts(READS)]
        kind = node.text(OP_TYPE)
        if kind == "BatchNormalization":
            # A second application of the same layer reads the statistics that the first updated.
            writes = node.texts(WRITES)
            if not is_tracked("".join(reads[3:4])) or untracked.intersection(reads[3:4]):
                untracked.update(writes[1:2])  # it uses batch statistics in evaluation too
                continue
            moved.update(zip(writes[1:3], reads[3:5], strict=False))
            _rename(node, WRITES, writes[:1])
            node.keep(ATTRIBUTES, lambda attribute: attribute.text(NAME) != "training_mode")
        elif kind == "Dropout":
            reads = reads[:2]
        _rename(node, READS, reads)
    gone = set(moved) - {""}
    for field in (OUTPUTS, VALUES):
        graph.keep(field, lambda value: value.text(NAME) not in gone)


def _rename(node: Message, field: int, names: list[str]) -> None:
    if names != node.texts(field):
        node.replace(field, [name.encode() for name in names])


def _drop_outputs(graph: Message, missing: set[str]) -> None:
    """Remove outputs that depend on `missing`."""
    lost = set(missing)
    for node in graph.messages(NODES):
        if lost.intersection(node.texts(READS)):
            lost.update(name for name in node.texts(WRITES) if name)
    graph.keep(OUTPUTS, lambda output: output.text(NAME) not in lost)
    if not graph.has(OUTPUTS):
        raise ProgramError(
            f"parameter {sorted(missing)[0]!r}: it is missing in the state. Use a state of this "
            "Program."
        )


def _drop_unused(graph: Message, keep: set[str]) -> None:
    """Remove nodes that no output needs, and unused constants."""
    wanted, nodes = {output.text(NAME) for output in graph.messages(OUTPUTS)}, []
    for node in reversed(graph.messages(NODES)):
        if wanted.intersection(node.texts(WRITES)):
            nodes.append(node)
            wanted.update(node.texts(READS))
            wanted.update(outer_names(node))
    graph.replace(NODES, nodes[::-1])

    def is_read(tensor: Message) -> bool:
        name = tensor.text(TENSOR_NAME)
        return name in wanted or name in keep and _has_data(tensor)

    graph.keep(INITIALIZERS, is_read)


def _save(model: Message, graph: Message, path: Path, limit: int) -> None:
    """Write the weight file first, so no model refers to one that doesn't exist."""
    if model.nbytes() > limit:
        data = path.with_name(f"{path.name}.data")
        big = [t for t in graph.messages(INITIALIZERS) if t.size(RAW) >= 1024]
        chunks = [tensor.data(RAW) for tensor in big]
        write_atomically(data, lambda file: file.writelines(chunks), links=False)
        offset = 0
        for tensor, chunk in zip(big, chunks, strict=True):
            _point_to(tensor, data.name, offset, len(chunk))
            offset += len(chunk)
    pieces = model.chunks()
    write_atomically(path, lambda file: file.writelines(pieces))


def _point_to(tensor: Message, location: str, offset: int, length: int) -> None:
    tensor.clear(RAW)
    tensor.set(LOCATION, 1)
    places = {"location": location, "offset": str(offset), "length": str(length)}
    tensor.replace(EXTERNAL, [entry(key, value) for key, value in places.items()])
