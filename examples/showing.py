"""What the examples show of a Program: its memory account, and a picture of its arena."""

from pathlib import Path

from edgetrain.program import Program
from edgetrain.report.arena_chart import arena_chart
from edgetrain.report.canvas import svg
from edgetrain.report.tape_scene import program_arena
from edgetrain.report.writing import write_picture


def account_line(program: Program) -> str:
    """The arena's size and its contents at the fullest step."""
    kinds = program.account["by_kind"]
    parts = ", ".join(f"{kind} {nbytes:,}" for kind, nbytes in kinds.items() if nbytes)
    return f"arena {program.arena_nbytes:,} bytes: {parts}"


def draw(program: Program, name: str, path: Path) -> Path:
    """Draw the arena over time as SVG."""
    write_picture(arena_chart(program_arena(program, name)), path)
    return path


class arena_svg:  # noqa: N801 - called like a function
    """The same picture for a notebook, which displays a cell's last value."""

    def __init__(self, program: Program, name: str) -> None:
        self._text = svg(arena_chart(program_arena(program, name)))

    def _repr_svg_(self) -> str:
        return self._text
