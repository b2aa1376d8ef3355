"""Everything that a plan depends on besides the model."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError
from ..ops.loss import Loss
from ..optim import SGD, Optimizer
from ..sparse import Rewiring, make_rewiring
from ..sparse.density import DISTRIBUTIONS


@dataclass(frozen=True)
class Options:
    """Choices of the user; `microbatch` None lets the planner choose.

    Attributes:
      minibatch, microbatch: samples of an update, samples of one pass.
      precision: storage of values, fp32 or fp16; `model_memory` of weights and their state.
      density: fraction of nonzero weights; 1 is dense.
      density_overrides: densities by pattern of parameter names; they win, 1 keeps one dense.
      distribution: of the nonzeros over layers: uniform, or erk (Erdos-Renyi-kernel).
      rewiring: dsr, set, none, a text for `make_rewiring`, or a method of edgetrain/sparse.
      max_extra_forward: at most this fraction of a forward is recomputed.
      threads: workers the plan has workspaces for.
      seed: of dropout, rounding, shuffling.
      dims: sizes of symbolic dimensions.
      train, freeze: patterns of parameter names; freeze wins. Batch-norm of a frozen layer still
        normalises by its microbatch and moves its running statistics, as torch in train mode.
      train_constants: patterns of constants that are trained too; `allow_constants`: weights that
        became constants may stay so, however many they are.
      max_grad_norm: clip the gradient to this norm; 0 does not.
    """

    loss: Loss = Loss()
    optimizer: Optimizer = field(default_factory=SGD)
    minibatch: int = 32
    microbatch: int | None = None
    precision: str = "fp32"
    model_memory: str | None = None
    density: float = 1.0
    density_overrides: Mapping[str, float] = field(default_factory=dict)
    distribution: str = "uniform"
    rewiring: str | Rewiring | None = "dsr"
    max_extra_forward: float | None = None
    threads: int = 2
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    train: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    train_constants: tuple[str, ...] = ()
    allow_constants: bool = False
    max_grad_norm: float = 0.0
    output: str | None = None

    def __post_init__(self) -> None:
        if self.minibatch < 1:
            raise UsageError(f"minibatch {self.minibatch}: expected 1 or more samples.")
        if self.microbatch is not None and (
            self.microbatch < 1 or self.minibatch % self.microbatch
        ):
            raise UsageError(
                f"microbatch {self.microbatch}: expected a divisor of the minibatch "
                f"({self.minibatch})."
            )
        if not 1 <= self.threads <= 64:
            raise UsageError(f"threads {self.threads}: expected 1 to 64.")
        if not -(2**63) <= self.seed < 2**63:
            raise UsageError(f"seed {self.seed}: expected a whole number of 64 bits.")
        object.__setattr__(self, "density", _density(self.density))
        if not isinstance(self.density_overrides, Mapping):
            raise UsageError(
                f"density overrides {self.density_overrides!r}: expected densities by pattern, "
                "such as {'conv1.*': 1}."
            )
        overrides = {str(name): _density(d) for name, d in self.density_overrides.items()}
        object.__setattr__(self, "density_overrides", overrides)
        if self.distribution not in DISTRIBUTIONS:
            raise UsageError(
                f"distribution {self.distribution!r}: expected one of {', '.join(DISTRIBUTIONS)}."
            )
        if isinstance(self.rewiring, str):
            object.__setattr__(self, "rewiring", make_rewiring(self.rewiring))
        if not isinstance(self.rewiring, Rewiring | None):
            raise UsageError(
                f"rewiring {self.rewiring!r}: expected a name, or a method such as DSR() or SET()."
            )
        if self.density == 1.0 and not self.density_overrides:
            object.__setattr__(self, "rewiring", None)
        if not self.max_grad_norm >= 0:
            raise UsageError(f"max_grad_norm {self.max_grad_norm}: expected 0 or more.")

    def recipe(self) -> dict[str, Any]:
        """JSON-able record of what was compiled, kept in the Program."""
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return out | {
            "loss": dataclasses.asdict(self.loss),
            "optimizer": self.optimizer.to_json(),
            "dims": dict(self.dims),
            "density_overrides": dict(self.density_overrides),
            "rewiring": self.rewiring.to_json() if isinstance(self.rewiring, Rewiring) else None,
            "train": list(self.train),
            "freeze": list(self.freeze),
            "train_constants": list(self.train_constants),
        }


def _density(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number <= 1:
        raise UsageError(f"density {value!r}: expected above 0 and at most 1 (dense).")
    return number
