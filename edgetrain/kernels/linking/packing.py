"""Writes libraries of kernels (cache/library.py): all for a processor, or those for Programs."""

import json
import multiprocessing
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...units.sha import sha256
from .. import registry, targets
from ..cache import closures, disk, jit, library, sources
from ..cache.processor import Target
from ..emission import sections
from ..loops import functions as loops
from ..tapes.decode import Bound
from .elf import undefined
from .relocatable import machine_of
from .relocate import MACHINES
from .shared_object import shared_object


def objects(
    kernels: Sequence[Bound], targets: Sequence[Target], jobs: int = 1
) -> list[list[bytes]]:
    """For each kernel, its object for each target; compiled by `jobs` processes, and cached."""
    work = [(kernel.name, kernel.variant, dict(storages), targets) for kernel, storages in kernels]
    if jobs == 1:
        return [_made(item) for item in work]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return pool.map(_made, work, chunksize=4)


def planner(target: Target) -> bytes:
    """The loops of every imported unit, as a shared object for a processor; cached.

    Raises:
      UnsupportedOpError: as `shared_object`.
    """
    about = repr(("planner", target, units(), jit.compiler()))
    name = f"libraries/{sha256(about.encode()).hexdigest()[:40]}.so"
    result = disk.read(name, about)
    if result is None:
        result = shared_object([unit.object(target) for unit in loops.Unit.every], loops.IMPORTS)
        disk.write(name, about, result)
    return result


def units() -> dict[str, str]:
    """Digests of the sources of the planner's loops, by unit."""
    return {unit.name: unit.digest() for unit in loops.Unit.every}


def _made(task: tuple[str, str, dict[str, str], Sequence[Target]]) -> list[bytes]:
    name, variant, storages, targets = task
    kernel = next(k for k in registry.variants(name) if k.variant == variant)
    return sections.objects_of(kernel, storages, targets)


def description() -> dict:
    """Digests of the sources of this tree's kernels."""
    kernels = [kernel for name in registry.names() for kernel in registry.variants(name)]
    modules = sorted({kernel.module for kernel in kernels})
    digests = {module: closures.digest(module) for module in modules}
    return {"package": sources.package_digest(), "digests": digests}


def write_description(folder: Path) -> None:
    """Write a runtime's record of its kernels' sources and declarations into its folder."""
    (folder / sources.MADE).write_text(json.dumps(description()))
    (folder / sources.DECLARATIONS).write_text(_declarations())


def _declarations() -> str:
    rows = {n: [*map(registry.declaration, registry.variants(n))] for n in registry.names()}
    return "".join(registry.line_of(name, row) for name, row in rows.items())


def write_library(
    folder: Path,
    target: str,
    version: str,
    code: Sequence[bytes],
    imports: Sequence[str] = (),
    compiler: str = "",
    planner: bytes = b"",
) -> None:
    """Join objects into a library of this tree's kernels.

    Args:
      target: name of the processor, as in targets.py.
      imports: symbols of the process (`memset`) that the objects may call.
      compiler: command that links for a processor that shared_object.py does not support.
      planner: result of `planner`, if the machine also compiles models.
    Raises:
      UnsupportedOpError: as `shared_object`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if machine_of(code[0]) in MACHINES or not compiler:
        (folder / library.LIBRARY).write_bytes(shared_object(code, imports))
    else:
        from ..emission.program import functions

        missing = set().union(*map(undefined, code))
        more = [functions(missing, targets.get(target))] if missing else []
        _link(folder / library.LIBRARY, [*code, *more], compiler)
    about = {"format": library.FORMAT, "target": target, "version": version}
    index = {**about, "kernels": len(code), **description()}
    if planner:
        (folder / library.PLANNER).write_bytes(planner)
        index["units"] = units()
    (folder / library.INDEX).write_text(json.dumps(index))
    (folder / sources.DECLARATIONS).write_text(_declarations())


def _link(out: Path, code: Sequence[bytes], compiler: str) -> None:
    """Join objects with a compiler's linker."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.o") for number in range(len(code))]
        for path, item in zip(paths, code, strict=True):
            path.write_bytes(item)
        names = Path(folder, "objects")
        names.write_text("\n".join(map(str, paths)))
        command = [
            compiler,
            "-shared",
            "-nostdlib",
            "-s",
            "-Wl,-z,defs",
            "-o",
            str(out),
            f"@{names}",
        ]
        subprocess.run(command, check=True)
