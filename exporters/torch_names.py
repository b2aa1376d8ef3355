"""Which tensors of a torch module the forward pass reads, and their names.

Vocabulary: the *kept* name of a tensor is the one in the ONNX file, the first that torch lists; an
*alias* is any other name of the same tensor (tied weights).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from edgetrain.errors import UsageError
from edgetrain.exporters.torch_gradients import hooked
from edgetrain.exporters.torch_random import DRAWN_OUTSIDE


@dataclass
class Inventory:
    """The tensors of one module; `torch_trace.read_trace` completes it from the trace.

    Attributes:
      owner: class name of the module, for messages.
      parameters: kept name -> parameter, in torch's order.
      buffers: kept name -> buffer, in torch's order.
      persistent: kept names of buffers in the state dict.
      tied: alias -> kept name, for parameters and buffers.
      used: kept names that outputs of the forward pass depend on.
      mutated: kept names of buffers that the forward pass writes.
      stale: used buffers whose update in the forward pass is not in the file.
      unreached: trainable parameters that no gradient reaches, so torch never updates them.
      padding_idx: embedding weight -> its padding row.
      changed_gradients: hooks and functions that change gradients, which are not in the file.
      held: running means of batch-norms that use running statistics in training.
      random: nodes of the file that also draw random numbers in evaluation.
      masks: number of random masks that became Dropout.
      masks_evaluate: whether they are drawn in evaluation too.
      drawn_outside: whether the forward pass used random generators of Python or numpy.
    """

    owner: str
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    persistent: set[str] = field(default_factory=set)
    tied: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    mutated: set[str] = field(default_factory=set)
    stale: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    padding_idx: dict[str, int] = field(default_factory=dict)
    changed_gradients: dict[str, None] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)
    masks: int = 0
    masks_evaluate: bool = False
    drawn_outside: bool = False

    def keep(self, name: str) -> str:
        """The name in the file of the tensor that torch calls `name`."""
        return self.tied.get(name, name)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter and buffer, by kept name."""
        return {n: tuple(t.shape) for n, t in (self.parameters | self.buffers).items()}

    def must_survive(self) -> list[str]:
        """Names that must be initializers of the file.

        Non-persistent buffers that are never written are constants: masks, position numbers.
        """
        return [
            name
            for name in (*self.parameters, *self.buffers)
            if name in self.used
            and (name in self.parameters or name in self.persistent or name in self.mutated)
        ]

    def metadata(self) -> dict[str, Any]:
        """The metadata documented in `torch_export`: key without prefix -> JSON value."""
        survive = self.must_survive()
        result: dict[str, Any] = {
            "parameters": [name for name in survive if name in self.parameters],
            "buffers": [name for name in survive if name in self.buffers],
            "frozen": [
                *(n for n, p in self.parameters.items() if not p.requires_grad),
                *self.unreached,
                *self.held,
            ],
            "tied": {alias: kept for alias, kept in self.tied.items() if kept in survive},
            "unused": self._unused(),
            "padding_idx": self.padding_idx,
        }
        required = ("parameters", "buffers")
        return {key: value for key, value in result.items() if value or key in required}

    def warnings(self) -> list[str]:
        """Messages about parts of the module that the file can't represent."""
        messages = []
        if unused := self._unused():
            messages.append(
                f"module '{self.owner}': the file leaves out {', '.join(unused)}, which the "
                "forward pass never uses. Remove such parameters, or use them."
            )
        if self.stale:
            messages.append(
                f"module '{self.owner}': the forward pass updates {', '.join(self.stale)}, which "
                "are constants in the file; only batch-norm statistics are updated."
            )
        if self.changed_gradients:
            messages.append(
                f"module '{self.owner}': {', '.join(self.changed_gradients)} may change gradients, "
                "but the file contains only the forward pass, whose gradients edgetrain derives. "
                "Remove them, or check that they agree with autograd."
            )
        if self.drawn_outside:
            messages.append(f"module '{self.owner}': {DRAWN_OUTSIDE}")
        if self.random:
            messages.append(
                f"module '{self.owner}': {', '.join(self.random)} draw random numbers, in "
                "the file also in evaluation. To avoid that, draw them outside the module and "
                "pass them as an input."
            )
        if self.masks_evaluate:
            messages.append(
                f"module '{self.owner}': it also draws its masks of 0 and 1 in evaluation, but in "
                "the file they are Dropout, which is off there. To keep them random, pass the mask "
                "as an input."
            )
        for name, row in self.padding_idx.items():
            messages.append(
                f"'{name}': ONNX has no padding_idx, so row {row} gets gradients. Mask the loss at "
                "padded positions (ignore_index), or accept it."
            )
        return messages

    def advice_when_untraceable(self) -> str:
        """What to do next; torch can't trace a written buffer that has two names."""
        shared = [f"'{b}' is '{a}'" for a, b in self.tied.items() if b in self.buffers]
        if shared:
            return f"{', '.join(shared)}: register that module once and call it twice."
        return "Try torch.export.export on the module to find the cause."

    def _unused(self) -> list[str]:
        return [name for name in self.parameters if name not in self.used]


