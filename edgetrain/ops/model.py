"""A model as plain data, after the ONNX file and before any dimension is bound."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from ..errors import ModelError, UsageError, one_line
from .allowance import Memory
from .registry import OnnxNode


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input of the model; a dimension is an int, a symbol's name or None (unknown).

    `dtype` is float, int or bool; `batch` is the axis that counts the samples.
    """

    name: str
    dims: tuple[int | str | None, ...]
    dtype: str = "float"
    batch: int = 0

    def label(self, axis: int) -> str:
        """What `--dim` calls a dimension."""
        dim = self.dims[axis]
        return dim if isinstance(dim, str) else f"{self.name}.{axis}"


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """What `load_onnx` returns; `compile` binds it. Equal to itself alone.

    Attributes:
      nodes: in topological order.
      initializers: arrays by name, parameters and others.
      parameters: names of trainable initializers, in file order.
      buffers: names of running statistics.
      aliases: further torch names of a tied parameter -> the name that is kept.
      weightless: the ONNX file without weights, from which the trained file is written.
      warnings: what the importer noticed and the user should know.
      frozen: parameters that the original did not train; trained only where a pattern asks.
      source: path of the file; "" where there was none.
      untrained: constants that may have been weights; trained only where a pattern asks.
      operands: name -> op, of named constants that arithmetic with data takes: said, not trained.
      floats: outputs that may hold floats; empty where nothing tells.
      adapters: parameters that were added to the file's, trained beside what patterns ask for.
      heads: last layers that were replaced, as `Options.new_head` says; `fresh`: their weights,
        which are trained beside what patterns ask for.
      wanted: inputs whose gradients are asked for, beside those of parameters.
      memory: constants that were folded; one for all models that are made of this one.
      batch_known: whether the file says which axis of each input counts the samples; if not,
        compiling finds out (compiler/model/batch.py).
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
            f"Model({self.name!r}, inputs {inputs}, {len(self.nodes)} nodes, "
            f"{len(self.parameters)} parameters of {numbers:,} numbers)"
        )

    def without_dropout(self) -> "Model":
        """The same model whose dropouts pass everything on."""
        if not any(node.op_type == "Dropout" for node in self.nodes):
            return self
        nodes = tuple(
            OnnxNode(n.name, "Identity", n.inputs[:1], n.outputs[:1])
            if n.op_type == "Dropout"
            else n
            for n in self.nodes
        )
        return replace(self, nodes=nodes)


def check_dims(model: Model, dims: Mapping[str, int]) -> None:
    """Every size that is given is that of a dimension which needs one.

    Raises:
      UsageError: no dimension of this name, or the batch's.
    """
    shaped = [spec for spec in model.inputs if spec.dims]
    batch = {spec.dims[spec.batch]: spec for spec in shaped}
    free = {
        spec.label(axis)
        for spec in shaped
        for axis, dim in enumerate(spec.dims)
        if axis != spec.batch and not isinstance(dim, int)
    } - {*batch}
    for name, size in dims.items():
        if name in batch:
            raise UsageError(
                f"dim {name}={size}: this is the batch (axis {batch[name].batch} of input "
                f"{batch[name].name!r}). Set it by --minibatch and --microbatch, and leave the dim "
                "out."
            )
        if name not in free:
            raise UsageError(
                f"dim {name}={size}: no input has a dimension of this name to be set; there is "
                f"{', '.join(sorted(free)) or 'none'}."
            )


_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def names_file(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """Have a ModelError of a function of a model, its first argument, name the model's file."""

    @wraps(function)
    def named(*args: _Given.args, **options: _Given.kwargs) -> _Found:
        try:
            return function(*args, **options)
        except ModelError as error:
            model = args[0] if args else options.get("model")
            name_file(error, model.source if isinstance(model, Model) else "")
            raise

    return named


def name_file(error: ModelError, path: str) -> None:
    """Have the message of an error begin with the model's file, where it does not name it."""
    if path and one_line(path) not in str(error):
        error.args = (one_line(f"{path}: {error}"),)
