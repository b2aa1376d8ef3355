"""Prints the parity report as a table."""

import math
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table

from edgetrain.formats import PRECISIONS, holding

if TYPE_CHECKING:
    from edgetrain.exporters.parity_step import Row

_NUMBERS = [Column(name, no_wrap=True) for name in ("error", "torch fp32", "tolerance")]


def print_report(report: Any, console: Any, limit: int) -> None:
    """Print facts, the worst tensors of each kind, differences and the verdict."""
    console = console or Console(color_system=None)  # names must not move the cursor
    facts = report.facts
    console.print(
        f"{facts['model']}: edgetrain ({facts['precision']} storage) against torch "
        f"{facts['torch']} in float64 on {facts['device']}; minibatch "
        f"{facts['minibatch']}, microbatch {facts['microbatch']}, "
        f"{facts['steps']} steps, {facts['loss']}, {facts['optimizer']['name']}",
        highlight=False,
    )
    used = facts.get("forward_reference")
    if used:
        console.print(f"forward: edgetrain in fp32 against {used}", highlight=False)
    for note in facts.get("forward_notes", ()):
        console.print(f"note: {note}", highlight=False, markup=False)
    if report.overflows:
        wider = holding(math.nextafter(PRECISIONS[facts["precision"]].largest, math.inf))
        wider = wider and f", or use {wider}"
        console.print(
            f"note: in {len(report.overflows)} of {facts['steps']} steps, gradients are beyond the "
            f"range of {facts['precision']}, in torch with this storage too. In training, such a "
            f"step changes nothing. Scale the loss or the output down{wider}.",
            highlight=False,
        )
    table = Table("kind", Column("tensor", overflow="fold"), "step", *_NUMBERS, "")
    for kind in dict.fromkeys(row.kind for row in report.rows):
        rows = [row for row in report.rows if row.kind == kind]
        worst = report.worst(kind)
        for row in [row for row in rows if not row.ok][:limit] or ([worst] if worst else []):
            table.add_row(*_cells(row))
        judged = [row for row in rows if row.tolerance is not None]
        text = f"{sum(row.ok for row in judged)} of {len(judged)} within tolerance"
        if len(judged) < len(rows):
            text += f"; {len(rows) - len(judged)} not judged"
        table.add_row("", text, "", "", "", "", "", style="dim")
    console.print(table)
    console.print(report.summary(), highlight=False)


def _cells(row: "Row") -> list[str]:
    numbers = [
        "" if number is None else f"{number:.1e}"
        for number in (row.error, row.torch_error, row.tolerance)
    ]
    verdict = "" if row.tolerance is None else "ok" if row.ok else "departs"
    return [row.kind, row.name, str(row.step), *numbers, verdict]
