"""Everything that a plan depends on besides the model."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ..errors import UsageError
from ..formats import FROZEN, MEMORIES, PRECISIONS, SAVED
from ..kernels import targets
from ..losses import CrossEntropy, Loss
from ..optim import SGD, Optimizer, loss_scale_of
from ..optim.loss_scale import MAX_SCALE
from ..sparse import DISTRIBUTIONS, REWIRINGS, Rewiring, make_rewiring
from ..units import finite_number
from ..units.convolutions import AUTO, CONVOLUTIONS, DIRECT
from ..units.efforts import EFFORTS, NORMAL
from ..units.options import check_departures, check_types, typed
from ..units.rungs import ALLOWED
from .model.lora import Lora, make_lora

MOST_STEPS = 2**31  # of time
QUANTIZED = ("keep", "float")
# Options that say how values are stored, and what they may say.
STORED: dict[str, Collection[str]] = dict.fromkeys(
    ("model_memory", "weights", "state", "grads"), MEMORIES
)
STORED = {
    "precision": PRECISIONS,
    **STORED,
    "saved": SAVED,
    "frozen": FROZEN,
    "quantized": QUANTIZED,
    "convolutions": CONVOLUTIONS,
}
# Options that a Program names where they are set alone: those of earlier ones read the same.
_NEW = (
    "saved", "fused_update", "loss_scale", "allow", "frozen", "lora", "segments", "bptt", "effort",
    "quantized", "batch_axis", "inputs", "arithmetic",
)  # fmt: skip

_ABSENT = {"arithmetic": targets.FUSED}  # what it means that one is not named, where no default is


class Keywords(TypedDict, total=False):
    """The fields of `Options` as people give them to `compile` and its kin."""

    loss: str | Loss
    optimizer: str | Optimizer
    minibatch: int
    microbatch: int | None
    precision: str
    model_memory: str | None
    weights: str | None
    state: str | None
    grads: str | None
    saved: str | None
    density: float
    density_overrides: Mapping[str, float]
    distribution: str
    rewiring: str | Rewiring | None
    max_extra_forward: float | None
    threads: int
    seed: int
    dims: Mapping[str, int]
    batch_axis: Mapping[str, int]
    inputs: Mapping[str, float]
    train: Sequence[str]
    freeze: Sequence[str]
    freeze_bn: bool | None
    train_constants: Sequence[str]
    allow_constants: bool
    max_grad_norm: float
    fused_update: bool
    loss_scale: float | None
    output: str | None
    allow: Sequence[str]
    segments: str | int
    bptt: int
    target: str
    frozen: str | None
    lora: str | Lora | None
    quantized: str | None
    convolutions: str
    arithmetic: str | None
    effort: str


@dataclass(frozen=True)
class Options:
    """Choices of the user; `microbatch` None lets the planner choose.

    Attributes:
      minibatch, microbatch: samples of an update, samples of one pass.
      precision: storage of values, fp32 or fp16; `model_memory` of weights and their state, which
        may be int8 too; `weights`, `state` (of the optimizer) and `grads` (accumulators) of a part.
      saved: storage of what backward reads of convolutions, products, norms and activations, int8;
        None: as forward computed it.
      density: fraction of nonzero weights; 1 is dense.
      density_overrides: densities by pattern of parameter names; they win, 1 keeps one dense.
      distribution: of the nonzeros over layers: uniform, or erk (Erdos-Renyi-kernel).
      rewiring: dsr, set, none, a text for `make_rewiring`, or a method of edgetrain/sparse.
      max_extra_forward: at most this fraction of a forward is recomputed.
      effort: how long plans are searched for, quick, normal or thorough, counted in work: the same
        on every machine. More finds every plan that less does; bits of training do not depend on
        it.
      threads: workers the plan has workspaces for.
      seed: of dropout, rounding, shuffling.
      dims: sizes of symbolic dimensions.
      batch_axis: the axis that counts the samples, by input, where the file names no dimension that
        says it.
      inputs: values of inputs without dimensions, such as {"sr": 16000}: they become constants.
      train, freeze: patterns of parameter names; freeze wins.
      freeze_bn: which batch-norms run on their running statistics, which then stay: None those
        whose parameters are all frozen (one without parameters follows the layers around it, see
        compiler/passes/batch_norm.py), True all of them, False none.
      train_constants: patterns of constants that are trained too; `allow_constants`: weights that
        became constants may stay so, however many they are.
      frozen: how weights that are not trained are stored, fp32, fp16, int8 or int4 in groups; they
        are then mapped from the Program's file and take no arena.
      lora: low-rank adapters of a Lora, or a text for `make_lora`; they alone are trained beside
        what `train` names, and the rest is mapped.
      quantized: of a model with QuantizeLinear nodes: keep (the default: weights and activations
        are rounded as the file says, gradients go straight through), or float (as if it were not
        quantised); either way the trained file has the integers, scales and nodes of the first.
      convolutions: auto (those of 3 x 3 with a quarter of the multiplications where their shapes
        make that faster, in other roundings), or direct (the sums of earlier versions; less
        scratch).
      max_grad_norm: clip the gradient to this norm; 0 does not.
      allow: rungs of the ladder (compiler/advice/ladder.py) that change the order of sums or more,
      such as
        slices: the classes of a linear layer under cross_entropy are taken some at a time.
      fused_update: a weight is updated as soon as its gradient is known and nothing reads it any
        more: no buffer of gradients. Of minibatches of one microbatch.
      loss_scale: what the loss gradient is multiplied by, a constant; None: as precision needs, in
        fp16 one that moves.
      segments: steps of time in a segment of a recurrence, which is then recomputed segment by
        segment: a number, off, or auto (long sequences in segments that grow with their root).
      bptt: no gradient goes back beyond so many steps (truncated backpropagation, approximate);
        0: all the way.
      target: name of the processor that is planned for (kernels/targets.py): it chooses kernels,
        and so the bits, which are then the same wherever the Program runs.
      arithmetic: fused (a * b + c is rounded once), or separate (the product is rounded first,
        several times faster on processors without fused multiply-add); None: fused where the target
        has it.
    """

    loss: Loss = CrossEntropy()
    optimizer: Optimizer = field(default_factory=SGD)
    minibatch: int = 32
    microbatch: int | None = None
    precision: str = "fp32"
    model_memory: str | None = None
    weights: str | None = None
    state: str | None = None
    grads: str | None = None
    saved: str | None = None
    density: float = 1.0
    density_overrides: Mapping[str, float] = field(default_factory=dict)
    distribution: str = "uniform"
    rewiring: str | Rewiring | None = "dsr"
    max_extra_forward: float | None = None
    effort: str = NORMAL
    threads: int = 2
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    batch_axis: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, float] = field(default_factory=dict)
    train: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    freeze_bn: bool | None = None
    train_constants: tuple[str, ...] = ()
    allow_constants: bool = False
    max_grad_norm: float = 0.0
    fused_update: bool = False
    loss_scale: float | None = None
    output: str | None = None
    allow: tuple[str, ...] = ()
    segments: str | int = "auto"
    bptt: int = 0
    target: str = targets.HOST
    frozen: str | None = None
    lora: str | Lora | None = None
    quantized: str | None = None
    convolutions: str = AUTO
    arithmetic: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        _check_containers(self)
        if self.minibatch < 1:
            raise UsageError(f"minibatch {self.minibatch}: expected 1 or more samples.")
        if self.microbatch is not None and (
            self.microbatch < 1 or self.minibatch % self.microbatch
        ):
            raise UsageError(
                f"microbatch {self.microbatch}: expected a divisor of the minibatch "
                f"({self.minibatch})."
            )
        for name, known in STORED.items():
            value = getattr(self, name)
            if value is not None and value not in known:
                raise UsageError(
                    f"{name.replace('_', ' ')} {value!r}: expected one of {', '.join(known)}."
                )
        object.__setattr__(self, "arithmetic", _arithmetic(self))
        if self.effort not in EFFORTS:
            raise UsageError(f"effort {self.effort!r}: expected one of {', '.join(EFFORTS)}.")
        object.__setattr__(self, "segments", _segments(self.segments))
        if not 0 <= self.bptt < MOST_STEPS:
            raise UsageError(f"bptt {self.bptt}: expected steps of time, or 0 (all of them).")
        if not 1 <= self.threads <= 64:
            raise UsageError(f"threads {self.threads}: expected 1 to 64.")
        if self.threads > 1 and not targets.get(self.target).hosted:
            raise UsageError(f"threads {self.threads}: {self.target} has one thread.")
        if not -(2**63) <= self.seed < 2**63:
            raise UsageError(f"seed {self.seed}: expected a whole number of 64 bits.")
        object.__setattr__(self, "density", _density(self.density))
        overrides = {str(name): _density(d) for name, d in self.density_overrides.items()}
        object.__setattr__(self, "density_overrides", overrides)
        if self.distribution not in DISTRIBUTIONS:
            raise UsageError(
                f"distribution {self.distribution!r}: expected one of {', '.join(DISTRIBUTIONS)}."
            )
        check_departures(self)
        if isinstance(self.rewiring, str):
            object.__setattr__(self, "rewiring", make_rewiring(self.rewiring))
        if not isinstance(self.rewiring, Rewiring | None):
            raise UsageError(
                f"rewiring {self.rewiring!r}: expected a name, or a method such as DSR() or SET()."
            )
        if self.density == 1.0 and not self.density_overrides:
            object.__setattr__(self, "rewiring", None)
        object.__setattr__(self, "lora", make_lora(self.lora))
        object.__setattr__(self, "allow", tuple(sorted(set(self.allow))))
        for name in self.allow:
            if name not in ALLOWED:
                raise UsageError(f"allow {name!r}: expected one of {', '.join(ALLOWED)}.")
        norm = finite_number("max_grad_norm", self.max_grad_norm, least=0)
        object.__setattr__(self, "max_grad_norm", norm)
        if self.loss_scale is not None:
            finite_number("loss_scale", self.loss_scale, least=1, most=MAX_SCALE)
        if self.fused_update:
            _check_fused(self)
        if self.max_extra_forward is not None:
            finite_number("max_extra_forward", self.max_extra_forward, least=0)

    @classmethod
    def of_recipe(cls, recipe: Mapping[str, Any]) -> "Options":
        """The options that a Program was compiled with: the inverse of `recipe`.

        Raises:
          UsageError: an option of a value that this build does not take.
        """
        given = {f.name: recipe[f.name] for f in dataclasses.fields(cls) if f.name in recipe}
        # of versions that had no others
        given = {"convolutions": DIRECT, "arithmetic": targets.FUSED} | given
        given["loss"] = Loss.of_json(recipe["loss"])
        given["optimizer"] = Optimizer.of_json(recipe["optimizer"])
        method = recipe["rewiring"]
        if method is not None:
            options = dict(method)
            given["rewiring"] = REWIRINGS[options.pop("name")](**options)
        if recipe.get("lora") is not None:
            given["lora"] = {k: v for k, v in recipe["lora"].items() if k != "layers"}
        return cls(**given)

    @property
    def maps(self) -> bool:
        """Whether weights that are not trained stay in the Program's file."""
        return self.frozen is not None or self.lora is not None

    def recipe(self) -> dict[str, Any]:
        """JSON-able record of what was compiled, kept in the Program."""
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        out = {
            name: v
            for name, v in out.items()
            if name not in _NEW or v != _ABSENT.get(name, getattr(Options, name, {}))
        }
        if isinstance(self.lora, Lora):
            out["lora"] = self.lora.to_json()
        return out | {
            "loss": self.loss.to_json(),
            "optimizer": self.optimizer.to_json(),
            "dims": dict(self.dims),
            **({"batch_axis": dict(self.batch_axis)} if self.batch_axis else {}),
            **({"inputs": dict(self.inputs)} if self.inputs else {}),
            "density_overrides": dict(self.density_overrides),
            "rewiring": self.rewiring.to_json() if isinstance(self.rewiring, Rewiring) else None,
            "train": list(self.train),
            "freeze": list(self.freeze),
            "train_constants": list(self.train_constants),
            **({"allow": list(self.allow)} if self.allow else {}),
            "target": targets.named(self.target),
            "lanes": targets.get(self.target).lanes,
        }


