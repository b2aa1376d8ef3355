"""How many files a change touches, before the rooms were rebuilt and now.

`make docs-figures FIGURES=house` writes these counts into docs/ARCHITECTURE.md.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "edgetrain"


@cache
def _sources() -> dict[Path, str]:
    files = [path for room in (PACKAGE, ROOT / "exporters") for path in room.rglob("*.py")]
    return {path: path.read_text() for path in sorted(files)}


def importing(module: str) -> int:
    """Files that import a module or a member of it."""
    return sum(any(_is_of(name, module) for name in _imports(t)) for t in _sources().values())


def _is_of(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def flat(room: str) -> int:
    """Files at the root of a room."""
    return len(list((PACKAGE / room).glob("*.py")))


def naming(word: str) -> int:
    """Files that contain a word, in any spelling."""
    found = re.compile(rf"(?<![a-z]){word}(?![a-z])", re.IGNORECASE)
    return sum(bool(found.search(text)) for text in _sources().values())


def longest() -> int:
    """Length of the longest file in lines."""
    return max(text.count("\n") for text in _sources().values())


class Count(NamedTuple):
    """A row: what is counted, the count before (None: not counted then), how, and the limit."""

    what: str
    before: int | None
    now: Callable[[], int]
    most: int | None


COUNTS = (
    Count("files that import llvmlite", 41, lambda: importing("llvmlite"), 13),
    Count("files that import `llvmlite.ir`", 33, lambda: importing("llvmlite.ir"), 8),
    Count("files at the root of `kernels/`", 87, lambda: flat("kernels"), 6),
    Count("files at the root of `cli/`", 32, lambda: flat("cli"), 12),
    Count("files at the root of `compiler/`", 33, lambda: flat("compiler"), 12),
    Count("files at the root of `runtime/`", 35, lambda: flat("runtime"), 12),
    Count("files at the root of `data/`", 30, lambda: flat("data"), 12),
    Count("files that name an elementwise op, Celu", 9, lambda: naming("celu"), 2),
    Count("files that name an optimizer, LAMB", 8, lambda: naming("lamb"), 4),
    Count("files of the planner's own compiler", 7, lambda: flat("kernels/loops") - 1, 4),
    Count("lines of the longest file", None, longest, 600),
)


def lines() -> Iterator[str]:
    """The table."""
    yield "| | before | now | at most |"
    yield "|---|---:|---:|---:|"
    for row in COUNTS:
        before, most = ("" if number is None else str(number) for number in (row.before, row.most))
        yield f"| {row.what} | {before} | {row.now()} | {most} |"


if __name__ == "__main__":
    print(*lines(), sep="\n")
