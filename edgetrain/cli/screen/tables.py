"""Accounts and tables as text."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...program.account import MEANINGS
from ...units import format_bytes
from ...units.efforts import QUICK, THOROUGH

_TRAINING = {
    "trained": "parameters",
    "frozen": "parameters",
    "moves": "running statistics",
    "stays": "running statistics",
}
_SHOWN = 3  # names in a line; --json has them all


def account_lines(account: Mapping[str, Any]) -> list[str]:
    """The memory account: bytes by kind at the peak step, which add up to the arena."""
    total = account["arena_nbytes"]
    budget = account.get("budget_nbytes")
    head = f"arena  {total:,} bytes ({format_bytes(total)})"
    lines = [head + (f" of a budget of {budget:,}" if budget else "")]
    rows = [
        (kind, f"{nbytes:,}", f"{100 * nbytes / total:.1f} %", MEANINGS.get(kind, ""))
        for kind, nbytes in account["by_kind"].items()
        if nbytes
    ]
    rows.append(("total", f"{sum(account['by_kind'].values()):,}", "", ""))
    lines += table(rows, "lrrl")
    lines.append(
        f"minibatch {account['minibatch']}, microbatch {account['microbatch']}, "
        f"{account['threads']} threads, recomputed {100 * account['extra_forward_flops']:.1f} % of "
        f"a forward"
    )
    lines += [*departures(account), *_statistics_lines(account)]
    lines.append(
        f"smallest possible budget {account['min_budget_nbytes']:,}; tape "
        f"{account['tape_nbytes']:,} bytes beside the arena, read-only"
    )
    if account.get("mapped_nbytes"):
        lines.append(
            f"frozen weights {account['mapped_nbytes']:,} bytes beside the arena, mapped read-only "
            "from the Program's file"
        )
    return [*lines, *training_lines(account.get("training", {}))]


def departures(account: Mapping[str, Any]) -> list[str]:
    """What a plan does otherwise than was asked or may be expected: a minibatch that is not split,
    rungs that are allowed and not taken."""
    mixed = account.get("mixed_by")
    lines = [f"not split into microbatches: {mixed}"] if mixed else []
    if account.get("convolutions"):
        lines.append(
            "convolutions are direct: the budget has no room for the scratch of faster ones (equal "
            "up to rounding)"
        )
    return lines + [
        f"allow {name}: not taken, the smallest plan would have {sizes['with_nbytes']:,} bytes for "
        f"{sizes['without_nbytes']:,}"
        for name, sizes in account.get("declined", {}).items()
    ]


def effort_lines(account: Mapping[str, Any]) -> list[str]:
    """What a longer search may bring; nothing where none is longer."""
    effort, bound = account["effort"], account["bound_nbytes"]
    if effort == THOROUGH:
        return []
    longer = "--effort thorough searches longer"
    if effort == QUICK:
        longer = "compile and train search longer, --effort thorough longest"
    return [f"{effort} search: {longer}; no plan takes less than {bound:,} bytes"]


def _statistics_lines(account: Mapping[str, Any]) -> list[str]:
    """Over how many samples batch-norms take their statistics, where that is not a minibatch."""
    minibatch, microbatch = account["minibatch"], account["microbatch"]
    if microbatch < minibatch and account.get("training", {}).get("moves", {}).get("count"):
        least = account.get("whole_statistics_nbytes")
        over_all = f"--microbatch {minibatch}" + (f" --budget {least}" if least else "")
        return [
            f"batch-norm takes its statistics over {microbatch} of the {minibatch} samples of a "
            f"minibatch; {over_all} takes them over all, --freeze-bn takes none"
        ]
    return []


def training_lines(facts: Mapping[str, Any]) -> list[str]:
    """What is trained, what is frozen, what moves, what is sparse: counts and the first names."""
    lines = [
        f"{kind}: {found['count']:,} {what}, {found['numbers']:,} numbers, "
        f"{found['nbytes']:,} bytes ({_first(found['names'])})"
        for kind, what in _TRAINING.items()
        if (found := facts.get(kind)) and found["count"]
    ]
    if facts.get("sparse"):
        lines.append(f"sparse: {_first(facts['sparse'])}")
    reasons: dict[str, list[str]] = {}
    for name, why in facts.get("dense", {}).items():
        reasons.setdefault(why, []).append(name)
    return lines + [f"dense ({why}): {_first(names)}" for why, names in reasons.items()]


def _first(names: Sequence[str]) -> str:
    shown, rest = ", ".join(names[:_SHOWN]), len(names) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def table(rows: Sequence[Sequence[str]], align: str, head: Sequence[str] = ()) -> list[str]:
    """Indented lines with columns in line; `align` has l or r for each."""
    whole = [*([head] if head else []), *rows]
    if not whole:
        return []
    widths = [max(len(row[k]) for row in whole) for k in range(len(align))]
    sides = {"l": str.ljust, "r": str.rjust}
    return [
        "  "
        + "  ".join(sides[a](c, w) for c, a, w in zip(row, align, widths, strict=True)).rstrip()
        for row in whole
    ]


def metric_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Numbers in a line, and a table for each confusion matrix (rows: targets)."""
    plain = {k: v for k, v in metrics.items() if isinstance(v, int | float)}
    head = ", ".join(f"{k} {v:.5g}" if k != "samples" else f"{v} samples" for k, v in plain.items())
    lines = [head]
    for name, value in metrics.items():
        if name not in plain and isinstance(value, list):
            rows = [[str(item) for item in row] for row in value]
            lines += [f"{name} (rows: targets)", *table(rows, "r" * len(rows[0]))]
    return lines


def to_json(value: Any) -> str:
    """One line of strict JSON; numbers that are not finite become null."""
    return json.dumps(_finite(value), allow_nan=False, default=_plain)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's."""
    return _finite(value.item())
