"""Everything a plan depends on besides the model."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ..errors import UsageError
from ..formats import FROZEN, MEMORIES, PRECISIONS, SAVED
from ..kernels import targets
from ..losses import CrossEntropy, Loss
from ..losses.terms import Term, joined, pairs_of, terms_of
from ..optim import SGD, Optimizer, loss_scale_of
from ..optim.groups import Group
from ..optim.loss_scale import MAX_SCALE
from ..program import TARGET
from ..sparse import DISTRIBUTIONS, REWIRINGS, Rewiring, make_rewiring
from ..units import finite_number
from ..units.convolutions import AUTO, CONVOLUTIONS, DIRECT
from ..units.efforts import EFFORTS, NORMAL
from ..units.hints import did_you_mean
from ..units.memory_options import ALLOWED
from ..units.options import check_departures, check_types, typed
from .model.asked_lengths import make_lengths
from .model.lora import Lora, make_lora

MOST_STEPS = 2**31  # of time
MOST_CLASSES = 2**20
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
    "quantized", "batch_axis", "inputs", "arithmetic", "new_head",
    "groups", "no_decay_1d", "losses", "lengths", "tokens",
)  # fmt: skip

_ABSENT = {"arithmetic": targets.FUSED}  # what it means that one is not named, where no default is


class Keywords(TypedDict, total=False):
    """The fields of `Options`, as passed to `compile` and related functions."""

    loss: str | Loss
    losses: Mapping[str, Any]
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
    lengths: Sequence[int] | Mapping[str, Sequence[int]]
    tokens: int | None
    batch_axis: Mapping[str, int]
    inputs: Mapping[str, float]
    train: Sequence[str]
    freeze: Sequence[str]
    freeze_bn: bool | None
    train_constants: Sequence[str]
    allow_constants: bool
    groups: Sequence[Group]
    no_decay_1d: bool
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
    new_head: Mapping[str, int] | int | None
    convolutions: str
    arithmetic: str | None
    effort: str


@dataclass(frozen=True)
class Options:
    """A user's choices; with `microbatch` None, the planner chooses it.

    Attributes:
      losses: of several outputs: by output name, a loss name, a Loss or a list of them; their
        weighted sum is minimised. `loss` and `output` are then the first.
      minibatch, microbatch: samples per update, samples per pass.
      precision: storage of values (formats.PRECISIONS); `model_memory` that of weights and their
        state, which can also be int8; `weights`, `state` (of the optimizer) and `grads`
        (accumulators) set a part of it.
      saved: storage of the activations kept for backward (of convolutions, matrix products, norms
        and activation functions): int8, or None for the storage forward used.
      density: fraction of nonzero weights; 1 is dense.
      density_overrides: densities by pattern of parameter names; they take precedence, and 1 keeps
        a parameter dense.
      distribution: of the nonzeros over layers: uniform, or erk (Erdos-Renyi-kernel).
      rewiring: dsr, set, none, a string for `make_rewiring`, or a method of edgetrain/sparse.
      max_extra_forward: limit on recomputation, as a fraction of a forward pass.
      effort: how long to search for plans: quick, normal or thorough. It is counted in work, so
        results are the same on every machine. A higher effort finds every plan of a lower one;
        training gives the same bits.
      threads: worker threads the plan has workspaces for.
      seed: for dropout, rounding and shuffling.
      dims: sizes of symbolic dimensions.
      lengths: sizes of one symbolic dimension, such as [32, 64, 128], or {"seq": [32, 64, 128]} if
        there are several; one Program trains every sample at the smallest that holds it.
      tokens: with lengths: a minibatch has about so many tokens, samples times length (default:
        `minibatch` samples at every length).
      batch_axis: the axis that counts the samples, by input, where no name in the file says it.
      inputs: values of inputs without dimensions, such as {"sr": 16000}: they become constants.
      train, freeze: patterns of parameter names; freeze takes precedence.
      freeze_bn: which batch-norms use their running statistics and leave them unchanged: None:
        those whose parameters are all frozen (one without parameters follows the layers around it,
        see compiler/passes/batch_norm.py), True: all, False: none.
      train_constants: patterns of constants to train as well; `allow_constants`: leave weights
        that became constants untrained, however many there are.
      frozen: how weights that are not trained are stored (formats.FROZEN; int8 and int4 in groups);
        they are then mapped from the Program's file and take no arena.
      lora: low-rank adapters (a Lora or a text for `make_lora`), trained beside what `train` names.
      quantized: of a model with QuantizeLinear nodes: keep (the default: weights and activations
        are rounded as the file says, gradients ignore the rounding), or float (as if it were not
        quantised); either way the trained file has the integers, scales and nodes of the first.
      new_head: outputs of a last layer that is replaced (compiler/model/new_head.py), such as
        {"fc": 4}; a number alone if there is only one.
      convolutions: auto (with a quarter of the multiplications where that is faster, in other
        roundings), or direct (the sums of earlier versions; less scratch).
      groups: parameters with their own learning rate or weight decay, such as
        [Group("fc.*", lr=0.1)]; the last match wins. no_decay_1d: no weight decay on parameters of
        fewer than two axes (biases, norms), unless a group gives one.
      max_grad_norm: clip the gradient to this norm; 0 does not.
      allow: memory options (compiler/advice/memory_options.py) that change the order of sums or
        more, such as slices: a linear layer under cross_entropy takes its classes some at a time.
      fused_update: a weight is updated as soon as its gradient is known and nothing reads the
        weight any more, without a buffer of gradients; for minibatches of one microbatch.
      loss_scale: constant factor of the loss's gradient; None: one that moves, in fp16.
      segments: steps of time in a segment of a recurrence, which is then recomputed segment by
        segment: a number, off, or auto (long sequences in segments that grow with their root).
      bptt: gradients go back at most this many steps (truncated backpropagation, approximate);
        0: no limit.
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
    groups: tuple[Group, ...] = ()
    no_decay_1d: bool = False
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
    new_head: Mapping[str, int] | int | None = None
    convolutions: str = AUTO
    arithmetic: str | None = None
    losses: Any = ()
    lengths: Any = ()
    tokens: int | None = None

    def __post_init__(self) -> None:
        self._take_losses()
        object.__setattr__(self, "lengths", make_lengths(self.lengths) or ())
        check_types(self)
        _check_containers(self)
        _check_tokens(self)
        if self.minibatch < 1:
            raise UsageError(f"minibatch {self.minibatch}: expected at least 1 sample.")
        if self.microbatch is not None and (
            self.microbatch < 1 or (self.tokens is None and self.minibatch % self.microbatch)
        ):
            raise UsageError(
                f"microbatch {self.microbatch}: expected a divisor of the minibatch "
                f"({self.minibatch})."
            )
        object.__setattr__(self, "arithmetic", _arithmetic(self))
        _check_words(self)
        object.__setattr__(self, "segments", _segments(self.segments))
        if not 0 <= self.bptt < MOST_STEPS:
            raise UsageError(f"bptt {self.bptt}: expected a number of time steps, or 0 (all).")
        if not 1 <= self.threads <= 64:
            raise UsageError(f"threads {self.threads}: expected a number from 1 to 64.")
        if self.threads > 1 and not targets.get(self.target).hosted:
            raise UsageError(f"threads {self.threads}: {self.target} has only one.")
        if not -(2**63) <= self.seed < 2**63:
            raise UsageError(f"seed {self.seed}: expected a 64-bit integer.")
        object.__setattr__(self, "density", _density(self.density))
        overrides = {str(name): _density(d) for name, d in self.density_overrides.items()}
        object.__setattr__(self, "density_overrides", overrides)
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
        object.__setattr__(self, "new_head", _new_head(self.new_head))
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

    def _take_losses(self) -> None:
        """`losses` as pairs; of one alone it is `loss` of `output`."""
        pairs = pairs_of(self.losses) if self.losses else ()
        if pairs and self.output not in (None, pairs[0][0]):
            raise UsageError(
                f"output {self.output!r}: losses name their outputs, first {pairs[0][0]!r}. Leave "
                "output out."
            )
        if pairs:
            object.__setattr__(self, "output", pairs[0][0])
            object.__setattr__(self, "loss", pairs[0][1])
        object.__setattr__(self, "losses", pairs if len(pairs) > 1 else ())

    @property
    def terms(self) -> tuple[Term, ...]:
        """What is minimised: the losses, the first one's first."""
        return terms_of(self.output, self.loss, self.losses, TARGET)

    @property
    def joined(self) -> bool:
        """Whether losses are added by weights."""
        return joined(self.terms)

    def alone(self, term: Term) -> "Options":
        """The same for one of the losses."""
        return dataclasses.replace(self, losses=(), output=term.output, loss=term.loss)

    @classmethod
    def of_recipe(cls, recipe: Mapping[str, Any]) -> "Options":
        """The options a Program was compiled with: the inverse of `recipe`. Of one that was
        compiled for several lengths, the options of this one.

        Raises:
          UsageError: this build does not support the value of an option.
        """
        given = {f.name: recipe[f.name] for f in dataclasses.fields(cls) if f.name in recipe}
        # of versions that had no others
        given = {"convolutions": DIRECT, "arithmetic": targets.FUSED} | given
        given["loss"] = Loss.of_json(recipe["loss"])
        if "losses" in recipe:
            given["losses"] = tuple((name, Loss.of_json(own)) for name, own in recipe["losses"])
        given["optimizer"] = Optimizer.of_json(recipe["optimizer"])
        given["groups"] = tuple(Group(**group) for group in recipe.get("groups", ()))
        method = recipe["rewiring"]
        if method is not None:
            options = dict(method)
            given["rewiring"] = REWIRINGS[options.pop("name")](**options)
        if {*recipe.get("lengths", ())} & {*recipe["dims"]}:  # a tape set is of one of them
            del given["lengths"]
            given.pop("tokens", None)
        if recipe.get("lora") is not None:
            given["lora"] = {k: v for k, v in recipe["lora"].items() if k != "layers"}
        return cls(**given)

    @property
    def maps(self) -> bool:
        """Whether untrained weights stay in the Program file."""
        return self.frozen is not None or self.lora is not None

    def recipe(self) -> dict[str, Any]:
        """A JSON-able record of the options, stored in the Program."""
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        out = {
            name: v
            for name, v in out.items()
            if name not in _NEW or v != _ABSENT.get(name, getattr(Options, name, {}))
        }
        if isinstance(self.lora, Lora):
            out["lora"] = self.lora.to_json()
        lengths = self.lengths.items() if self.lengths else ()
        return out | {
            "loss": self.loss.to_json(),
            **({"losses": [[n, one.to_json()] for n, one in self.losses]} if self.losses else {}),
            "optimizer": self.optimizer.to_json(),
            "dims": dict(self.dims),
            **({"lengths": {n: list(sizes) for n, sizes in lengths}} if lengths else {}),
            **({"batch_axis": dict(self.batch_axis)} if self.batch_axis else {}),
            **({"inputs": dict(self.inputs)} if self.inputs else {}),
            **({"new_head": dict(self.new_head)} if isinstance(self.new_head, Mapping) else {}),
            "density_overrides": dict(self.density_overrides),
            "rewiring": self.rewiring.to_json() if isinstance(self.rewiring, Rewiring) else None,
            "train": list(self.train),
            "freeze": list(self.freeze),
            "train_constants": list(self.train_constants),
            **({"allow": list(self.allow)} if self.allow else {}),
            **({"groups": [group.to_json() for group in self.groups]} if self.groups else {}),
            "target": targets.named(self.target),
            "lanes": targets.get(self.target).lanes,
        }