def _arithmetic(options: Options) -> str:
    """That asked for; the target's own where none is."""
    found = options.arithmetic or targets.get(options.target).arithmetic
    if found not in targets.ARITHMETICS:
        known = ", ".join(targets.ARITHMETICS)
        raise UsageError(f"arithmetic {found!r}: expected one of {known}.")
    return found


def _segments(value: str | int) -> str:
    segments = str(value)
    steps = int(segments) if segments.isdecimal() and len(segments) < 20 else 0
    if segments not in ("auto", "off") and not 1 <= steps < MOST_STEPS:
        raise UsageError(
            f"segments {segments!r}: expected auto, off, or steps of time (1 or more)."
        )
    return segments


def _check_containers(options: Options) -> None:
    """What is no plain number or text.

    Raises:
      UsageError: names the option and what it should be.
    """
    for name, kind, words in (
        ("loss", Loss, "a name or a Loss"),
        ("optimizer", Optimizer, "a name or an Optimizer"),
        ("density_overrides", Mapping, "densities by pattern, such as {'conv1.*': 1}"),
        ("dims", Mapping, "sizes by name, such as {'T': 64}"),
        ("batch_axis", Mapping, "axes by input, such as {'h': 1}"),
        ("inputs", Mapping, "values by name, such as {'sr': 16000}"),
    ):
        value = getattr(options, name)
        if not isinstance(value, kind):
            raise UsageError(f"{name} {repr(value)[:80]}: expected {words}.")
    for name in ("train", "freeze", "train_constants", "allow"):
        patterns = getattr(options, name)
        several = isinstance(patterns, tuple | list)
        if not several or not all(isinstance(pattern, str) for pattern in patterns):
            raise UsageError(f"{name} {repr(patterns)[:80]}: expected patterns of names.")
    dims = {str(n): typed(f"dims: {n}", size, (int,)) for n, size in options.dims.items()}
    for name, size in dims.items():
        if size < 1:
            raise UsageError(f"dims: {name} {size}: expected a size of 1 or more.")
    object.__setattr__(options, "dims", dims)
    axes = {str(n): typed(f"batch_axis: {n}", k, (int,)) for n, k in options.batch_axis.items()}
    object.__setattr__(options, "batch_axis", axes)
    values = {str(n): _number(f"inputs: {n}", v) for n, v in options.inputs.items()}
    object.__setattr__(options, "inputs", values)


