"""Memory options: what each saves and costs in a plan, and what unused ones would save.

MEMORY_OPTIONS has one row per option; `memory_options` adds those that depend on the model.
Starting from a plan without any, the chosen options are applied in order, then the microbatch, then
recomputation, so the savings add up. Before the last step everything is saved, which needs no
search. Unused options are planned as `plan` would do it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import EdgetrainError
from ...formats import FP16, FP32, INT8, MEMORIES, PRECISIONS, Format
from ...units import format_bytes
from ...units.convolutions import AUTO, DIRECT
from ...units.memory_options import ROWS
from ...units.phases import phase
from .. import remat
from ..attention import BLOCKS
from ..compilation import Compilation
from ..model.lora import Lora
from ..options import Options
from ..passes.head import SLICES
from ..plan.candidates import Draft, Plan, make_candidate, make_draft
from ..plan.frontier import find_frontier
from .suggest import suggested_lora

SAME_BITS, SAME_MATHEMATICS = "same bits", "same mathematics"
APPROXIMATE = "approximate"


@dataclass(frozen=True)
class MemoryOption:
    """A set of compile options that save memory together.

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
    """A constant loss scale, for formats that need one; else None."""
    return None if PRECISIONS[precision].loss_scale == 1 else 1024.0


def _bits(format: Format) -> int:
    return 8 * format.nbytes(1024) // 1024


def _of_precision(name: str) -> MemoryOption:
    return MemoryOption(
        name,
        APPROXIMATE,
        f"store values in {_bits(PRECISIONS[name])} bits",
        f"--precision {name}",
        lambda options: options.precision == name,
        lambda options: {"precision": name},
        lambda options: {"precision": FP32.precision},
    )


def _smaller_parts(options: Options) -> list[str]:
    """Formats of weights, state or gradients that are smaller than the format of other values."""
    values = PRECISIONS[options.precision].nbytes(1024)
    chosen = [name for name in map(options.__getattribute__, _PARTS) if name]
    return [name for name in chosen if MEMORIES[name].nbytes(1024) < values]


def _of_memory(name: str) -> MemoryOption:
    return MemoryOption(
        name,
        APPROXIMATE,
        f"store weights, optimizer state and gradients in {_bits(MEMORIES[name])} bits",
        f"--model-memory {name}",
        lambda options: bool(_smaller_parts(options)),
        lambda options: {"model_memory": name},
        lambda options: dict.fromkeys(_PARTS),
    )


