"""Explains the frontier: what was tried and chosen, and the next smaller and faster plans."""

from collections.abc import Sequence
from typing import Any

from ...kernels import targets
from ...units import format_bytes
from ...units.wording import counted
from ..segments import described
from .candidates import Plan
from .frontier import peak_of


def frontier_rows(front: Sequence[Plan]) -> list[dict[str, Any]]:
    """One JSON-able row per plan, by rising arena size.

    `relative_time` is the cost model's minibatch time over that of the fastest plan.
    """
    fastest = front[-1].cost
    return [
        {
            "arena_nbytes": plan.arena_nbytes,
            "microbatch": plan.candidate.microbatch,
            "extra_forward_flops": plan.extra_forward,
            "relative_time": plan.cost / fastest,
        }
        for plan in front
    ]


def explain(front: Sequence[Plan], plan: Plan, tried: Sequence[int]) -> str:
    """Explain a choice in sentences.

    Args:
      tried: microbatches that were planned.
    """
    rows = frontier_rows(front)
    index = list(front).index(plan)
    useful = sorted({row["microbatch"] for row in rows})
    (position, step), live = peak_of(plan)
    lines = [
        f"Tried microbatches {_listed(tried)}; kept: {counted(len(front), 'plan')}, with "
        f"microbatch {_listed(useful)}, from {format_bytes(rows[0]['arena_nbytes'])} "
        f"({rows[0]['relative_time']:.2f} times as slow as the fastest) to "
        f"{format_bytes(rows[-1]['arena_nbytes'])} (the fastest).",
        f"Chosen: {_described(rows[index])}.",
        f"Peak at step {position} ({step}); largest live: "
        + ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in live[:5])
        + ".",
    ]
    said = _arithmetic(plan), _algorithms(front, plan), described(plan.candidate.graphs.train)
    lines += [line for line in said if line]
    if index > 0:
        lines.append(f"The next smaller plan: {_described(rows[index - 1])}.")
    else:
        lines.append("No smaller plan was found.")
    if index + 1 < len(rows):
        lines.append(f"The next faster plan: {_described(rows[index + 1])}.")
    else:
        lines.append("No plan is faster.")
    return "\n".join(lines)


def _arithmetic(plan: Plan) -> str:
    """A sentence if the arithmetic is separate, or fused without hardware for it; else ""."""
    options = plan.candidate.options
    target = targets.get(options.target)
    if options.arithmetic == targets.SEPARATE:
        why = "as asked" if target.fma else f"{target.name} has no fused multiply-add"
        return (
            f"Arithmetic is separate ({why}): products are rounded before they are added, on every "
            "processor that runs this Program."
        )
    if target.fma:
        return ""
    return (
        f"Arithmetic is fused, as asked; {target.name} has no such instruction and needs a "
        "dozen others for it. Leave --arithmetic out for separate, which is faster there."
    )


def _algorithms(front: Sequence[Plan], plan: Plan) -> str:
    """A sentence if only larger plans use the faster convolutions; else ""."""
    others = [p.arena_nbytes for p in front if p.candidate.has_shortcuts]
    if plan.candidate.has_shortcuts or not others:
        return ""
    return (
        "Convolutions are direct, because faster ones, which round differently, need more "
        f"workspace: plans of at least {format_bytes(min(others))} use them."
    )


def _described(row: dict[str, Any]) -> str:
    return (
        f"{row['arena_nbytes']} bytes ({format_bytes(row['arena_nbytes'])}), microbatch "
        f"{row['microbatch']}, {row['extra_forward_flops']:.2f} forward passes recomputed, "
        f"{row['relative_time']:.2f} times the fastest plan's time"
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