def _check_tokens(options: Options) -> None:
    """Refuse a minibatch beside `tokens`, which makes one for each length."""
    if options.tokens is None:
        return
    if options.tokens < 1:
        raise UsageError(f"tokens {options.tokens}: expected at least 1.")
    if options.minibatch != Options.minibatch:
        raise UsageError(
            f"tokens {options.tokens}: it sets the minibatch of each length. Leave minibatch "
            f"{options.minibatch} out."
        )


def _arithmetic(options: Options) -> str:
    """That asked for; the target's own where none is."""
    result = options.arithmetic or targets.get(options.target).arithmetic
    if result not in targets.ARITHMETICS:
        known = ", ".join(targets.ARITHMETICS)
        raise UsageError(f"arithmetic {result!r}: expected one of {known}.")
    return result


def _segments(value: str | int) -> str:
    segments = str(value)
    steps = int(segments) if segments.isdecimal() and len(segments) < 20 else 0
    if segments not in ("auto", "off") and not 1 <= steps < MOST_STEPS:
        raise UsageError(f"segments {segments!r}: expected auto, off, or a number of time steps.")
    return segments


def _new_head(given: Any) -> dict[str, int] | None:
    """Outputs by layer; "" stands for the only one."""
    if given is None:
        return None
    sizes = {str(n): v for n, v in given.items()} if isinstance(given, Mapping) else {"": given}
    for name, size in sizes.items():
        label = f"new_head: {name}" if name else "new_head"
        if not 1 <= typed(label, size, (int,)) <= MOST_CLASSES:
            raise UsageError(f"{label} {size}: expected 1 to {MOST_CLASSES} outputs.")
    return {name: int(size) for name, size in sizes.items()} or None


