"""Writes libraries of kernels (library.py): all of a processor's, or those that some Programs use."""

import json
import multiprocessing
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import library, registry, sources
from .choices import every
from .decode import Bound
from .processor import Target
from .shared_object import shared_object


def objects(
    kernels: Sequence[Bound], targets: Sequence[Target], jobs: int = 1
) -> list[list[bytes]]:
    """For each kernel its object for each target; compiled by `jobs` processes, and kept."""
    work = [(kernel.name, kernel.variant, dict(storages), targets) for kernel, storages in kernels]
    if jobs == 1:
        return [_made(one) for one in work]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return pool.map(_made, work, chunksize=4)


def _made(one: tuple[str, str, dict[str, str], Sequence[Target]]) -> list[bytes]:
    name, variant, storages, targets = one
    kernel = next(k for k in registry.variants(name) if k.variant == variant)
    return kernel.objects(storages, targets)


def index_of(target: str, version: str) -> dict:
    """What a library says of itself, as this tree is."""
    rows = [
        dict(registry.declaration(k)) for name in registry.names() for k in registry.variants(name)
    ]
    modules = sorted({row["module"] for row in rows})
    return {
        "format": library.FORMAT,
        "target": target,
        "version": version,
        "package": sources.package_digest(),
        "digests": {module: sources.digest(module) for module in modules},
        "declarations": rows,
    }


def write_library(
    folder: Path, target: str, version: str, code: Iterable[bytes], imports: Sequence[str] = ()
) -> None:
    """Join objects into a library of this tree's kernels.

    Args:
      target: name of the processor, as in targets.py.
      imports: symbols that the process has (`memset`), where the objects call them.
    Raises:
      UnsupportedOpError: as `shared_object`.
    """
    joined = shared_object(list(code), imports)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / library.LIBRARY).write_bytes(joined)
    text = json.dumps(index_of(target, version), separators=(",", ":"))
    (folder / library.INDEX).write_text(text)


__all__ = ["every", "index_of", "objects", "write_library"]