def take_inventory(module: nn.Module) -> Inventory:
    """List the parameters and buffers of `module`.

    Raises:
      UsageError: a lazy parameter without a shape; a part with a feature that ONNX lacks; two
        parameters, or a buffer and a parameter, that share memory.
    """
    inventory = Inventory(type(module).__name__, changed_gradients=dict.fromkeys(hooked(module)))
    first: dict[int, str] = {}
    places: list[_Place] = []
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if isinstance(parameter, nn.UninitializedParameter):
            raise UsageError(f"'{name}' has no shape yet. Run the module once, then export it.")
        if id(parameter) in first:
            inventory.tied[name] = first[id(parameter)]
            continue
        first[id(parameter)] = name
        inventory.parameters[name] = parameter
        place = _Place.of(name, parameter)
        _check_memory(place, places)
        places.append(place)
    persistent = set(module.state_dict(keep_vars=True))
    for name, buffer in module.named_buffers(remove_duplicate=False):
        if id(buffer) in first:
            inventory.tied[name] = first[id(buffer)]
            continue
        first[id(buffer)] = name
        inventory.buffers[name] = buffer
        _check_memory(_Place.of(name, buffer), places)
        if name in persistent:
            inventory.persistent.add(name)
    _check_parts(module)
    return inventory


class _Place(NamedTuple):
    """The addresses from a tensor's first to its last element."""

    start: int
    stop: int
    name: str
    tensor: torch.Tensor

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> "_Place":
        if tensor.layout is not torch.strided:
            return cls(0, 0, name, tensor)
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in steps)
        start = tensor.data_ptr()
        nbytes = (last + 1) * tensor.element_size() if start and tensor.numel() else 0
        return cls(start, start + nbytes, name, tensor)

    def overlaps(self, other: "_Place") -> bool:
        """Whether both have an element in the same memory."""
        if self.start >= other.stop or other.start >= self.stop:
            return False
        a, b, first = self.tensor, other.tensor, min(self.start, other.start)
        if a.dtype != b.dtype:
            return True
        step = a.element_size()
        seen = torch.zeros((max(self.stop, other.stop) - first) // step, dtype=torch.bool)
        seen.as_strided(a.shape, a.stride(), (self.start - first) // step).fill_(True)
        return bool(seen.as_strided(b.shape, b.stride(), (other.start - first) // step).any())


def _check_memory(place: _Place, places: list[_Place]) -> None:
    """Refuse a tensor in the memory of another one."""
    other = next((item for item in places if place.overlaps(item)), None)
    if other is not None:
        raise UsageError(
            f"'{place.name}' and '{other.name}' are two tensors over the same memory. Assign one "
            "nn.Parameter to both places to tie them, or clone the data."
        )


class _Lack(NamedTuple):
    """A feature of a kind of part that ONNX lacks, the values that mean "off", what to do."""

    kind: type[nn.Module]
    feature: str
    off: tuple[Any, ...]
    move: str


_NORM = nn.modules.batchnorm._BatchNorm
_LACKING = (
    _Lack(nn.modules.instancenorm._InstanceNorm, "track_running_stats", (False,),
          "Leave it out: each sample is then normalised by itself, as torch does in training."),
    _Lack(nn.LSTM, "proj_size", (0,), "Leave it out, and apply nn.Linear to the outputs."),
    _Lack(nn.Embedding, "max_norm", (None,), "Leave it out, or use weight decay."),
    _Lack(nn.EmbeddingBag, "max_norm", (None,), "Leave it out, or use weight decay."),
    _Lack(nn.EmbeddingBag, "padding_idx", (None,),
          "Leave it out, and give padded positions the weight 0 (per_sample_weights)."),
)  # fmt: skip


def _check_parts(module: nn.Module) -> None:
    for name, part in module.named_modules():
        here = name or type(part).__name__
        for lack in _LACKING:
            value = getattr(part, lack.feature) if isinstance(part, lack.kind) else lack.off[0]
            if value not in lack.off:
                raise UsageError(f"'{here}': {lack.feature}={value} has no ONNX form. {lack.move}")
        if isinstance(part, _NORM) and part.momentum is None and part.track_running_stats:
            raise UsageError(
                f"'{here}': momentum=None (a cumulative average) has no ONNX form. "
                "Set a momentum, e.g. 0.1."
            )
