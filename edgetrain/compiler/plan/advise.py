"""Finds out what can be trained within a budget: plans every way to save memory.

A way combines a row of WHAT (which parameters are trained) with a row of HOW (how they are stored),
or adapters with a row of ADAPTED. To add one, add its row: its compiler options become the options
of the printed command.
"""

import glob
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ...errors import EdgetrainError, UsageError
from ...ops.model import Model
from ...ops.onnx_ops import onnx_op
from ...units.phases import phase
from ..advice.estimate import seconds_per_minibatch
from ..advice.suggest import suggested_lora
from ..compilation import Compilation
from ..compile import make_plan
from ..options import Options
from .candidates import Plan

Patterns = tuple[str, ...]
_MOST_PATTERNS = 8  # in a command that people read


@dataclass(frozen=True)
class Way:
    """A way to train a model.

    Attributes:
      what, how: descriptions.
      options: compiler options by name, in addition to the given ones.
    """

    what: str
    how: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """A way to train and its memory and time.

    Attributes:
      trained: number of trained elements.
      least_nbytes: arena bytes of the smallest plan.
      plan: the fastest plan within the budget; None if none fits.
      seconds: predicted seconds per minibatch with this plan; 0 without a plan.
      mapped_nbytes: frozen weights that stay in the Program file, in addition to the arena.
    """

    way: Way
    trained: int
    least_nbytes: int
    plan: Plan | None
    seconds: float = 0.0
    mapped_nbytes: int = 0


def advise(
    model: Model,
    make: Callable[..., Options],
    given: Mapping[str, Any],
    budget: int | None,
) -> list[Advice]:
    """Plan every way; ways that fit come first, sorted by time, then the others by size.

    Args:
      make: makes Options from keyword arguments.
      given: keyword arguments that apply to all ways; options set here are not varied.
      budget: bytes; None: every way with its fastest plan.
    Raises:
      EdgetrainError: why the model can't be trained, if no way works.
    """
    rows: list[Advice] = []
    problem: EdgetrainError | None = None
    compilation: Compilation | None = None
    for way in ways(model, given):
        with phase(f"planning {way.what}, {way.how}"):
            try:
                options = make(**{**given, **way.options})
                last = compilation or Compilation(model, options)
                compilation = last.derived(options)
                _, front, _ = make_plan(compilation)
            except UsageError as error:  # such as a density for a model without sparse layers
                problem = problem or error
                continue
        fitting = [p for p in front if budget is None or p.arena_nbytes <= budget]
        plan = fitting[-1] if fitting else None
        seconds = seconds_per_minibatch(plan, options.minibatch, options.threads) if plan else 0.0
        least = front[0]
        numbers = _trained(least), least.arena_nbytes
        rows.append(Advice(way, *numbers, plan, seconds, least.candidate.mapped_nbytes))
    if problem is not None and not rows:
        raise problem
    return sorted(rows, key=_rank)


def _rank(advice: Advice) -> tuple[bool, float, int]:
    if advice.plan is None:
        return True, 0.0, advice.least_nbytes
    return False, advice.seconds, advice.plan.arena_nbytes


def best(found: Sequence[Advice]) -> Advice | None:
    """The way that fits and sacrifices the least; None if none fits."""
    fitting = [advice for advice in found if advice.plan is not None]
    if not fitting:
        return None
    return min(fitting, key=sacrifice)


def sacrifice(advice: Advice) -> tuple[int, int, float]:
    """A way's cost for the user: untrained elements first, then rounded storage, then time."""
    return -advice.trained, _narrow(advice.way), _rank(advice)[1]


def _narrow(way: Way) -> int:
    """How many of its options store values in fewer bits."""
    return len({"precision", "model_memory", "frozen", "saved"} & {*way.options})


def _trained(plan: Plan) -> int:
    from ..advice.listing import training_facts

    return int(training_facts(plan.candidate.graphs)["trained"]["numbers"])


_SMALL = {"precision": "fp16", "model_memory": "int8"}
# How values are stored, as text and as options; True: only if all weights are trained, False: only
# if not.
HOW: tuple[tuple[str, dict[str, Any], bool | None], ...] = (
    ("fp32", {}, None),
    ("fp16", {"precision": "fp16"}, None),
    ("fp16, weights int8", _SMALL, None),
    ("fp16, weights and saved int8", _SMALL | {"saved": "int8"}, True),
    ("fp16, density 0.3", {"precision": "fp16", "density": 0.3}, True),
    ("fp16, density 0.1", {"precision": "fp16", "density": 0.1}, True),
    ("fp16, frozen weights int8", {"precision": "fp16", "frozen": "int8"}, False),
)
_PARTS = {"weights", "state", "grads"}  # options that replace one part of `model_memory`
# The same for low-rank adapters; all other weights are mapped.
ADAPTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fp32", {}),
    ("fp32, frozen weights int8", {"frozen": "int8"}),
    ("fp16", {"precision": "fp16"}),
    ("fp16, frozen weights int4", {"precision": "fp16", "frozen": "int4"}),
)


