"""Exports a torch module as an ONNX file that can be trained.

torch's own export is made for inference: it folds batch-norm into convolutions, merges equal
initializers, fixes the batch size, and drops dropout. Here the module is traced in training mode
with a symbolic batch, and every parameter gets into the file unchanged, under torch's name.

The file's `metadata_props` (JSON, all optional for a reader):

    edgetrain.parameters   names of the initializers to train, in torch's order
    edgetrain.frozen       those of them with requires_grad=False or that no gradient reaches, and
                           running means of batch-norms that were in evaluation mode in a module in
                           training mode
    edgetrain.buffers      names of the initializers that are buffers (running statistics, tables)
    edgetrain.tied         {other torch name: name of the initializer it shares}
    edgetrain.unused       parameters that the forward pass never reads; not in the file
    edgetrain.padding_idx  {embedding weight: row that torch would exclude from the gradient}
"""

import contextlib
import inspect
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from edgetrain.errors import ModelError, UsageError
from edgetrain.exporters.onnx_save import save_atomically
from edgetrain.exporters.torch_check import check_file
from edgetrain.exporters.torch_detach import stopped
from edgetrain.exporters.torch_gradients import noting_gradients
from edgetrain.exporters.torch_graph import make_trainable
from edgetrain.exporters.torch_losses import traceable_losses
from edgetrain.exporters.torch_names import Inventory, take_inventory
from edgetrain.exporters.torch_ops import TRANSLATIONS, TRANSLATIONS_OF_LENGTHS
from edgetrain.exporters.torch_random import (
    DRAWN_OUTSIDE,
    draws_in_evaluation,
    outside_state,
    traceable_random_numbers,
)
from edgetrain.exporters.torch_trace import read_trace
from edgetrain.exporters.torch_words import (
    hint,
    recurrences_of_any_length,
    traceable_experts,
    traceable_functions,
)
from edgetrain.units.public import as_path, public

DEFAULT_OPSET = 20
OPSETS = range(18, 24)
_MESSAGE_LIMIT = 400

ExternalData = Literal["auto"] | bool
BatchDim = int | None | Sequence[int | None]
NamedDims = Mapping[int, str] | Sequence[Mapping[int, str] | None] | None


class ExportWarning(UserWarning):
    """The file misses something that torch does in training, at least partly."""


@public
def export_torch(
    module: nn.Module,
    example_inputs: torch.Tensor | Sequence[torch.Tensor],
    path: str | Path,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    batch_dim: BatchDim = 0,
    external_data: ExternalData = "auto",
    dims: NamedDims = None,
    check: bool = True,
) -> Path:
    """Write `module` as an ONNX file that can be trained.

    A module in eval mode is traced as after `module.train()`. A module already in training mode is
    traced as it is, so parts that you put in eval mode (a frozen batch-norm) stay that way. The
    module, its mode and the random state are unchanged afterwards. Running statistics of a
    batch-norm that is applied twice are chained, as torch would update them.

    Args:
      module: any module that torch.export can trace; only positional tensor inputs.
      example_inputs: one or more tensors with the shapes to bind; values don't matter.
      path: the file to write; large models also get `<path>.data`.
      input_names, output_names: names in the graph; default: `forward`'s arguments, torch's names.
      opset: 18 to 23, default 20 (GroupNormalization is one op from 21, Attention from 23).
      batch_dim: the axis called "batch" in every input, or one per input; None for an input without
        one.
      dims: names of other axes whose size is set when the file is compiled (`dims`, `lengths`): {1:
        "seq"} for all inputs with this axis, or a mapping per input.
      check: run the file (in onnxruntime, or onnx.reference if it is missing) and the module in
        evaluation mode on the example inputs, and compare the outputs.
      external_data: store weights in a separate file; "auto": above 1.5 GB.
    Returns:
      The path of the file.
    Raises:
      UsageError: the arguments don't fit together, or opset is out of range.
      ModelError: torch can't export the module with a symbolic batch (batch_dim=None fixes the
        batch size), or the result would not train like the module (a parameter folded away, dropout
        lost), or an output of the file differs from the module's (`check`).
    Source: the recipe is edgetrain's own; torch.onnx.export(dynamo=True) does the tracing.
    """
    path = _writable(path)
    _check_module(module)
    inputs, batches = _batched_inputs(example_inputs, batch_dim)
    named = _named_axes(inputs, batches, dims)
    opset = _checked_opset(opset)
    inventory = take_inventory(module)
    _check_names(inventory, input_names, output_names)
    with _quiet(), _training_mode(module), _random_state_kept(module):
        program = _trace(module, inventory, inputs, named, input_names, opset)
    model = program.model
    _check_written(model, module, opset)
    read_trace(inventory, program.exported_program)
    with _quiet(), _random_state_kept(module):
        make_trainable(model, inventory, output_names)
        inventory.masks_evaluate = bool(inventory.masks) and draws_in_evaluation(module, inputs)
    for message in _saved(model, path, external_data, module, inputs, inventory, check):
        warnings.warn(message, ExportWarning, stacklevel=2)
    return path


