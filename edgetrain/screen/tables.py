"""Memory accounts and tables as text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..program import Program
from ..program.account import MEANINGS
from ..units import finite, format_bytes
from ..units.efforts import QUICK, THOROUGH

_TRAINING = {
    "trained": ("trained", "parameters"),
    "frozen": ("frozen", "parameters"),
    "moves": ("also updated", "batch-norm statistics"),
    "stays": ("frozen too", "batch-norm statistics"),
}
_SHOWN = 3  # names per line; --json has all


def account_lines(account: Mapping[str, Any]) -> list[str]:
    """The memory account: bytes by kind at the peak step; they add up to the arena."""
    total = account["arena_nbytes"]
    budget = account.get("budget_nbytes")
    head = f"arena  {total:,} bytes ({format_bytes(total)})"
    lines = [head + (f" of a budget of {budget:,} bytes" if budget else "")]
    rows = [
        (kind, f"{nbytes:,}", f"{100 * nbytes / total:.1f} %", MEANINGS.get(kind, ""))
        for kind, nbytes in account["by_kind"].items()
        if nbytes
    ]
    rows.append(("total", f"{sum(account['by_kind'].values()):,}", "", ""))
    lines += table(rows, "lrrl")
    lines.append(
        f"minibatch {account['minibatch']}, microbatch {account['microbatch']}, "
        f"{account['threads']} threads, recomputation: "
        f"+{100 * account['extra_forward_flops']:.1f} % of a forward pass"
    )
    lines += [*_batch_lines(account), *departures(account), *statistics_lines(account)]
    lines.append(
        f"smallest budget {account['min_budget_nbytes']:,}; plus a read-only tape of "
        f"{account['tape_nbytes']:,} bytes"
    )
    if account.get("mapped_nbytes"):
        lines.append(
            f"plus {account['mapped_nbytes']:,} bytes of frozen weights, mapped read-only from the "
            "Program file"
        )
    return [*lines, *training_lines(account.get("training", {}))]


def length_lines(program: Program) -> list[str]:
    """A line for each length of a Program; none if there is only one."""
    name = next(iter(program.recipe.get("lengths", ())), "")
    rows = [
        (
            f"{name}={length}",
            f"microbatch {item.microbatch} of {item.minibatch}",
            f"{item.arena_nbytes:,} bytes",
        )
        for length, item in program.lengths.items()
    ]
    return ["lengths, in one arena:", *table(rows, "llr")] if rows else []


def _batch_lines(account: Mapping[str, Any]) -> list[str]:
    """The sample axes, if one is not axis 0."""
    axes = account.get("batch_axes")
    if not axes:
        return []
    said = [f"axis {axis} of input {name}" for name, axis in axes["inputs"].items()]
    said += [f"axis {axes[part]} of the {part}" for part in ("output", "target") if part in axes]
    return [f"samples: {', '.join(said)}; axis 0 of everything else"]


def departures(account: Mapping[str, Any]) -> list[str]:
    """How a plan differs from the request: an unsplit minibatch, unused `--allow` options."""
    mixed = account.get("mixed_by")
    lines = [f"not split into microbatches: {mixed}"] if mixed else []
    if account.get("convolutions"):
        lines.append(
            "direct convolutions: the workspace of faster ones, which round differently, does not "
            "fit the budget"
        )
    return lines + [
        f"--allow {name}: not used, because the smallest plan would take {sizes['with_nbytes']:,} "
        f"bytes instead of {sizes['without_nbytes']:,}"
        for name, sizes in account.get("declined", {}).items()
    ]


def effort_lines(account: Mapping[str, Any]) -> list[str]:
    """A hint to search longer; empty after the longest search."""
    effort, bound = account["effort"], account["bound_nbytes"]
    if effort == THOROUGH:
        return []
    also = "compile, train and " if effort == QUICK else ""
    verb = "search" if also else "searches"
    return [
        f"this was a {effort} search; {also}--effort thorough {verb} longer; no plan can take "
        f"less than {bound:,} bytes"
    ]


def statistics_lines(account: Mapping[str, Any]) -> list[str]:
    """How many samples batch-norm statistics cover, if fewer than a minibatch."""
    minibatch, microbatch = account["minibatch"], account["microbatch"]
    if microbatch < minibatch and account.get("training", {}).get("moves", {}).get("count"):
        least = account.get("whole_statistics_nbytes")
        over_all = f"--microbatch {minibatch}" + (f" --budget {least}" if least else "")
        return [
            f"batch-norm statistics cover {microbatch} of the {minibatch} samples of a minibatch; "
            f"{over_all} covers all, --freeze-bn freezes them"
        ]
    return []


def training_lines(facts: Mapping[str, Any]) -> list[str]:
    """Counts and first names of trained, frozen, also updated and sparse tensors."""
    lines = [
        f"{said}: {result['count']:,} {what}, {result['numbers']:,} numbers, "
        f"{result['nbytes']:,} bytes ({_first(result['names'])})"
        for kind, (said, what) in _TRAINING.items()
        if (result := facts.get(kind)) and result["count"]
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
    """Indented lines with aligned columns; `align` has l or r for each."""
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


def metric_lines(metrics: Mapping[str, Any], labels: Sequence[str] | None = None) -> list[str]:
    """A line of numbers, and a table per confusion matrix (rows: targets).

    Args:
      labels: class names for its rows and columns.
    """
    plain = {k: v for k, v in metrics.items() if isinstance(v, int | float)}
    head = ", ".join(f"{k} {v:.5g}" if k != "samples" else f"{v} samples" for k, v in plain.items())
    lines = [head]
    for name, value in metrics.items():
        if name not in plain and isinstance(value, list):
            rows = [[str(item) for item in row] for row in value]
            if labels is not None and len(labels) == len(rows) == len(rows[0]):
                rows = [[label, *row] for label, row in zip(labels, rows, strict=True)]
                rows.insert(0, ["", *labels])
            lines += [f"{name} (rows: targets)", *table(rows, "r" * len(rows[0]))]
    return lines


def to_json(value: Any) -> str:
    """One line of strict JSON; non-finite numbers become null."""
    return json.dumps(finite(value), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Turn numpy numbers into Python numbers."""
    return finite(value.item())