def ways(model: Model, given: Collection[str]) -> Iterator[Way]:
    """Each row of WHAT with each row of HOW, then adapters; given options are kept."""
    fixed = {"train", "freeze", "lora"} & set(given)
    stored = ({name for _, options, _ in HOW for name in options} | _PARTS) & set(given)
    seen: set[frozenset[str]] = set()
    for what, patterns_of in WHAT.items():
        patterns = () if what == "all" else patterns_of(model)
        names = _matched(model, patterns) if patterns else frozenset(model.parameters)
        if (what != "all" and (fixed or not patterns)) or names in seen:
            continue
        seen.add(names)
        for how, options, trains_all in HOW:
            if set(options) & set(given) or trains_all not in (None, what == "all"):
                continue
            chosen = {"train": patterns} if patterns else {}
            words = "as asked" if fixed else what, "as asked" if stored and not options else how
            yield Way(*words, {**chosen, **options})
    lora = "" if fixed or "density" in given else suggested_lora(model)  # they are dense
    for how, options in ADAPTED if lora else ():
        if not set(options) & set(given):
            stores = "as asked" if stored and not options else how
            yield Way("adapters", stores, {"lora": lora, **options})


def _matched(model: Model, patterns: Patterns) -> frozenset[str]:
    return frozenset(
        name for name in model.parameters if any(fnmatchcase(name, p) for p in patterns)
    )


def _in_order(model: Model) -> list[str]:
    """Parameters in the order in which nodes read them."""
    known, order = set(model.parameters), dict[str, None]()
    made = {name: node for node in model.nodes for name in node.outputs if name}

    def follow(name: str) -> None:
        if name in known:
            order.setdefault(name)
        elif name in made and len(made[name].inputs) == 1:  # a transposed or reshaped weight
            follow(made[name].inputs[0])

    for node in model.nodes:
        for name in node.inputs:
            follow(name)
    return [*order, *(name for name in model.parameters if name not in order)]


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _last(model: Model, share: float) -> Patterns:
    """Patterns for the last `share` of all modules, at least the head."""
    modules = list(dict.fromkeys(_module(name) for name in _in_order(model)))
    if len(modules) < 2:
        return ()
    count = max(1, round(share * len(modules)))
    wanted = set(modules[-count:])
    return _shortest(model, {n for n in model.parameters if _module(n) in wanted})


def _head(model: Model) -> Patterns:
    return _last(model, 0.0)


def _biases(model: Model) -> Patterns:
    biases = [n for n in model.parameters if n.rpartition(".")[2].startswith("bias")]
    return ("*.bias*", *_head(model)) if biases else ()


def _norms(model: Model) -> Patterns:
    read = {name for n in model.nodes if onnx_op(n.op_type).neutral for name in n.inputs[1:3]}
    names = read & set(model.parameters)
    return (*_shortest(model, names), *_head(model)) if names else ()


# Which parameters are trained, as text -> their patterns; () if the model has none.
WHAT: dict[str, Callable[[Model], Patterns]] = {
    "all": lambda model: (),
    "the last half": lambda model: _last(model, 0.5),
    "the last quarter": lambda model: _last(model, 0.25),
    "norms and head": _norms,
    "biases and head": _biases,
    "the head": _head,
}


def _shortest(model: Model, names: set[str]) -> Patterns:
    """A few patterns that match exactly these parameters of the model.

    The names themselves if there are few; () if it would take too many patterns.
    """
    every = (*model.parameters, *model.aliases)
    candidates: dict[str, frozenset[str]] = {}
    for name in sorted(names):
        for pattern in _patterns_of(name):
            if pattern not in candidates:
                matching = frozenset(n for n in every if fnmatchcase(n, pattern))
                candidates[pattern] = (
                    matching if matching <= names | model.aliases.keys() else frozenset()
                )
    left = set(names)
    chosen: list[str] = []
    while left:
        pattern = max(candidates, key=lambda p: (len(candidates[p] & left), -len(p), p))
        if not candidates[pattern] & left or len(chosen) == _MOST_PATTERNS:
            return ()
        chosen.append(pattern)
        left -= candidates[pattern]
    return tuple(chosen)


def _patterns_of(name: str) -> Iterator[str]:
    """Patterns that match a name, from the name itself to very wide ones."""
    parts = [glob.escape(part) for part in name.split(".")]
    yield ".".join(parts)
    for k in range(1, len(parts)):
        yield ".".join([*parts[:k], "*"])
        yield ".".join(["*", *parts[k:]])
        yield ".".join([*parts[:k], "*", *parts[k + 1 :]])
    numbers = [k for k, part in enumerate(parts) if part.isdecimal()]
    for most in range(1, len(numbers) + 1):
        starred = set(numbers[:most])
        yield ".".join("*" if k in starred else part for k, part in enumerate(parts))
    stem = parts[-2].rstrip("0123456789") if len(parts) > 1 else ""
    if stem and stem != parts[-2]:
        yield f"*{stem}*.{parts[-1]}"
        yield f"*{stem}*"
