"""A model as plain data, loaded from an ONNX file, before its dimensions have sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..errors import ModelError, UsageError, one_line
from ..units.wording import counted
from .allowance import Memory
from .onnx_ops import OnnxNode, onnx_op


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input of the model. Each dimension is an int, a symbol's name or None (unknown).

    `dtype` is float, int or bool; `batch` is the sample axis.
    """

    name: str
    dims: tuple[int | str | None, ...]
    dtype: str = "float"
    batch: int = 0

    def label(self, axis: int) -> str:
        """The name of a dimension for `--dim`."""
        dim = self.dims[axis]
        return dim if isinstance(dim, str) else f"{self.name}.{axis}"


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A loaded model, for `compile`. Compared by identity.

    Attributes:
      nodes: nodes in topological order.
      initializers: arrays by name, parameters and others.
      parameters: names of trainable initializers, in file order.
      buffers: names of running statistics.
      aliases: other torch names of a tied parameter -> its name here.
      weightless: the ONNX file without weights, used to write the trained file.
      warnings: notes of the importer for the user.
      frozen: parameters the original did not train, and running means of batch-norms it kept in
        evaluation mode; trained only if a pattern names them.
      source: path of the file, or "".
      untrained: constants that may be weights; trained only if a pattern names them.
      operands: name -> op, for named constants in arithmetic with data; reported, not trained.
      floats: outputs that may be floats; empty if unknown.
      adapters: parameters added by edgetrain, trained in addition to what patterns name.
      heads: replaced last layers, as in `Options.new_head`.
      fresh: weights of those layers, trained in addition to what patterns name.
      wanted: inputs whose gradients are requested, in addition to those of parameters.
      memory: cache of folded constants, shared by all models made from this one.
      batch_known: whether the file determines the sample axis of each input; if not, compiling
        finds it (compiler/model/batch.py).
    """

    name: str
    nodes: tuple[OnnxNode, ...]
    initializers: Mapping[str, np.ndarray]
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    opset: int
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    weightless: bytes = b""
    warnings: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    source: str = ""
    untrained: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    operands: Mapping[str, str] = field(default_factory=dict)
    floats: tuple[str, ...] = ()
    heads: Mapping[str, int] = field(default_factory=dict)
    fresh: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    memory: Memory = field(default_factory=Memory, repr=False)
    batch_known: bool = True

    def __repr__(self) -> str:
        numbers = sum(self.initializers[name].size for name in self.parameters)
        inputs = ", ".join(spec.name for spec in self.inputs)
        return (
            f"Model({self.name!r}, inputs {inputs}, {counted(len(self.nodes), 'node')}, "
            f"{counted(len(self.parameters), 'parameter')} with {numbers:,} numbers)"
        )

    def without_dropout(self) -> "Model":
        """The same model with dropout disabled."""
        if not any(onnx_op(node.op_type).training_only for node in self.nodes):
            return self
        nodes = tuple(
            OnnxNode(n.name, "Identity", n.inputs[:1], n.outputs[:1])
            if onnx_op(n.op_type).training_only
            else n
            for n in self.nodes
        )
        return replace(self, nodes=nodes)


def batch_inputs(model: Model) -> dict[Any, InputSpec]:
    """Batch dimension -> an input that has it."""
    return {spec.dims[spec.batch]: spec for spec in model.inputs if spec.dims}


def free_dims(model: Model) -> set[str]:
    """Names of dimensions without a size in the file, except the batch."""
    return {
        spec.label(axis)
        for spec in model.inputs
        for axis, dim in enumerate(spec.dims)
        if axis != spec.batch and not isinstance(dim, int)
    } - {*batch_inputs(model)}


def check_dims(model: Model, dims: Mapping[str, int]) -> None:
    """Check that each given size belongs to a dimension that needs one.

    Raises:
      UsageError: there is no such dimension, or it is the batch.
    """
    batch, free = batch_inputs(model), free_dims(model)
    for name, size in dims.items():
        if name in batch:
            raise UsageError(
                f"dim {name}={size}: this is the batch (axis {batch[name].batch} of input "
                f"{batch[name].name!r}). Use --minibatch and --microbatch instead."
            )
        if name not in free:
            raise UsageError(
                f"dim {name}={size}: no such free dimension; the model has "
                f"{', '.join(sorted(free)) or 'none'}."
            )


_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def names_file(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Decorator: add the model's file name to ModelErrors. The function's first argument is a
    model, or an object with an attribute `model`."""

    @wraps(function)
    def named(*args: _Given.args, **options: _Given.kwargs) -> _Found:
        try:
            return function(*args, **options)
        except ModelError as error:
            first = args[0] if args else options.get("model", options.get("compilation"))
            model = getattr(first, "model", first)
            name_file(error, model.source if isinstance(model, Model) else "")
            raise

    return named


def name_file(error: ModelError, path: str) -> None:
    """Add the model's file name to an error, if missing."""
    if path and one_line(path) not in str(error):
        error.args = (one_line(f"{path}: {error}"),)