def _saved(
    model: Any,
    path: Path,
    external_data: ExternalData,
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    inventory: Inventory,
    check: bool,
) -> list[str]:
    """Write the file, unless `check` finds that it is wrong; returns the warnings."""
    for key, value in inventory.metadata().items():
        model.metadata_props[f"edgetrain.{key}"] = json.dumps(value)
    messages = inventory.warnings()

    def checked(file: Path) -> None:
        with _quiet(), _random_state_kept(module):
            messages.append(check_file(file, module, inputs, inventory) if check else "")

    save_atomically(model, path, external_data, checked)
    return [*filter(None, messages)]


def _writable(path: str | Path) -> Path:
    path = as_path("export_torch: path", path, "the path of an ONNX file to write")
    if not path.parent.is_dir():
        raise UsageError(f"'{path}': the directory does not exist. Create it first.")
    return path


def _check_names(inventory: Inventory, *given: Sequence[str] | None) -> None:
    """Refuse names of inputs and outputs that parameters or buffers have."""
    taken = {*inventory.parameters, *inventory.buffers, *inventory.tied}
    for name in (name for names in given for name in names or ()):
        if name in taken:
            raise UsageError(
                f"{name!r}: a parameter or buffer of the module has this name. Choose another in "
                "input_names or output_names."
            )


def _check_written(model: Any, module: nn.Module, opset: int) -> None:
    """Refuse a model that torch wrote with another opset."""
    written = model.opset_imports.get("")
    if written != opset:
        raise ModelError(
            f"module '{type(module).__name__}': torch wrote opset {written}, asked for {opset}. "
            "Leave out opset=."
        )


def _check_module(module: Any) -> None:
    """Raise UsageError for anything but a module, such as weights or a class."""
    if isinstance(module, nn.Module):
        return
    result, move = type(module).__name__, "Pass the module."
    if isinstance(module, type):
        result, move = f"the class {module.__name__}", f"Pass an object: {module.__name__}(..)."
    elif isinstance(module, Mapping):
        move = "Create the module, then call its load_state_dict with these weights."
    raise UsageError(f"export_torch: module: {result}; expected a torch.nn.Module. {move}")


def _checked_opset(opset: int | None) -> int:
    opset = DEFAULT_OPSET if opset is None else opset
    if opset not in OPSETS:
        raise UsageError(f"opset {opset}: expected {OPSETS[0]} to {OPSETS[-1]}.")
    return opset


def _batched_inputs(
    example: torch.Tensor | Sequence[torch.Tensor], batch_dim: BatchDim
) -> tuple[tuple[torch.Tensor, ...], tuple[int | None, ...]]:
    """(inputs with at least two samples each, batch axis of each)."""
    inputs = (example,) if isinstance(example, torch.Tensor) else tuple(example)
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"example input {index}: {type(tensor).__name__}; expected a tensor.")
    dims = tuple(batch_dim) if isinstance(batch_dim, Sequence) else (batch_dim,) * len(inputs)
    if len(dims) != len(inputs):
        raise UsageError(f"batch_dim has {len(dims)} entries for {len(inputs)} example inputs.")
    batched = []
    for index, (tensor, dim) in enumerate(zip(inputs, dims, strict=True)):
        if dim is not None and not -tensor.dim() <= dim < tensor.dim():
            raise UsageError(
                f"example input {index}: batch_dim {dim}, but it has {tensor.dim()} dimensions. "
                "Pass one batch_dim per input; None if it has no batch."
            )
        if any(tensor is other for other in inputs[:index]):  # torch would merge them
            tensor = tensor.clone()
        # torch.export specialises dimensions of size 1, which would fix the batch size.
        if dim is not None and tensor.shape[dim] == 1:
            tensor = torch.cat([tensor, tensor], dim)
        batched.append(tensor)
    return tuple(batched), tuple(
        None if dim is None else dim % tensor.dim()
        for dim, tensor in zip(dims, inputs, strict=True)
    )