# In order of application; a new one is a row.
MEMORY_OPTIONS: tuple[MemoryOption, ...] = (
    MemoryOption(
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
    MemoryOption(
        "saved int8",
        APPROXIMATE,
        "store activations saved for backward in 8 bits",
        "--saved int8",
        lambda options: options.saved is not None,
        lambda options: {"saved": INT8.memory},
        lambda options: {"saved": None},
    ),
    MemoryOption(
        "direct convolutions",
        SAME_MATHEMATICS,
        "convolutions with less workspace and more multiplications; rounding differs",
        "--convolutions direct",
        lambda options: options.convolutions == DIRECT,
        lambda options: {"convolutions": DIRECT},
        lambda options: {"convolutions": AUTO},
    ),
    MemoryOption(
        SLICES,
        SAME_MATHEMATICS,
        "compute logits a few classes at a time, and again for backward",
        f"--allow {SLICES}",
        **_allow(SLICES),
    ),
    MemoryOption(
        BLOCKS,
        SAME_MATHEMATICS,
        "compute attention scores a block at a time, and again for backward",
        f"--allow {BLOCKS}",
        **_allow(BLOCKS),
    ),
    MemoryOption(
        ROWS,
        SAME_MATHEMATICS,
        "keep embedding gradients only for tokens in the minibatch",
        f"--allow {ROWS}",
        **_allow(ROWS),
    ),
    MemoryOption(
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


def memory_options(compilation: Compilation) -> Iterator[MemoryOption]:
    """Adapters, then MEMORY_OPTIONS with the chosen formats, then weights that stay in the file."""
    model, options = compilation.model, compilation.options
    lora = options.lora if isinstance(options.lora, Lora) else None
    text = f"r={lora.r},targets={','.join(lora.targets)}" if lora else suggested_lora(model)
    if text:
        yield MemoryOption(
            ADAPTERS,
            APPROXIMATE,
            "train only adapters; other weights stay in the Program file",
            f"--lora '{text}'",
            lambda options: options.lora is not None,
            lambda options: {"lora": text},
            # Without adapters, constants need not become weights.
            lambda options: {"lora": None, "allow_constants": True},
        )
    chosen = {}
    if options.precision != FP32.precision:
        chosen[FP16.precision] = _of_precision(options.precision)
    if smaller := _smaller_parts(options):
        chosen[INT8.memory] = _of_memory(smaller[0])
    yield from (chosen.get(row.name, row) for row in MEMORY_OPTIONS)
    weights = options.weights or options.model_memory or options.precision
    stored = options.frozen or weights
    blocked = MEMORIES[weights].block > 1  # blocks are never mapped
    if options.frozen or not blocked:
        yield MemoryOption(
            "frozen",
            SAME_BITS if stored == weights and not blocked else APPROXIMATE,
            "keep untrained weights in the Program file (int8, int4: rounded)",
            f"--frozen {stored}",
            lambda options: options.frozen is not None,
            lambda options: {"frozen": stored},
            lambda options: {"frozen": None},
        )


@dataclass(frozen=True)
class Saving:
    """The effect of a memory option on a plan.

    Attributes:
      taken: whether the plan uses it; if not, the other fields predict its effect.
      saved_nbytes: bytes saved in the arena, or, if not taken, in the smallest plan.
      time: relative to the plan without it. If not taken: time of the fastest plan with the option
        in the chosen plan's bytes, relative to the chosen plan.
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


def savings(front: Sequence[Plan], plan: Plan) -> list[Saving]:
    """Savings of the chosen options, the microbatch and recomputation, then of unused options.

    Args:
      front: the plans of a compilation, including the chosen `plan`.
    """
    return [*_of_chosen(plan), *_of_unused(front, plan)]


def _of_chosen(plan: Plan) -> Iterator[Saving]:
    compilation, microbatch = plan.candidate.compilation, plan.candidate.microbatch
    options = compilation.options
    taken = [option for option in memory_options(compilation) if option.taken(options)]
    minibatch = options.minibatch
    try:
        before = draft_saving_everything(_without(taken, compilation), minibatch)
    except EdgetrainError:  # the model cannot be trained without its adapters
        taken = [option for option in taken if option.name != ADAPTERS]
        before = draft_saving_everything(_without(taken, compilation), minibatch)
    for number, option in enumerate(taken):
        after = draft_saving_everything(_without(taken[number + 1 :], compilation), minibatch)
        yield _difference(option.name, option.kind, option.does, before, after, option.typed)
        before = after
    after = draft_saving_everything(compilation, microbatch)
    words = f"{microbatch} of {minibatch} samples at a time"
    yield _difference("microbatch", SAME_MATHEMATICS, words, before, after)
    words = f"recompute {plan.extra_forward:.2f} forward passes, and pack the layout"
    saved = after.arena_nbytes - plan.arena_nbytes
    yield Saving("recompute", SAME_BITS, words, True, saved, plan.cost / after.cost)


def _without(taken: Sequence[MemoryOption], compilation: Compilation) -> Compilation:
    """The compilation without these options."""
    options = compilation.options
    for option in taken:
        options = replace(options, **option.off(options))
    return compilation.derived(options)


def _difference(
    name: str, kind: str, does: str, before: Draft, after: Draft, option: str = ""
) -> Saving:
    saved = before.arena_nbytes - after.arena_nbytes
    return Saving(name, kind, does, True, saved, after.cost / before.cost, option)


def draft_saving_everything(compilation: Compilation, microbatch: int) -> Draft:
    """The unplaced plan that recomputes nothing."""
    candidate = make_candidate(compilation.with_options(microbatch=microbatch), microbatch)
    return make_draft(candidate, remat.store_all(candidate.train.problem, 0)[0])


def _of_unused(front: Sequence[Plan], plan: Plan) -> Iterator[Saving]:
    """Savings of unused options, with the microbatches of the smallest and the chosen plan."""
    compilation, least = plan.candidate.compilation, front[0]
    options = compilation.options
    sizes = dict.fromkeys(p.candidate.microbatch for p in (least, plan))
    for option in memory_options(compilation):
        if option.taken(options):
            continue
        about = option.name, option.kind, option.does, False
        with phase(f"planning {option.name}"):
            try:
                changed = compilation.with_options(**option.on(options))
                fixed = changed.options.microbatch
                plans = [
                    other
                    for size in ([fixed] if fixed else sizes)
                    for other in find_frontier(changed.with_options(microbatch=size))
                ]
            except EdgetrainError as error:
                yield Saving(*about, 0, 1.0, option.typed, str(error))
                continue
        fitting = [p.cost for p in plans if p.arena_nbytes <= plan.arena_nbytes]
        smallest = min(plans, key=lambda p: p.arena_nbytes)
        saved = least.arena_nbytes - smallest.arena_nbytes
        time = min(fitting, default=smallest.cost) / plan.cost
        yield Saving(*about, saved, time, option.typed)


def savings_json(rows: Sequence[Saving]) -> list[dict[str, Any]]:
    """One JSON object per row."""
    return [asdict(row) for row in rows]


def savings_table(rows: Sequence[Saving]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Text rows of chosen and of unused options, without options that can't be used.

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


def most_saving(rows: Sequence[Saving]) -> str:
    """A sentence about the unused option that would save the most; "" if none would."""
    left = [row for row in rows if not row.taken and not row.problem and row.saved_nbytes > 0]
    if not left:
        return ""
    best = max(left, key=lambda row: row.saved_nbytes)
    return (
        f"{best.option} ({best.kind}) would make the smallest plan "
        f"{format_bytes(best.saved_nbytes)} smaller."
    )
