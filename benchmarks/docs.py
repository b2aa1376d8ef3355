"""Makes the tables of README.md and docs/ anew, each between its markers.

    python -m benchmarks.docs [--stale] [NAME ...]        (all of them: make docs-figures)

A generated section is enclosed by `<!-- begin NAME -->` and `<!-- end NAME -->`; the rest of the
document is written by hand. Measured sections end with a mark (marks.py) that names the code they
were measured with; --stale regenerates those whose code has changed. The start page's commands are
run again, and their output replaces the old output below them.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from edgetrain.cli import main as edgetrain
from edgetrain.compiler.advice import estimate
from edgetrain.compiler.cost import Rates
from edgetrain.options.declared import BUDGET, OPTIONS
from edgetrain.options.texts import table

from . import (
    boards,
    cold,
    depth,
    executed,
    figure5,
    house,
    marks,
    memory,
    module_step,
    nets,
    node_counts,
    planner_table,
    reforwarding,
    resnet1000,
    rewirings,
    sparse_winograd,
    tfjs,
    tfjs_head,
    winograd,
)

ROOT = Path(__file__).resolve().parents[1]
TIMES = re.compile(r"(, \d+\.\d s)?, [\d,]+ samples/s")  # of this machine, in a transcript
ELIDED = "..."  # in a transcript: output before the lines below is left out


@dataclass(frozen=True)
class Section:
    """A generated part of a document.

    Attributes:
      document: its path, relative to the repository's root.
      make: computes the new lines from the old ones.
      needs: a file required to make it.
      follows: names in `marks.SOURCES` or `marks.FAMILIES` on which its figures depend and that no
        quick test covers.
    """

    document: str
    make: Callable[[list[str]], Iterator[str]]
    needs: Path | None = None
    follows: tuple[str, ...] = ()


_ALL = ("kernels", "planner", "runtime")
SECTIONS: dict[str, Section] = {
    "commands": Section("docs/start.md", lambda old: transcript(old)),
    "first": Section("README.md", lambda old: transcript(old)),
    "table3": Section("README.md", lambda old: memory.lines(nets.wrn28_2()), follows=_ALL),
    "planner": Section(
        "docs/planner.md",
        lambda old: planner_table.lines(),
        needs=planner_table.DEFAULT / "peers.json",
        follows=("planner",),
    ),
    "cold": Section("docs/systems.md", lambda old: cold.lines(), follows=_ALL),
    "depth": Section(
        "docs/depth.md", lambda old: depth.lines(picture=ROOT / "docs/depth.svg"), follows=_ALL
    ),
    "executed": Section("docs/executed.md", lambda old: executed.lines(), follows=_ALL),
    "figure5": Section("docs/figure5.md", lambda old: figure5.lines()),
    "house": Section("docs/ARCHITECTURE.md", lambda old: house.lines()),
    "options": Section("docs/options.md", lambda old: options_table()),
    "node-tests": Section("docs/ops.md", lambda old: node_counts.lines()),
    "reforwarding": Section(
        "docs/papers.md", lambda old: reforwarding.lines(), follows=("planner",)
    ),
    "resnet1000": Section("docs/papers.md", lambda old: resnet1000.lines(), follows=("planner",)),
    "tfjs": Section(
        "docs/browser.md", lambda old: tfjs.lines(), needs=tfjs.NPM, follows=("kernels",)
    ),
    "native": Section(
        "docs/browser.md",
        lambda old: module_step.lines(),
        needs=module_step.NODE,
        follows=("kernels",),
    ),
    "winograd": Section(
        "docs/convolutions.md", lambda old: winograd.lines(), follows=("convolutions",)
    ),
    "expanded": Section(
        "docs/convolutions.md",
        lambda old: sparse_winograd.kernel_lines(),
        follows=("convolutions",),
    ),
    "densities": Section(
        "docs/convolutions.md", lambda old: sparse_winograd.layer_lines(), follows=("convolutions",)
    ),
    "boards": Section(
        "docs/convolutions.md", lambda old: boards.lines(), needs=boards.QEMU, follows=("kernels",)
    ),
    "tfjshead": Section(
        "docs/browser.md", lambda old: tfjs_head.lines(), needs=tfjs.NPM, follows=("kernels",)
    ),
    "rewirings": Section("docs/papers.md", lambda old: rewirings.lines()),
}


def options_table() -> Iterator[str]:
    """Table of every option of `compile`, with flag and keyword."""
    return table([BUDGET, *OPTIONS.values()])


def transcript(old: list[str]) -> Iterator[str]:
    """Run a document's `$ edgetrain` commands again in a folder of their own and yield its lines.

    All output of a command follows it. If the old output began with a line of three dots, only
    as many last lines as before follow the dots; a command without output below it stays without.
    Lines that differ only in times are kept. Other lines pass through.

    Raises:
      AssertionError: a command's exit status is not the one given by its `# exits` comment.
    """
    with folder():
        yield from replayed(old)


def replayed(old: list[str]) -> Iterator[str]:
    """Like `transcript`, in the current folder."""
    at = 0
    while at < len(old):
        line, at = old[at], at + 1
        yield line
        if not line.startswith("$ "):
            continue
        stop = at
        while not old[stop].startswith(("$ ", "```")):
            stop += 1
        shown, at = old[at:stop], stop
        printed = _printed(line.removeprefix("$ "))
        if shown[:1] == [ELIDED]:
            yield ELIDED
            shown = shown[1:]
            printed = printed[-len(shown) :]
        before = {TIMES.sub("", line): line for line in shown}
        yield from (before.get(TIMES.sub("", line), line) for line in printed if shown)


def _printed(command: str) -> list[str]:
    """Run a command and return stdout and stderr together."""
    text, _, status = command.partition("# exits ")
    program, *argv = shlex.split(text)
    assert program == "edgetrain", command
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        found = edgetrain(argv)
    assert found == int(status or 0), f"{command}: status {found}\n{out.getvalue()}"
    return out.getvalue().splitlines()


@contextlib.contextmanager
def folder() -> Iterator[None]:
    """Change to a temporary folder with the examples in it; plans use the default speeds."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        Path(name, "examples").symlink_to(ROOT / "examples")
        try:
            os.chdir(name)
            silent = mock.patch.dict(os.environ, EDGETRAIN_PROGRESS="0")
            with silent, mock.patch.object(estimate, "rates", Rates):
                yield
        finally:
            os.chdir(before)


