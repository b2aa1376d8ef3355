"""The ladder: what each option saves in a plan and costs, and what unused options would save.

A row of RUNGS is a choice of options; `rungs` adds those that depend on the model. Starting from a
plan without any, the chosen ones are applied in order, then the microbatch, then recomputation; the
savings add up. Before the last rung everything is saved, so no search is needed. Unused options are
planned as `plan` would do it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import EdgetrainError
from ...formats import FP16, FP32, INT8, MEMORIES, PRECISIONS, Format
from ...kernels import targets
from ...ops.model import Model
from ...units import format_bytes
from ...units.convolutions import AUTO, DIRECT
from ...units.rungs import ROWS
from ...units.stages import stage
from .. import remat
from ..attention import BLOCKS
from ..model.lora import Lora
from ..options import Options
from ..passes.head import SLICES
from ..plan.candidates import Draft, Plan, make_candidate, make_draft
from ..plan.frontier import find_frontier
from .suggest import suggested_lora

SAME_BITS, SAME_MATHEMATICS = "same bits", "same mathematics"
APPROXIMATE = "approximate"


@dataclass(frozen=True)
class Rung:
    """A memory-saving choice of options.

    Attributes:
      kind: SAME_BITS, SAME_MATHEMATICS or APPROXIMATE.
      does: description.
      taken: whether given options include it.
      on, off: changes of the options that switch it on and off.
      typed: how to choose it on the command line.
    """

    name: str
    kind: str
    does: str
    typed: str
    taken: Callable[[Options], bool]
    on: Callable[[Options], Mapping[str, Any]]
    off: Callable[[Options], Mapping[str, Any]]


_PARTS = ("model_memory", "weights", "state", "grads")


def _allow(name: str) -> dict[str, Any]:
    return {
        "taken": lambda options: name in options.allow,
        "on": lambda options: {"allow": (*options.allow, name)},
        "off": lambda options: {"allow": tuple(n for n in options.allow if n != name)},
    }


def _fixed_scale(precision: str) -> float | None:
    """A loss scale that does not move, for formats that need one."""
    return None if PRECISIONS[precision].loss_scale == 1 else 1024.0


def _bits(format: Format) -> int:
    return 8 * format.nbytes(1024) // 1024


def _of_precision(name: str) -> Rung:
    return Rung(
        name,
        APPROXIMATE,
        f"store values in {_bits(PRECISIONS[name])} bits",
        f"--precision {name}",
        lambda options: options.precision == name,
        lambda options: {"precision": name},
        lambda options: {"precision": FP32.precision},
    )


def _smaller_parts(options: Options) -> list[str]:
    """Formats of weights, state or gradients that are smaller than that of values."""
    values = PRECISIONS[options.precision].nbytes(1024)
    chosen = [name for name in map(options.__getattribute__, _PARTS) if name]
    return [name for name in chosen if MEMORIES[name].nbytes(1024) < values]


def _of_memory(name: str) -> Rung:
    return Rung(
        name,
        APPROXIMATE,
        f"store weights, optimizer state and gradients in {_bits(MEMORIES[name])} bits",
        f"--model-memory {name}",
        lambda options: bool(_smaller_parts(options)),
        lambda options: {"model_memory": name},
        lambda options: dict.fromkeys(_PARTS),
    )


# In order of application; a new rung is a row.
RUNGS: tuple[Rung, ...] = (
    Rung(
        "density",
        APPROXIMATE,
        "train only part of the weights, and move them during training",
        "--density 0.3",
        lambda options: options.density < 1 or bool(options.density_overrides),
        lambda options: {"density": 0.3, "rewiring": "dsr"},
        lambda options: {
            "density": 1.0,
            "density_overrides": {},
            "distribution": "uniform",
            "rewiring": "dsr",
        },
    ),
    _of_precision(FP16.precision),
    _of_memory(INT8.memory),
    Rung(
        "saved int8",
        APPROXIMATE,
        "store activations saved for backward in 8 bits",
        "--saved int8",
        lambda options: options.saved is not None,
        lambda options: {"saved": INT8.memory},
        lambda options: {"saved": None},
    ),
    Rung(
        "direct convolutions",
        SAME_MATHEMATICS,
        "convolutions with less workspace and more multiplications; rounding differs",
        "--convolutions direct",
        lambda options: options.convolutions == DIRECT,
        lambda options: {"convolutions": DIRECT},
        lambda options: {"convolutions": AUTO},
    ),
    Rung(
        SLICES,
        SAME_MATHEMATICS,
        "compute logits a few classes at a time, and again for backward",
        f"--allow {SLICES}",
        **_allow(SLICES),
    ),
    Rung(
        BLOCKS,
        SAME_MATHEMATICS,
        "compute attention scores a block at a time, and again for backward",
        f"--allow {BLOCKS}",
        **_allow(BLOCKS),
    ),
    Rung(
        ROWS,
        SAME_MATHEMATICS,
        "keep embedding gradients only for tokens in the minibatch",
        f"--allow {ROWS}",
        **_allow(ROWS),
    ),
    Rung(
        "fused update",
        SAME_BITS,
        "update each weight as soon as its gradient is ready",
        "--fused-update",
        lambda options: options.fused_update,
        lambda options: {
            "fused_update": True,
            "microbatch": options.microbatch or options.minibatch,
            "loss_scale": options.loss_scale or _fixed_scale(options.precision),
        },
        lambda options: {"fused_update": False},
    ),
)
ADAPTERS = "adapters"


def rungs(model: Model, options: Options) -> Iterator[Rung]:
    """RUNGS, with the formats that were chosen, preceded by adapters and followed by weights that
    stay in the file."""
    lora = options.lora if isinstance(options.lora, Lora) else None
    text = f"r={lora.r},targets={','.join(lora.targets)}" if lora else suggested_lora(model)
    if text:
        yield Rung(
            ADAPTERS,
            APPROXIMATE,
            "train only adapters; other weights stay in the Program file",
            f"--lora '{text}'",
            lambda options: options.lora is not None,
            lambda options: {"lora": text},
            # Constants need not become weights then.
            lambda options: {"lora": None, "allow_constants": True},
        )
    chosen = {}
    if options.precision != FP32.precision:
        chosen[FP16.precision] = _of_precision(options.precision)
    if smaller := _smaller_parts(options):
        chosen[INT8.memory] = _of_memory(smaller[0])
    yield from (chosen.get(rung.name, rung) for rung in RUNGS)
    own = options.weights or options.model_memory or options.precision
    stored, blocked = options.frozen or own, MEMORIES[own].block > 1  # blocks are never mapped
    if options.frozen or not blocked:
        yield Rung(
            "frozen",
            SAME_BITS if stored == own and not blocked else APPROXIMATE,
            "keep untrained weights in the Program file (int8, int4: rounded)",
            f"--frozen {stored}",
            lambda options: options.frozen is not None,
            lambda options: {"frozen": stored},
            lambda options: {"frozen": None},
        )


@dataclass(frozen=True)
class Row:
    """The effect of a choice on a plan.

    Attributes:
      taken: whether the plan uses it; if not, the other fields say what it would do.
      saved_nbytes: bytes saved in the arena, or, if not taken, in the smallest plan.
      time: time relative to the plan without it; if not taken: of the fastest plan with the bytes
        of the chosen one, relative to the chosen one.
      option: how to choose it on the command line; "" if the planner decides.
      problem: why it can't be used; "" if it can.
    """

    name: str
    kind: str
    does: str
    taken: bool
    saved_nbytes: int
    time: float
    option: str = ""
    problem: str = ""


def ladder(model: Model, options: Options, front: Sequence[Plan], plan: Plan) -> list[Row]:
    """Rows of the chosen rungs, the microbatch and recomputation, then of the unused rungs.

    Args:
      front: the plans of `options`, including the chosen `plan`.
    """
    return [*_climbed(model, options, plan), *_left(model, options, front, plan)]


def _climbed(model: Model, options: Options, plan: Plan) -> Iterator[Row]:
    taken = [rung for rung in rungs(model, options) if rung.taken(options)]
    microbatch = plan.candidate.microbatch
    whole = options.minibatch
    try:
        before = _kept(model, _without(taken, options), whole)
    except EdgetrainError:  # the model cannot be trained without its adapters
        taken = [rung for rung in taken if rung.name != ADAPTERS]
        before = _kept(model, _without(taken, options), whole)
    for number, rung in enumerate(taken):
        after = _kept(model, _without(taken[number + 1 :], options), whole)
        yield _row(rung.name, rung.kind, rung.does, before, after, rung.typed)
        before = after
    after = _kept(model, options, microbatch)
    words = f"{microbatch} of {whole} samples at a time"
    yield _row("microbatch", SAME_MATHEMATICS, words, before, after)
    words = f"recompute {plan.extra_forward:.2f} forward passes, and pack the layout"
    saved = after.arena_nbytes - plan.arena_nbytes
    yield Row("recompute", SAME_BITS, words, True, saved, plan.cost / after.cost)


def _without(rungs: Sequence[Rung], options: Options) -> Options:
    """The options without these rungs."""
    for rung in rungs:
        options = replace(options, **rung.off(options))
    return options


def _row(name: str, kind: str, does: str, before: Draft, after: Draft, option: str = "") -> Row:
    saved = before.arena_nbytes - after.arena_nbytes
    return Row(name, kind, does, True, saved, after.cost / before.cost, option)


def _kept(model: Model, options: Options, microbatch: int) -> Draft:
    """The plan that saves everything, without placement."""
    target = targets.get(options.target).processor
    sized = replace(options, microbatch=microbatch)
    candidate = make_candidate(model, sized, microbatch, target)
    schedule = remat.store_all(candidate.train.problem, 0)[0]
    return make_draft(candidate, schedule, sized)


def _left(model: Model, options: Options, front: Sequence[Plan], plan: Plan) -> Iterator[Row]:
    """Rows of unused rungs, planned with the microbatches of the smallest and the chosen plan."""
    target, least = targets.get(options.target).processor, front[0]
    sizes = dict.fromkeys(p.candidate.microbatch for p in (least, plan))
    for rung in rungs(model, options):
        if rung.taken(options):
            continue
        with stage(f"planning {rung.name}"):
            try:
                changed = replace(options, **rung.on(options))
                fixed = [changed.microbatch] if changed.microbatch else sizes
                other = [
                    found
                    for size in fixed
                    for found in find_frontier(model, replace(changed, microbatch=size), target)
                ]
            except EdgetrainError as error:
                problem = str(error)
                yield Row(rung.name, rung.kind, rung.does, False, 0, 1.0, rung.typed, problem)
                continue
        fitting = [p.cost for p in other if p.arena_nbytes <= plan.arena_nbytes]
        smallest = min(other, key=lambda p: p.arena_nbytes)
        saved = least.arena_nbytes - smallest.arena_nbytes
        time = min(fitting, default=smallest.cost) / plan.cost
        yield Row(rung.name, rung.kind, rung.does, False, saved, time, rung.typed)


def ladder_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One JSON object per row."""
    return [asdict(row) for row in rows]


def ladder_table(rows: Sequence[Row]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Text rows of chosen and of unused rungs, without unusable ones.

    Columns: name, bytes saved, time, kind, description and option.
    """
    taken: list[tuple[str, ...]] = []
    others: list[tuple[str, ...]] = []
    for row in rows:
        if row.problem:
            continue
        words = f"{row.does} ({row.option})" if row.option else row.does
        shown = f"{row.saved_nbytes:,}", f"{row.time:.2f}", row.kind, words
        (taken if row.taken else others).append((row.name, *shown))
    return taken, others


def most_saving(rows: Sequence[Row]) -> str:
    """A sentence about the unused rung that would save most; "" if none would."""
    left = [row for row in rows if not row.taken and not row.problem and row.saved_nbytes > 0]
    if not left:
        return ""
    best = max(left, key=lambda row: row.saved_nbytes)
    return (
        f"{best.option} ({best.kind}) would make the smallest plan "
        f"{format_bytes(best.saved_nbytes)} smaller."
    )
