"""How a measured table was made: commit, machine, and the sources it depends on.

A measured figure is only valid for the code it was measured with. Its mark names that code by
digests, which ignore comments and docstrings, so that a test can tell when the figure is outdated.
"""

import ast
import functools
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgetrain.kernels.cache import closures, sources

ROOT = Path(__file__).resolve().parents[1]
# What tables depend on -> folders of its sources.
SOURCES = {
    "kernels": ("edgetrain/kernels",),
    "planner": ("edgetrain/compiler", "edgetrain/ops"),
    "runtime": ("edgetrain/runtime", "edgetrain/data"),
}
# For tables that run only some kernels -> folders of these in edgetrain/kernels. Their sources are
# those that the cache of compiled kernels compares.
FAMILIES = {"convolutions": ("conv", "winograd")}
_NOTICED = 0.2  # processors; an idle machine's own services take less
UNKNOWN = "a machine that was not recorded"
_FORM = re.compile(r"Made at ([0-9a-f]{7,40}) on (.+)\. <!-- (.+) -->")


@dataclass(frozen=True)
class Mark:
    """The mark of one table.

    Attributes:
      commit: the latest one, at that time, that changed one of its sources.
      machine: the machine it was made on.
      digests: name in SOURCES or FAMILIES -> digest of those sources at that time.
    """

    commit: str
    machine: str
    digests: Mapping[str, str]

    def line(self) -> str:
        """Format the mark as below a table; `parse` reads it back."""
        known = ", ".join(f"{name} {digest}" for name, digest in self.digests.items())
        return f"Made at {self.commit} on {self.machine}. <!-- {known} -->"

    def stale(self, root: Path = ROOT) -> list[str]:
        """Return the names of its sources that have changed since."""
        return [name for name, found in self.digests.items() if digest(name, root) != found]


def parse(line: str) -> Mark | None:
    """Parse a line; None if it is not a mark."""
    match = _FORM.fullmatch(line)
    if match is None:
        return None
    commit, machine, known = match.groups()
    return Mark(commit, machine, dict(part.split(" ", 1) for part in known.split(", ")))


class OtherWork:
    """Processor time that other processes take from now on; times measured beside them are long."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat, self._start = stat, time.monotonic()
        self._before = self._seconds()

    def processors(self) -> float:
        """How many processors it has kept busy, on average; 0.0 if the system does not say."""
        passed = time.monotonic() - self._start
        return max(0.0, self._seconds() - self._before) / passed

    def _seconds(self) -> float:
        """Of all processors, not taken by this process and its finished children."""
        if not self._stat.exists():
            return 0.0
        user, nice, system, _, _, *interrupts = map(int, self._stat.read_text().split()[1:9])
        ticks = user + nice + system + sum(interrupts)  # the last: time a host took
        return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def now(names: Collection[str], others: OtherWork | None = None) -> Mark:
    """Return the mark of a table made here and now from these sources.

    Args:
      others: work beside it since it was begun; the machine's name ends with it.
    """
    folders = [folder for name in names for folder in SOURCES.get(name) or files_of(name)]
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", *folders]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    busy = others.processors() if others else 0.0
    beside = f", {busy:.1f} of them busy with other work" if busy >= _NOTICED else ""
    return Mark(commit, machine() + beside, {name: digest(name) for name in names})


def machine() -> str:
    """This machine: the processor's name, family and model, and the number of processors."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    found = [fields.get("model name", "an unnamed processor")]
    found += [f"{key} {fields[name]}" for key, name in _NUMBERS.items() if name in fields]
    return ", ".join([*found, f"{os.cpu_count()} threads"])


_NUMBERS = {"family": "cpu family", "model": "model"}


@functools.cache
def digest(name: str, root: Path = ROOT) -> str:
    """Digest of these sources' code and file names."""
    whole = hashlib.sha256()
    for path in files_of(name, root):
        whole.update(f"{path.relative_to(root).as_posix()}\n{code(path.read_text())}\n".encode())
    return whole.hexdigest()[:12]


def files_of(name: str, root: Path = ROOT) -> list[Path]:
    """The files of sources in SOURCES, or of a family of this tree's kernels."""
    if name not in FAMILIES:
        return [p for folder in SOURCES[name] for p in sorted((root / folder).rglob("*.py"))]
    rooms = [sources.ROOT / room for room in FAMILIES[name]]
    modules = [f"{room.name}.{path.stem}" for room in rooms for path in room.glob("*.py")]
    parts = {part for module in modules for part in closures.closure(module)}
    return sorted(sources.path_of(part) for part in parts)


def code(text: str) -> str:
    """A source's code without comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        named = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if named and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return _written(tree)


def _written(node: object) -> str:
    """Like ast.dump, but the same on every Python: empty fields are left out."""
    if isinstance(node, list):
        return f"[{','.join(map(_written, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # only 3.12 ends some of these with ""
        node.values = [part for part in node.values if not _is_empty(part)]
    fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
    told = ",".join(f"{name}={_written(value)}" for name, value in fields)
    return f"{type(node).__name__}({told})"


def _is_empty(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value == ""