def section(text: str, name: str) -> tuple[int, int]:
    """Return (first, last + 1), the range of the section's lines in the document.

    Raises:
      ValueError: the markers do not occur exactly once each, in order.
    """
    lines = text.splitlines()
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if lines.count(begin) != 1 or lines.count(end) != 1 or lines.index(end) < lines.index(begin):
        raise ValueError(f"section {name!r}: expected {begin} and then {end}, once each")
    return lines.index(begin) + 1, lines.index(end)


def read(name: str) -> list[str]:
    """Return the current lines of a section, without its mark."""
    return _parts(name)[0]


def mark_of(name: str) -> marks.Mark | None:
    """Return a section's mark, or None if it has none."""
    return _parts(name)[1]


def _parts(name: str) -> tuple[list[str], marks.Mark | None]:
    text = (ROOT / SECTIONS[name].document).read_text()
    lines = text.splitlines()[slice(*section(text, name))]
    found = marks.parse(lines[-1]) if lines else None
    return (lines if found is None else lines[:-2]), found  # a blank line precedes it


def write(name: str) -> None:
    """Regenerate a section."""
    others = marks.OtherWork()
    made = list(SECTIONS[name].make(read(name)))
    if SECTIONS[name].follows:
        made += ["", marks.now(SECTIONS[name].follows, others).line()]
    path = ROOT / SECTIONS[name].document
    text = path.read_text()
    first, last = section(text, name)
    lines = text.splitlines()
    lines[first:last] = made
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Regenerate the named sections, all of them, or those older than their code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--stale", action="store_true", help="those older than their code")
    arguments = parser.parse_args()
    names = arguments.names
    if unknown := set(names) - SECTIONS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(SECTIONS)}")
    for name in names or SECTIONS:
        mark = mark_of(name)
        if arguments.stale and not (SECTIONS[name].follows and (not mark or mark.stale())):
            continue
        needs = SECTIONS[name].needs
        if needs is not None and not needs.exists():
            print(f"{name}: left as it is, there is no {needs}", file=sys.stderr)
            continue
        print(f"{name}: {SECTIONS[name].document}", file=sys.stderr, flush=True)
        write(name)


if __name__ == "__main__":
    main()
