"""Options: everything a plan depends on besides the model, with checks and recipes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..formats import MEMORIES, PRECISIONS
from ..kernels import targets
from ..losses import Loss
from ..losses.terms import Term, joined, pairs_of, terms_of
from ..optim import Optimizer, loss_scale_of
from ..optim.groups import Group
from ..options.checks import checked, shown
from ..options.declared import OPTIONS, Declared
from ..options.fields import with_fields
from ..program import TARGET
from ..sparse import REWIRINGS, Rewiring, make_rewiring
from ..units import finite_number
from ..units.hints import did_you_mean
from ..units.options import check_departures, unpack_arrays
from .keywords import Keywords as Keywords
from .model.asked_lengths import make_lengths
from .model.lora import make_lora

MOST_STEPS = 2**31  # time steps
# What a format needs if steps are divided by state stored in it: a smaller second moment is stored
# as 0, and the next step is divided by `eps` alone. fp16 has 40.
STATE_BINADES = 36


@with_fields(OPTIONS, globals())
class Options(Declared):
    """A user's choices; with `microbatch` None, the planner chooses it."""

    def __post_init__(self) -> None:
        unpack_arrays(self)
        self._take_losses()
        self._set("loss", Loss.of(self.loss))
        self._set("optimizer", Optimizer.of(self.optimizer))
        self._set("lengths", make_lengths(self.lengths) or ())
        if isinstance(self.inputs, Mapping):
            self._set("inputs", {n: _number(f"inputs: {n}", v) for n, v in self.inputs.items()})
        if self.new_head is not None and not isinstance(self.new_head, Mapping):
            self._set("new_head", {"": self.new_head})
        for option in OPTIONS.values():
            self._set(option.name, checked(option, getattr(self, option.name)))
        _check_objects(self)
        _check_samples(self)
        _check_state(self)
        self._set("arithmetic", self.arithmetic or targets.get(self.target).arithmetic)
        self._set("segments", _segments(self.segments))
        if self.threads > 1 and not targets.get(self.target).hosted:
            raise UsageError(f"threads {self.threads}: {self.target} has only one.")
        check_departures(self)
        self._set("rewiring", _rewiring(self))
        self._set("lora", make_lora(self.lora))
        self._set("new_head", self.new_head or None)
        self._set("groups", tuple(self.groups))
        self._set("allow", tuple(sorted(set(self.allow))))
        if self.fused_update:
            _check_fused(self)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _take_losses(self) -> None:
        """Turn `losses` into pairs; a single one becomes `loss` and `output`."""
        nothing = self.losses is None or (isinstance(self.losses, list) and not self.losses)
        pairs = () if nothing else pairs_of(self.losses)
        if pairs and self.output not in (None, pairs[0][0]):
            raise UsageError(
                f"output {self.output!r}: losses name their outputs, first {pairs[0][0]!r}. Leave "
                "output out."
            )
        if pairs:
            self._set("output", pairs[0][0])
            self._set("loss", pairs[0][1])
        self._set("losses", pairs if len(pairs) > 1 else ())

    @property
    def terms(self) -> tuple[Term, ...]:
        """The losses to minimise; the loss of the first output comes first."""
        return terms_of(self.output, self.loss, self.losses, TARGET)

    @property
    def joined(self) -> bool:
        """Whether there are several losses, or one with a weight."""
        return joined(self.terms)

    def alone(self, term: Term) -> "Options":
        """These options with only one of the losses."""
        return dataclasses.replace(self, losses=(), output=term.output, loss=term.loss)

    @classmethod
    def of_recipe(cls, recipe: Mapping[str, Any]) -> "Options":
        """The options a Program was compiled with: the inverse of `recipe`. For a Program with
        several lengths, the options of this one.

        Raises:
          UsageError: this build does not support the value of an option.
        """
        given = {name: recipe.get(name, option.unsaid) for name, option in OPTIONS.items()}
        given["loss"] = Loss.of_json(recipe["loss"])
        given["losses"] = tuple((name, Loss.of_json(own)) for name, own in given["losses"])
        given["optimizer"] = Optimizer.of_json(recipe["optimizer"])
        given["groups"] = tuple(Group(**group) for group in given["groups"])
        method = recipe["rewiring"]
        if method is not None:
            options = dict(method)
            given["rewiring"] = REWIRINGS[options.pop("name")](**options)
        if {*given["lengths"]} & {*recipe["dims"]}:  # a tape set is for one length
            del given["lengths"], given["tokens"]
        if given["lora"] is not None:
            given["lora"] = {k: v for k, v in given["lora"].items() if k != "layers"}
        return cls(**given)

    @property
    def maps(self) -> bool:
        """Whether untrained weights stay in the Program file."""
        return self.frozen is not None or self.lora is not None

    def recipe(self) -> dict[str, Any]:
        """A JSON-able record of the options, stored in the Program."""
        return {
            name: _stored(getattr(self, name))
            for name, option in OPTIONS.items()
            if not option.new or getattr(self, name) != option.unsaid
        } | {"target": targets.named(self.target), "lanes": targets.get(self.target).lanes}


