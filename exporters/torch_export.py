"""A torch module to an ONNX file that can be trained.

torch's own export is made for inference: it folds batch-norm into convolutions, merges equal
initializers, bakes the batch size, and drops dropout. Here the module is traced in training
mode with a symbolic batch, and every parameter reaches the file untouched, under torch's name.

The file's `metadata_props` (JSON, all optional for a reader):

    edgetrain.parameters   names of the initializers to train, in torch's order
    edgetrain.frozen       those of them with requires_grad=False
    edgetrain.buffers      names of the initializers that are buffers (running statistics, tables)
    edgetrain.tied         {other torch name: name of the initializer it shares}
    edgetrain.unused       parameters the forward pass never reads; they are not in the file
    edgetrain.padding_idx  {embedding weight: row that torch would keep out of the gradient}
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
from edgetrain.exporters.torch_graph import make_trainable
from edgetrain.exporters.torch_losses import traceable_losses
from edgetrain.exporters.torch_names import Inventory, take_inventory
from edgetrain.exporters.torch_ops import TRANSLATIONS, TRANSLATIONS_OF_LENGTHS
from edgetrain.exporters.torch_random import (
    DRAWN_OUTSIDE,
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
    """Something torch would do in training is not, or not fully, in the file."""


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
) -> Path:
    """Write `module` as an ONNX file that can be trained.

    A module in eval mode is traced as after `module.train()`; one already in training mode is
    traced as it stands, so that parts the caller put in eval mode (a frozen batch-norm) stay
    so. The module, its mode, and the random state are as before afterwards. Running
    statistics of a batch-norm that is applied twice are chained, as torch would update them.

    Args:
      module: any module torch.export can trace; positional tensor inputs only.
      example_inputs: one tensor or several, with the shapes to bind; values do not matter.
      path: the file to write; large models get `<path>.data` beside it.
      input_names, output_names: of the graph; by default `forward`'s arguments and torch's names.
      opset: 18 to 23, 20 by default (GroupNormalization is one op from 21, Attention from 23).
      batch_dim: the axis called "batch" in every input, or one per input; None for an input
        without one.
      dims: names of other axes whose size is chosen when the file is compiled (`dims`, `lengths`):
        {1: "seq"} for all inputs that have this axis, or a mapping per input.
      external_data: weights in a file of their own; "auto" does so above 1.5 GB.
    Returns:
      The path written.
    Raises:
      UsageError: the arguments do not fit together, or opset is out of range.
      ModelError: torch cannot export the module with a symbolic batch (give batch_dim=None
        to bake it), or what it wrote would not train as the module does (a parameter folded
        away, dropout lost).
    Source: the recipe is edgetrain's own; torch.onnx.export(dynamo=True) does the tracing.
    """
    path = as_path("export_torch: path", path, "the path of an ONNX file to write")
    _check_module(module)
    inputs, batches = _batched_inputs(example_inputs, batch_dim)
    named = _named_axes(inputs, batches, dims)
    opset = _checked_opset(opset)
    if not path.parent.is_dir():
        raise UsageError(f"'{path}': the directory does not exist. Create it first.")
    inventory = take_inventory(module)
    with _quiet(), _training_mode(module), _random_state_kept(module):
        traced, program = _trace(module, inventory, inputs, named, input_names, output_names, opset)
    model = program.model
    _check_written(model, module, opset)
    read_trace(inventory, traced, program.exported_program)
    with _quiet():
        make_trainable(model, inventory)
    for key, value in inventory.metadata().items():
        model.metadata_props[f"edgetrain.{key}"] = json.dumps(value)
    for message in inventory.warnings():
        warnings.warn(message, ExportWarning, stacklevel=2)
    save_atomically(model, path, external_data)
    return path


def _check_written(model: Any, module: nn.Module, opset: int) -> None:
    """Refuse a model that torch wrote in another opset."""
    written = model.opset_imports.get("")
    if written != opset:
        raise ModelError(
            f"module '{type(module).__name__}': torch wrote opset {written}, asked for {opset}. "
            "Leave out opset=."
        )


def _check_module(module: Any) -> None:
    """Raises UsageError if it is no module; weights and classes are the usual mistakes."""
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
    """Return the inputs with at least two samples each, and the batch axis of each."""
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
        if any(tensor is other for other in inputs[:index]):  # torch would make them one input
            tensor = tensor.clone()
        # torch.export specialises dimensions of size 1, which would bake the batch.
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
    """Names of each input's axes that stay symbolic, the batch among them."""
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
    output_names: Sequence[str] | None,
    opset: int,
) -> tuple[torch.export.ExportedProgram, Any]:
    """Return the traced module and torch's ONNX program of it.

    The two steps are called one by one: torch.onnx.export alone answers a batch size that
    cannot be symbolic by baking it, silently.
    """
    known = {name: torch.export.Dim(name) for axes in named for name in axes.values()}
    shapes = tuple({axis: known[name] for axis, name in axes.items()} or None for axes in named)
    dynamic = _as_arguments(module, shapes) if any(shapes) else None
    lengths: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    translations, outside = TRANSLATIONS, outside_state()
    if {*known} - {"batch"}:
        lengths, translations = recurrences_of_any_length(), TRANSLATIONS_OF_LENGTHS
    try:
        with lengths:
            with (
                traceable_random_numbers(),
                traceable_functions(),
                traceable_losses(),
                traceable_experts(module),
            ):
                traced = torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            program = torch.onnx.export(
                traced,
                (),
                None,
                dynamo=True,
                optimize=False,
                verbose=False,
                dynamic_shapes=dynamic,  # here for the name "batch" alone
                custom_translation_table=translations,
                opset_version=opset,
                input_names=list(input_names) if input_names else None,
                output_names=list(output_names) if output_names else None,
            )
        inventory.drawn_outside = outside_state() != outside
        return traced, program
    except Exception as error:  # torch raises a dozen unrelated types from here
        move = DRAWN_OUTSIDE if outside_state() != outside else hint(_messages(error))
        raise ModelError(
            f"module '{inventory.owner}': torch cannot export it with a symbolic batch: "
            f"{_root_cause(error)}. {move or inventory.advice_when_untraceable()}"
        ) from error


def _as_arguments(module: nn.Module, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Nest the shapes of a `*args` parameter of forward, as torch.export wants them."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    for index, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and shapes[index:]:
            return (*shapes[:index], shapes[index:])
    return shapes


def _root_cause(error: BaseException) -> str:
    """Return the first lines of what torch's nested exceptions are about."""
    while isinstance(error, torch.onnx.OnnxExporterError) and error.__cause__:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) or "no message"
    return f"{type(error).__name__}: {text[:_MESSAGE_LIMIT].rstrip('.')}"


def _messages(error: BaseException | None) -> str:
    """Kinds and texts of an error and of what caused it."""
    result = []
    while error is not None:
        result.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return " ".join(result)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what torch.onnx and onnxscript warn of, log and print: none of it is actionable."""
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