def _named_axes(
    inputs: tuple[torch.Tensor, ...], batches: tuple[int | None, ...], dims: NamedDims
) -> list[dict[int, str]]:
    """For each input, names of the axes that stay symbolic, including the batch."""
    each = [dims or {}] * len(inputs) if dims is None or isinstance(dims, Mapping) else [*dims]
    if len(each) != len(inputs):
        raise UsageError(f"dims has {len(each)} entries for {len(inputs)} example inputs.")
    result = []
    for index, (tensor, batch, own) in enumerate(zip(inputs, batches, each, strict=True)):
        axes = {} if batch is None else {batch: "batch"}
        for axis, name in (own or {}).items():
            if not isinstance(axis, int) or not isinstance(name, str) or not name.isidentifier():
                raise UsageError(f"dims: {axis!r}: {name!r}; expected an axis and its name.")
            if axis == batch or (axis >= tensor.dim() and not isinstance(dims, Mapping)):
                raise UsageError(
                    f"dims: example input {index} has shape {list(tensor.shape)}, batch along "
                    f"axis {batch}; axis {axis} can't be {name!r}."
                )
            if axis < tensor.dim():
                axes[axis] = name
                if tensor.shape[axis] < 2:
                    raise UsageError(
                        f"example input {index}: axis {axis} ({name!r}) has size 1, which torch "
                        "takes for a constant. Pass an example with more."
                    )
        result.append(axes)
    return result


def _trace(
    module: nn.Module,
    inventory: Inventory,
    inputs: tuple[torch.Tensor, ...],
    named: Sequence[Mapping[int, str]],
    input_names: Sequence[str] | None,
    opset: int,
) -> Any:
    """Return the ONNX program of the traced module.

    Both steps are called separately: if the batch size can't be symbolic, torch.onnx.export would
    silently fix it.
    """
    known = {name: torch.export.Dim(name) for axes in named for name in axes.values()}
    shapes = tuple({axis: known[name] for axis, name in axes.items()} or None for axes in named)
    dynamic = _as_arguments(module, shapes) if any(shapes) else None
    lengths: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    translations, outside = TRANSLATIONS, outside_state()
    if {*known} - {"batch"}:
        lengths, translations = recurrences_of_any_length(), TRANSLATIONS_OF_LENGTHS
    traced = None
    try:
        with lengths:
            with (
                traceable_random_numbers(),
                traceable_functions(),
                traceable_losses(),
                traceable_experts(module),
                noting_gradients(inventory.changed_gradients),
            ):
                traced = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            traced = stopped(inventory, traced)
            program = torch.onnx.export(
                traced,
                (),
                None,
                dynamo=True,
                optimize=False,
                verbose=False,
                dynamic_shapes=dynamic,  # only needed for the name "batch"
                custom_translation_table=translations,
                opset_version=opset,
                input_names=list(input_names) if input_names else None,
            )
        inventory.drawn_outside = outside_state() != outside
        return program
    except Exception as error:  # torch raises a dozen unrelated types here
        move = DRAWN_OUTSIDE if outside_state() != outside else hint(_messages(error))
        how = " with a symbolic batch" if any(shapes) and traced is None else ""
        raise ModelError(
            f"module '{inventory.owner}': torch cannot export it{how}: {_root_cause(error)}. "
            f"{move or inventory.advice_when_untraceable()}"
        ) from error


def _as_arguments(module: nn.Module, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Nest the shapes of a `*args` parameter of forward, as torch.export requires."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    for index, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and shapes[index:]:
            return (*shapes[:index], shapes[index:])
    return shapes


def _root_cause(error: BaseException) -> str:
    """First lines of the actual cause among torch's nested exceptions."""
    while isinstance(error, torch.onnx.OnnxExporterError) and error.__cause__:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) or "no message"
    return f"{type(error).__name__}: {text[:_MESSAGE_LIMIT].rstrip('.')}"


def _messages(error: BaseException | None) -> str:
    """Types and texts of an error and its causes."""
    result = []
    while error is not None:
        result.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return " ".join(result)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings, logs and prints of torch.onnx and onnxscript; none of them is
    actionable."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _training_mode(module: nn.Module) -> Iterator[None]:
    flags = [(part, part.training) for part in module.modules()]
    if not module.training:
        module.train()
    try:
        yield
    finally:
        for part, flag in flags:
            part.training = flag


@contextlib.contextmanager
def _random_state_kept(module: nn.Module) -> Iterator[None]:
    devices = {tensor.device for tensor in module.parameters() if tensor.device.type == "cuda"}
    with torch.random.fork_rng(devices=[device.index for device in devices]):
        yield
