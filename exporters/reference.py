"""The torch reference: runs a bound ir graph in torch with autograd, on CPU or CUDA.

It computes the loss, gradients and running statistics that a training step should give. In float64
it is the exact reference; in float32 it shows how far torch itself is from that.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from edgetrain.compiler.bind import bind
from edgetrain.compiler.model.objective import only_output, without_absorbed
from edgetrain.compiler.model.outputs import with_output
from edgetrain.compiler.model.trained import Choice
from edgetrain.compiler.passes.autodiff import check_output
from edgetrain.compiler.passes.batch_norm import hold_statistics
from edgetrain.errors import UnsupportedOpError, UsageError
from edgetrain.exporters import reference_recurrent  # noqa: F401 - fills RULES
from edgetrain.exporters.reference_masks import MOVES, RULES
from edgetrain.exporters.reference_random import DRAWN
from edgetrain.exporters.twins import twin_of
from edgetrain.formats import FP32, Format
from edgetrain.ir import Node, Value
from edgetrain.losses import Loss
from edgetrain.losses.terms import Term
from edgetrain.ops.model import Model
from edgetrain.program import TARGET, WEIGHT

# Gradients stored in fp16 would vanish below 6e-8.
SCALE = 1024.0
# If a graph's values take more bytes, backward recomputes those inside a part.
MOST_KEPT = 1 << 30


class StepResult(NamedTuple):
    """The loss, gradients by parameter name, and buffers by name after the step."""

    loss: float
    gradients: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray]


def reference(
    model: Model,
    inputs: Mapping[str, np.ndarray],
    target: np.ndarray,
    loss: str | Loss = "cross_entropy",
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
    dims: Mapping[str, int] | None = None,
    output: str | None = None,
) -> StepResult:
    """One microbatch in training mode with dropout off, computed by torch.

    Args:
      inputs: by input name, each [n, ...].
      target: class indices, or values in the output's shape.
      dims: sizes of symbolic dimensions other than the batch.
      output: name of the output with the loss; default: the first.
    Raises:
      UnsupportedOpError: there is no rule for an ir op.
      UsageError: the target fits no axis, or the device is not available.
    """
    batch = len(next(iter(inputs.values())))
    return Reference(model, batch, device=device, dtype=dtype, dims=dims, output=output).step(
        inputs, target, loss
    )


class Storage(NamedTuple):
    """Storage formats of the engine: values between nodes, and weights and their gradients."""

    values: Format = FP32
    weights: Format = FP32


_PLAIN = Storage()


class _Rounded(torch.autograd.Function):
    """Rounds a value, and its gradient, to a storage format."""

    @staticmethod
    def forward(ctx, value: Tensor, storage: Format) -> Tensor:
        ctx.storage = storage
        return _rounded(value, storage)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        return _rounded(gradient, ctx.storage), None


def _rounded(value: Tensor, storage: Format) -> Tensor:
    stored = storage.encode(value.detach().cpu().numpy())
    return torch.as_tensor(storage.decode(stored)).to(value)


def scale_of(storage: Format) -> float:
    """The loss scale of parity: as in training if gradients would vanish in this format, else 1."""
    return SCALE if storage.loss_scale != 1 else 1.0


class Reference:
    """A model bound to a batch, with its state as torch tensors.

    Every parameter has a gradient; `train`, `freeze` and `freeze_bn` determine, as in compile,
    which batch-norms use their running statistics.

    If `storage` is coarser than float32, stored values and gradients are rounded to it, and the
    loss is multiplied by `loss_scale` for backward. With `moves`, stored parameters are multiplied
    by these factors, by name, and values that autograd saves inside an op are rounded too.

    Attributes:
      batch: samples per part; a step on more samples runs one part after the other, and batch-norms
        normalise and update by part, as in training with microbatches.
      factor: with several parts, the factor for an output that is a mean or sum over the batch; 1
        until it is set.
      parameters: leaf tensors by name, for torch.optim.
      buffers: tensors by name; `step` updates them.
      axis: sample axis of the output; `axes`: of the outputs of several losses, `terms`.
      output: the value with the loss; `output_name` is its name in the model.
      moment: seed and step with which the engine would draw random numbers.
    """

    def __init__(
        self,
        model: Model,
        batch: int,
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float64,
        dims: Mapping[str, int] | None = None,
        output: str | None = None,
        train: Sequence[str] = (),
        freeze: Sequence[str] = (),
        train_constants: Sequence[str] = (),
        freeze_bn: bool | None = None,
        axis: int = 0,
        storage: Storage = _PLAIN,
        terms: Sequence[Term] = (),
        axes: Sequence[int] = (),
        moves: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.device, self.dtype = _device(device), dtype
        self.batch, self.factor, self.axis = batch, 1.0, axis
        self.moment, self._part = (0, 0), 0
        self._storage, self.loss_scale = storage, scale_of(storage.values)
        self._is_coarse = moves is not None and storage.values is not FP32
        self._moves = {name: self.tensor(factors) for name, factors in (moves or {}).items()}
        model = with_output(model, output)
        bound = bind(model.without_dropout(), batch, dims)
        self.output_name = next(iter(bound.outputs)) if output is None else output
        self.output = check_output(bound.graph, bound.outputs, self.output_name)
        self.terms, self.axes = tuple(terms), tuple(axes) or (axis,)
        names = [term.output for term in terms] or [self.output_name]
        self.outputs = [check_output(bound.graph, bound.outputs, name) for name in names]
        choice = Choice(model, train, freeze, train_constants)
        self.graph = hold_statistics(only_output(bound.graph, *self.outputs), choice, freeze_bn)
        missing = sorted({node.op for node in self.graph.nodes} - set(RULES))
        if missing:
            raise UnsupportedOpError(
                f"ops {', '.join(missing)}: the torch reference has no rule for them; add one to "
                "exporters/reference_ops.py."
            )
        state = {name: self.tensor(array) for name, array in bound.arrays.items()}
        roles = {name: self.graph.values[name].role for name in state}
        self.parameters = {
            n: t.requires_grad_() for n, t in state.items() if roles[n] == "parameter"
        }
        self.buffers = {n: t for n, t in state.items() if roles[n] == "buffer"}
        self._constants = {
            n: t for n, t in state.items() if n not in self.parameters and n not in self.buffers
        }

    def tensor(self, array: np.ndarray) -> Tensor:
        """An array on the device: floats in the reference's dtype, integers as int64."""
        tensor = torch.tensor(np.asarray(array), device=self.device)
        return tensor.to(self.dtype if tensor.is_floating_point() else torch.int64)

    def step(
        self, inputs: Mapping[str, np.ndarray], target: np.ndarray | None, loss: str | Loss
    ) -> StepResult:
        """Forward, loss and backward; updates the buffers, not the parameters.

        Args:
          inputs: by name, each with a multiple of `batch` samples along axis 0, like the target.
            With several losses, `inputs` contains the targets of all outputs but the first.
          loss: ignored if the reference has `terms`.
        """
        only = Term(0, "", None, Loss.of(loss), TARGET)
        terms = self.terms or (only,)
        given = inputs if target is None else {**inputs, TARGET: target}
        weights = self.tensor(inputs[WEIGHT]) if WEIGHT in inputs else None
        with _exact(self.device):
            graph, taken = self.graph, []
            for term, output in zip(terms, self.outputs, strict=True):
                graph, seen = without_absorbed(graph, output, term.loss)
                taken.append(seen)
            value = torch.zeros((), dtype=self.dtype, device=self.device)
            with saved_tensors_hooks(self._kept, lambda kept: kept):
                made = self._outputs(inputs, taken, graph.nodes)
            for term, output_of in zip(terms, made, strict=True):
                own = term.loss
                wanted = self.tensor(given[term.target]) if term.target in given else None
                weighed = weights if own.sample_weights else None
                value = value + own.weight * twin_of(own).loss(own, output_of, wanted, weighed)
            leaves = list(self.parameters.values())
            scale = self.loss_scale
            result = torch.autograd.grad(value * scale, leaves, allow_unused=True)
        gradients = {
            name: _array(torch.zeros_like(leaf) if gradient is None else gradient / scale)
            for (name, leaf), gradient in zip(self.parameters.items(), result, strict=True)
        }
        return StepResult(
            float(value.detach()), gradients, {n: _array(t) for n, t in self.buffers.items()}
        )

    def _outputs(
        self, inputs: Mapping[str, np.ndarray], names: Sequence[str], nodes: Sequence[Node]
    ) -> list[Tensor]:
        """Values of all samples, computed part by part; each part updates the buffers."""
        count = len(next(iter(inputs.values())))
        result: list[list[Tensor]] = [[] for _ in names]
        for start in range(0, count, self.batch):
            part, self._part = slice(start, start + self.batch), start // self.batch
            values = self.forward({key: a[part] for key, a in inputs.items()}, names, nodes)
            self.buffers = {key: values[key].detach() for key in self.buffers}
            for own, name, axis in zip(result, names, self.axes, strict=True):
                own.append(values[name].movedim(axis, 0) if axis else values[name])
        return [self._whole(own) for own in result]

    def _whole(self, parts: list[Tensor]) -> Tensor:
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts[0].dim() else torch.stack(parts).mean() * self.factor

    def forward(
        self, inputs: Mapping[str, np.ndarray], names: Sequence[str], nodes: Sequence[Node]
    ) -> dict[str, Tensor]:
        """Values of these names, and the buffers after the step."""
        values: dict[str, Tensor] = {**self.parameters, **self.buffers, **self._constants}
        values = {name: self._stored(name, tensor) for name, tensor in values.items()}
        values |= {name: values[name] * factors for name, factors in self._moves.items()}
        for name in self.graph.inputs:
            given = self.tensor(inputs[name])
            integer = self.graph.values[name].dtype != "f32"
            values[name] = given.long() if integer else self._stored(name, given.to(self.dtype))
        parts, again = self._parts(nodes), self._is_large(nodes)
        needed = [{*names, *self.buffers}]  # after the last part, before it, and so on
        for part in reversed(parts):
            needed.append(needed[-1].union(*(node.inputs for node in part)))
        for part, after in zip(parts, needed[-2::-1], strict=True):
            reads = list(dict.fromkeys(n for node in part for n in node.inputs if n in values))
            run, made = self._runner(part, reads, after)
            operands = [values[name] for name in reads]
            results = (
                checkpoint(run, *operands, use_reentrant=False, preserve_rng_state=False)
                if again
                else run(*operands)
            )
            values = {n: t for n, t in values.items() if n in after}
            values |= dict(zip(made, results, strict=True))
        return values

    def _is_large(self, nodes: Sequence[Node]) -> bool:
        """Whether backward recomputes values; never if saved values are rounded."""
        shapes = (self.graph.values[name].shape for node in nodes for name in node.outputs if name)
        kept = sum(math.prod(shape) for shape in shapes) * self.dtype.itemsize
        return kept > MOST_KEPT and not self._is_coarse

    def _parts(self, nodes: Sequence[Node]) -> list[Sequence[Node]]:
        """Split the nodes: one node per part, or about sqrt(n) parts for a large graph."""
        size = math.isqrt(len(nodes)) if self._is_large(nodes) else 1
        return [nodes[k : k + size] for k in range(0, len(nodes), size)]

    def _runner(
        self, part: Sequence[Node], reads: Sequence[str], after: set[str]
    ) -> tuple[Callable[..., tuple[Tensor, ...]], list[str]]:
        """(function that runs a part on the values it reads, names of its results needed later)."""
        moment = (*self.moment, self._part)
        written = dict.fromkeys(name for node in part for name in _written(node))
        made = [name for name in written if name in after]

        def run(*operands: Tensor) -> tuple[Tensor, ...]:
            values = dict(zip(reads, operands, strict=True))
            for node in part:
                self._run(node, values, moment)
            return tuple(values[name] for name in made)

        return run, made

    def _run(self, node: Node, values: dict[str, Tensor], moment: tuple[int, int, int]) -> None:
        operands: list = [values[name] if name else None for name in node.inputs]
        if node.op in DRAWN:
            operands = [moment]
        declared = [self.graph.values[name] for name in node.outputs]
        made = RULES[node.op](node, operands, declared)
        made = made if isinstance(made, tuple) else (made,)
        for name, tensor in zip(_written(node), made, strict=True):
            if node.op in DRAWN or tensor.is_floating_point():
                # Floats computed only from integers or booleans have torch's default dtype.
                tensor = tensor.to(self.device, self.dtype)
            tensor = self._checked(node, self.graph.values[name], tensor)
            values[name] = self._stored(name, tensor)

    def _stored(self, name: str, tensor: Tensor) -> Tensor:
        """A written value as it is read back; vectors and statistics stay in fp32."""
        role = self.graph.values[name].role
        kept = role in ("buffer", "statistic") or (role != "activation" and tensor.dim() < 2)
        storage = self._storage.weights if role == "parameter" else self._storage.values
        if storage is FP32 or kept or not tensor.is_floating_point():
            return tensor
        return _Rounded.apply(tensor, storage)

    def _kept(self, tensor: Tensor) -> Tensor:
        """A saved value as backward reads it."""
        is_state = tensor.dim() < 2 or tensor.is_leaf
        if not self._is_coarse or is_state or not tensor.is_floating_point():
            return tensor
        return _rounded(tensor, self._storage.values)

    def _checked(self, node: Node, value: Value, tensor: Tensor) -> Tensor:
        if tuple(tensor.shape) != value.shape:
            raise UsageError(
                f"node {node.name!r} ({node.op}): the reference has shape "
                f"{list(tensor.shape)}; the graph has {list(value.shape)}."
            )
        return tensor


def _written(node: Node) -> list[str]:
    """Names of the values that a rule returns: outputs, or inputs that the op modifies."""
    return [node.inputs[k] for k in MOVES[node.op]] if node.op in MOVES else list(node.outputs)


def with_state(model: Model, arrays: Mapping[str, np.ndarray]) -> Model:
    """The same model with these parameters and buffers instead of its own."""
    return dataclasses.replace(model, initializers={**model.initializers, **arrays})


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device {name!r}: expected cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda: torch finds no CUDA device. Use --device cpu.")
    return device


@contextmanager
def _exact(device: torch.device) -> Iterator[None]:
    """Use full float32 products on CUDA: errors of its shorter formats would count as ours."""
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