def _number(label: str, value: Any) -> float:
    """A number, a truth value or an array of one."""
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    return finite_number(label, float(value) if isinstance(value, bool) else value)


def _check_fused(options: Options) -> None:
    """Weights move before the gradient's norm is known.

    Raises:
      UsageError: names the option that needs it, or several microbatches.
    """
    label = "fused_update: weights move before all gradients are known"
    if not options.optimizer.fusable:
        raise UsageError(
            f"fused_update: optimizer {options.optimizer.name} needs sums over a whole weight "
            f"before the update. Take another optimizer, or leave fused_update out."
        )
    if options.microbatch not in (None, options.minibatch):
        raise UsageError(
            f"fused_update: microbatches of {options.microbatch} in minibatches of "
            f"{options.minibatch} have to add their gradients up. Make them equal."
        )
    if options.max_grad_norm:
        raise UsageError(
            f"{label}, so they cannot be clipped to max_grad_norm {options.max_grad_norm:g}. Leave "
            "one of them out."
        )
    if loss_scale_of(options.precision, options.loss_scale).dynamic:
        raise UsageError(
            f"{label}, so no loss scale can move; precision {options.precision} needs one. "
            "Give a constant loss_scale such as 1024, or precision fp32."
        )


def _density(value: Any) -> float:
    number = typed("density", value, (float,))
    if not 0 < number <= 1:
        raise UsageError(f"density {value!r}: expected above 0 and at most 1 (dense).")
    return number