def _check_words(options: Options) -> None:
    """Options that are one of some words.

    Raises:
      UsageError: names the option and its words.
    """
    words = {name: (known, True) for name, known in STORED.items()} | {
        "effort": (EFFORTS, False),
        "distribution": (DISTRIBUTIONS, False),
    }
    for name, (known, optional) in words.items():
        value = getattr(options, name)
        if value not in known and not (optional and value is None):
            raise UsageError(
                f"{name.replace('_', ' ')} {value!r}: expected one of {', '.join(known)}."
            )


def _shown(value: Any) -> str:
    """How a message names a value: objects of other libraries by their kind."""
    if isinstance(value, type) or callable(value):
        return f"<{getattr(value, '__name__', type(value).__name__)}>"
    return " ".join(repr(value).split())[:80]


def _instead(value: Any, kind: type) -> str:
    """A suggestion for a loss or an optimizer of another library, or for a class of our own."""
    if not hasattr(kind, "kinds"):
        return ""
    if isinstance(value, type) and issubclass(value, kind):
        return f" Pass an object: {value.__name__}(..)."
    name = getattr(value, "__name__", type(value).__name__)
    return did_you_mean(name, kind.kinds)


def _check_containers(options: Options) -> None:
    """Check options other than plain numbers and strings.

    Raises:
      UsageError: names the option and what is expected.
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
            raise UsageError(f"{name} {_shown(value)}: expected {words}.{_instead(value, kind)}")
    for name in ("train", "freeze", "train_constants", "allow"):
        patterns = getattr(options, name)
        several = isinstance(patterns, tuple | list)
        if not several or not all(isinstance(pattern, str) for pattern in patterns):
            raise UsageError(f"{name} {repr(patterns)[:80]}: expected name patterns.")
    groups = options.groups
    several = isinstance(groups, tuple | list)
    if not several or not all(isinstance(group, Group) for group in groups):
        raise UsageError(
            f"groups {repr(groups)[:80]}: expected a list such as [et.Group('fc.*', lr=0.1)]."
        )
    object.__setattr__(options, "groups", tuple(groups))
    dims = {str(n): typed(f"dims: {n}", size, (int,)) for n, size in options.dims.items()}
    for name, size in dims.items():
        if size < 1:
            raise UsageError(f"dims: {name} {size}: expected a size of at least 1.")
    object.__setattr__(options, "dims", dims)
    axes = {str(n): typed(f"batch_axis: {n}", k, (int,)) for n, k in options.batch_axis.items()}
    object.__setattr__(options, "batch_axis", axes)
    values = {str(n): _number(f"inputs: {n}", v) for n, v in options.inputs.items()}
    object.__setattr__(options, "inputs", values)


def _number(label: str, value: Any) -> float:
    """A number, a bool or an array of one element."""
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    return finite_number(label, float(value) if isinstance(value, bool) else value)


def _check_fused(options: Options) -> None:
    """Refuse options that conflict with fused_update, which needs no gradient norm beforehand.

    Raises:
      UsageError: names the option that conflicts, or there are several microbatches.
    """
    label = "fused_update: weights are updated before all gradients are known"
    if not options.optimizer.fusable:
        raise UsageError(
            f"fused_update: optimizer {options.optimizer.name} needs sums over the whole "
            f"weight first. Choose another optimizer, or leave fused_update out."
        )
    if options.microbatch not in (None, options.minibatch):
        raise UsageError(
            f"fused_update: microbatch {options.microbatch} is smaller than minibatch "
            f"{options.minibatch}, so gradients must be accumulated. Make them equal."
        )
    if options.max_grad_norm:
        raise UsageError(
            f"{label}, so max_grad_norm {options.max_grad_norm:g} can't be applied. "
            "Leave one of them out."
        )
    if loss_scale_of(options.precision, options.loss_scale).dynamic:
        raise UsageError(
            f"{label}, so the loss scale can't adapt, as precision {options.precision} needs. "
            "Set a constant loss_scale, such as 1024, or use precision fp32."
        )


def _density(value: Any) -> float:
    number = typed("density", value, (float,))
    if not 0 < number <= 1:
        raise UsageError(f"density {value!r}: expected a number above 0 and at most 1 (dense).")
    return number
