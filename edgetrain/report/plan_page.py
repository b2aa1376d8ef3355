"""The page about a plan's memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..program.account import MEANINGS
from ..units import format_bytes
from .arena_chart import arena_chart, arena_data, largest
from .charts import Point, bars_chart, frontier_chart, kinds_of
from .page import Page
from .scene import Arena, Box

_ROWS = 40  # most rows of the table of plans


@dataclass(frozen=True)
class Frontier:
    """The available plans, by increasing bytes.

    Attributes:
      chosen: index of the chosen plan.
    """

    points: Sequence[Point]
    chosen: int


def plan_page(
    name: str,
    arena: Arena,
    account: Mapping[str, Any],
    frontier: Frontier,
    beside: Sequence[tuple[str, Mapping[str, int]]],
    command: str,
) -> Page:
    """The page of `plan --report`.

    Args:
      account: the object printed by `plan --json`.
      beside: alternatives for comparison: (name, bytes by kind).
      command: command that made the page.
    """
    total, budget = account["arena_nbytes"], account.get("budget_nbytes")
    page = Page(name, "The planned memory of training this model.")
    facts = [("arena", format_bytes(total))]
    if budget:
        facts.append(("budget", format_bytes(budget)))
    facts += [
        ("smallest plan", format_bytes(account["min_budget_nbytes"])),
        ("minibatch", f"{account['minibatch']:,}"),
        ("microbatch", f"{account['microbatch']:,}"),
        recomputed(account),
    ]
    page.facts(facts)
    arena_section(page, arena, kinds_of(beside))
    page.heading("Beside it", _BESIDE)
    page.chart(lambda width: bars_chart(beside, width, budget, keyed=False))
    if len(frontier.points) > 1:
        _frontier_section(page, frontier, budget)
    account_section(page, account)
    page.heading("Made by")
    page.code(command)
    return page


def recomputed(account: Mapping[str, Any]) -> tuple[str, str]:
    """Recomputed work, as a fact of a page."""
    return "recomputation, of a forward pass", f"{100 * account['extra_forward_flops']:.1f} %"


_BESIDE = (
    "torch is an estimate: weights, gradients, optimizer state, and everything backward reads, in "
    "float32 for the whole minibatch. In practice torch takes more, because copies, workspaces, "
    "allocator overhead and libraries are not counted. The other points are plans of edgetrain."
)


def arena_section(page: Page, arena: Arena, kinds: Sequence[str] = ()) -> None:
    """Add the arena over time, and the largest values at its peak.

    Args:
      kinds: kinds of bytes in other charts of the page, which share this legend.
    """
    words = (
        "Steps to the right, addresses upwards; the line is the memory in use. Hover over a box to "
        "see its value and lifetime."
    )
    if arena.left_out:
        words += f" The {arena.left_out:,} smallest boxes are not drawn."
    if arena.each > 1:
        words += f" Each column is {arena.each} steps."
    page.heading("The arena over time", words)
    page.chart(lambda width: arena_chart(arena, width, titled=False, kinds=kinds))
    page.data("arena", arena_data(arena))
    rows = [
        (box.name, box.module, box.kind, f"{box.nbytes:,}", _span(arena, box))
        for box in largest(arena)
    ]
    if rows:
        page.text(f"The largest values in step {arena.peak[0] * arena.each:,}, where memory peaks:")
        page.table(("value", "module", "kind", "bytes", "steps"), rows, "lllrr")


def _span(arena: Arena, box: Box) -> str:
    return f"{box.start * arena.each:,} to {box.stop * arena.each - 1:,}"


def account_section(page: Page, account: Mapping[str, Any]) -> None:
    """Add bytes by kind, and what is trained."""
    total = account["arena_nbytes"]
    page.heading("Memory account", "Bytes by kind at the peak step; they add up to the arena.")
    rows = [
        (kind, f"{nbytes:,}", f"{100 * nbytes / total:.1f} %", MEANINGS.get(kind, ""))
        for kind, nbytes in account["by_kind"].items()
        if nbytes
    ]
    page.table(("kind", "bytes", "", ""), [*rows, ("total", f"{total:,}", "", "")], "lrrl")
    training = [
        (kind, f"{found['count']:,}", f"{found['numbers']:,}", f"{found['nbytes']:,}")
        for kind, found in account.get("training", {}).items()
        if isinstance(found, Mapping) and found.get("count")
    ]
    if training:
        page.table(("", "tensors", "numbers", "bytes"), training, "lrrr")


def _frontier_section(page: Page, frontier: Frontier, budget: int | None) -> None:
    points, chosen = frontier.points, frontier.chosen
    page.heading(
        "Plans",
        "Fewer bytes cost more time: smaller microbatches, more recomputation. "
        "Both axes are logarithmic.",
    )
    page.chart(lambda width: frontier_chart(points, chosen, budget, width))
    page.data("frontier", [[p.nbytes, p.time, p.words] for p in points])
    each = max(1, -(-len(points) // _ROWS))
    shown = sorted({*range(0, len(points), each), chosen, len(points) - 1})
    rows = [
        (
            f"{points[k].nbytes:,}",
            f"{points[k].time:.2f}",
            points[k].group,
            "chosen" if k == chosen else "least" if k == 0 else "",
        )
        for k in shown
    ]
    page.table(("bytes", "time", "", ""), rows, "rrll")