def _stored(value: Any) -> Any:
    """Convert a value to JSON types."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _stored(item) for name, item in value.items()}
    return [_stored(item) for item in value] if isinstance(value, tuple) else value


def _segments(value: str | int) -> str:
    segments = str(value)
    steps = int(segments) if segments.isdecimal() and len(segments) < 20 else 0
    if segments not in ("auto", "off") and not 1 <= steps < MOST_STEPS:
        raise UsageError(f"segments {segments!r}: expected auto, off, or a number of time steps.")
    return segments


def _rewiring(options: Options) -> Rewiring | None:
    """The rewiring method; None without sparse weights."""
    method: Any = options.rewiring
    if isinstance(method, str):
        method = make_rewiring(method)
    if not isinstance(method, Rewiring | None):
        raise UsageError(
            f"rewiring {method!r}: expected a name, or a method such as DSR() or SET()."
        )
    return method if options.density != 1.0 or options.density_overrides else None


def _number(label: str, value: Any) -> float:
    """Convert a number, a bool or an array with one element to float."""
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    return finite_number(label, float(value) if isinstance(value, bool) else value)


def _suggestion(value: Any, kind: type) -> str:
    """A hint for a loss or optimizer of another library, or for a class or a dict instead of an
    object."""
    if isinstance(value, type) and issubclass(value, kind):
        return f" Pass an object: {value.__name__}(..)."
    if isinstance(value, dict | list | tuple):
        example = kind.kinds[kind.default]  # type: ignore[attr-defined]
        package = kind.__module__.rpartition(".")[0]
        return f" Pass an object, such as {example.__name__}(option=value) of {package}."
    name = getattr(value, "__name__", type(value).__name__)
    return did_you_mean(name, kind.kinds)  # type: ignore[attr-defined]


def _check_objects(options: Options) -> None:
    """Check options that are objects.

    Raises:
      UsageError: names the option and what is expected.
    """
    for name, kind, what in (("loss", Loss, "a Loss"), ("optimizer", Optimizer, "an Optimizer")):
        value = getattr(options, name)
        if not isinstance(value, kind):
            raise UsageError(
                f"{name} {shown(value)}: expected a name or {what}.{_suggestion(value, kind)}"
            )
    groups = options.groups
    several = isinstance(groups, tuple | list)
    if not several or not all(isinstance(group, Group) for group in groups):
        raise UsageError(
            f"groups {shown(groups)}: expected a list such as {OPTIONS['groups'].python}."
        )


def _check_samples(options: Options) -> None:
    """Check microbatch and tokens against the minibatch.

    Raises:
      UsageError: names the option that does not fit.
    """
    if options.tokens is None:
        if options.microbatch is not None and options.minibatch % options.microbatch:
            raise UsageError(
                f"microbatch {options.microbatch}: expected a divisor of the minibatch "
                f"({options.minibatch})."
            )
    elif options.minibatch != OPTIONS["minibatch"].default:
        raise UsageError(
            f"tokens {options.tokens}: it sets the minibatch of each length. Leave minibatch "
            f"{options.minibatch} out."
        )


def _check_state(options: Options) -> None:
    """Check that an optimizer's state keeps numbers far below its largest.

    A root that is stored as 0 divides the next step by almost nothing.

    Raises:
      UsageError: names the format.
    """
    name = options.state or options.model_memory or options.precision
    format = MEMORIES[name]
    if format.block > 1 or not options.optimizer.adaptive or format.binades >= STATE_BINADES:
        return  # in blocks, no root becomes 0
    wide = [n for n, other in PRECISIONS.items() if other.binades >= STATE_BINADES]
    raise UsageError(
        f"state {name}: its numbers span {format.binades:.0f} binades, and steps of optimizer "
        f"{options.optimizer.name} are divided by its state; expected at least {STATE_BINADES}. "
        f"Use state {' or '.join(wide)} (--state), or an optimizer such as sgd or lion."
    )


def _check_fused(options: Options) -> None:
    """Reject options that conflict with fused_update, which can't use the norm of all gradients.

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
