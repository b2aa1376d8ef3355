"""`--dump`: writes the result of each pass, for work on the compiler.

Writes a folder with the graph after every pass of pipeline.py as text and DOT (graphviz), numbered
in order; then the tapes of the chosen plan, one instruction per line, and its arena, one lifetime
per line. `differences` adds the changes of each pass as a unified diff.
"""

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..ir import Graph
from ..kernels.declaration.spec import Operand
from ..kernels.tapes.decode import bound, decode
from ..program import Program
from ..program.atomic import unwritable
from .arena.problem import aligned
from .pipeline import build_graphs
from .plan.candidates import Plan
from .tapes.steps import ALIGN


def check_folder(folder: str | Path) -> Path:
    """Reject a folder in use, before planning.

    Raises:
      UsageError: it is a file, or not empty.
    """
    path = Path(folder)
    if os.path.exists(path) and (not os.path.isdir(path) or any(path.iterdir())):
        kind = "not empty" if os.path.isdir(path) else "a file"
        raise UsageError(f"--dump {path}: {kind}; expected a new or empty folder. Choose another.")
    return path


def dump(
    plan: Plan,
    program: Program,
    folder: str | Path,
    *,
    differences: bool = False,
) -> Path:
    """Write everything for the microbatch of a plan; returns the folder.

    Raises:
      UsageError, RunError: the folder is in use, or cannot be written.
    """
    path = check_folder(folder)
    try:
        _write(plan, program, path, differences)
    except OSError as error:
        raise unwritable(path, "--dump", error) from error
    return path


def _write(plan: Plan, program: Program, path: Path, differences: bool) -> None:
    path.mkdir(parents=True, exist_ok=True)
    last: dict[str, list[str]] = {}  # list of passes -> graph after its latest pass
    number = 0

    def watch(name: str, graph: Graph) -> None:
        nonlocal number
        stem, lines = f"{number:02}-{name}", str(graph).splitlines()
        (path / f"{stem}.txt").write_text("\n".join(lines) + "\n")
        (path / f"{stem}.dot").write_text("\n".join(_dot(graph)) + "\n")
        of = name.partition("-")[0]
        before = last.get(of, last.get("forward", []))
        if differences:
            changed = difflib.unified_diff(before, lines, "before", "after", lineterm="", n=1)
            (path / f"{stem}.diff").write_text("".join(f"{line}\n" for line in changed))
        last[of], number = lines, number + 1

    build_graphs(plan.candidate.compilation, plan.candidate.microbatch, watch)
    (path / f"{number:02}-tapes.txt").write_text("\n".join(_tapes(program)) + "\n")
    (path / f"{number + 1:02}-arena.txt").write_text("\n".join(_arena(plan)) + "\n")


def _dot(graph: Graph) -> Iterator[str]:
    """Nodes as boxes, persistent values and inputs as ellipses, other values as edges."""

    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    yield "digraph {"
    yield "  node [shape=box]"
    made = {graph.root(name): node.name for node in graph.nodes for name in node.writes}
    for name, value in graph.values.items():
        if value.persistent or name in graph.inputs:
            yield f"  {quoted('value ' + name)} [shape=ellipse, label={quoted(name)}]"
    last = dict[str, str]()
    for node in graph.nodes:
        yield f"  {quoted(node.name)} [label={quoted(f'{node.op} ({node.phase})')}]"
        for name in node.reads:
            root = graph.root(name)
            source = last.get(root, f"value {root}")
            if root in last or root not in made or graph.values[root].persistent:
                yield f"  {quoted(source)} -> {quoted(node.name)} [label={quoted(name)}]"
        for name in node.writes:
            last[graph.root(name)] = node.name
    yield "}"


def _tapes(program: Program) -> Iterator[str]:
    """One line per instruction: kernel, storages, offsets and integers."""
    kernels = bound(program.kernels)
    names = {slot.offset: slot.name for slot in program.persistent}
    for tape, words in program.tapes.items():
        yield f"{tape}:"
        for instruction in decode(words.tolist(), kernels):
            parts = []
            for operand in instruction.kernel.spec.operands:
                if operand.mode == "t":
                    continue
                value = instruction.values[operand.name]
                parts.append(f"{operand.name}={_shown(operand, value, names)}")
            kernel = instruction.kernel
            about = kernel.name, kernel.variant, *instruction.storages.values()
            yield f"  {instruction.offset:>6} {'.'.join(about)}: {', '.join(parts)}"


def _shown(operand: Operand, value: int, names: Mapping[int, str]) -> str:
    if operand.mode == "f":
        return f"{np.uint32(value).view(np.float32):g}"
    if not operand.is_reference:
        return str(value)
    return "-" if value < 0 else f"@{value:,} {names.get(value, '')}".rstrip()


def _arena(plan: Plan) -> Iterator[str]:
    """Offset, bytes, first and last step of each lifetime; "always" for persistent values."""
    offset = 0
    yield f"{plan.arena_nbytes:,} bytes; offset, bytes, steps, value"
    for value in plan.candidate.update.persistent:
        yield f"{offset:>12,} {value.nbytes:>12,} always {value.name}"
        offset += aligned(value.nbytes, ALIGN)
    train, placed = plan.candidate.train, plan.placed
    for number, life in zip(placed.of_instance, plan.simulation.instances, strict=True):
        nbytes = train.problem.nbytes[life.value]
        place = offset + plan.offsets[number]
        steps = f"{life.start}..{life.stop - 1}"
        yield f"{place:>12,} {nbytes:>12,} {steps} {train.roots[life.value]}"
    for position, number in placed.scratch_of.items():
        name = train.problem.steps[plan.schedule[position]].name
        nbytes = int(placed.buffers[number, 2])
        place = offset + plan.offsets[number]
        yield f"{place:>12,} {nbytes:>12,} {position} workspace of {name}"
