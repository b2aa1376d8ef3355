"""`doctor`: what works on this machine."""

import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

from ... import __version__
from ...kernels.cache import disk, jit, library
from ...screen.tables import table, to_json
from ...units import processors
from ...units.packages import is_whole
from ..parser.namespace import Namespace

_HOST = ("llvmlite", "numba", "onnx", "scipy", "rich")  # not needed by edgetrain-runtime
_NEEDED = ("numpy",)
_OPTIONAL = ("torch", "onnxscript", "onnxruntime", "matplotlib")
_FEATURES = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "neon")


def doctor(arguments: Namespace) -> int:
    """Print what was found; status 1 if something edgetrain needs is missing."""
    facts = _facts()
    missing = [name for name in _needed() if facts["packages"][name] is None]
    if arguments.json:
        print(to_json({**facts, "missing": missing}))
        return 1 if missing else 0
    print("\n".join(table(_rows(facts), "ll")))
    if missing:
        print(f"missing: {', '.join(missing)}. Run: pip install {' '.join(missing)}")
    return 1 if missing else 0


def _needed() -> tuple[str, ...]:
    return (*_NEEDED, *_HOST) if is_whole() else _NEEDED


def _facts() -> dict[str, Any]:
    target = jit.host()
    features = {f.lstrip("+") for f in target.features.split(",") if f.startswith("+")}
    return {
        "edgetrain": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": target.cpu,
        "features": [name for name in _FEATURES if name in features],
        "lanes": target.lanes,
        "cores": os.cpu_count(),
        "usable_cores": processors(),
        "kernels": _library(library.installed()),
        "cache": _cache(disk.directory()),
        "packages": {name: _version(name) for name in (*_NEEDED, *_HOST, *_OPTIONAL)},
        "cuda": _cuda(),
    }


def _cache(path: Path | None) -> dict[str, Any]:
    """The cache of compiled kernels; None: every process compiles its own."""
    objects = [] if path is None else list(path.glob("objects/*.o"))
    return {
        "path": None if path is None else str(path),
        "kept": path is not None,
        "objects": len(objects),
        "nbytes": sum(file.stat().st_size for file in objects),
    }


def _library(found: library.Library | None) -> dict[str, Any] | None:
    """The installed kernel library, or None."""
    if found is None:
        return None
    return {"path": str(found.folder), "version": found.index["version"], "current": found.same}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda() -> str | None:
    """Name of torch's first CUDA device."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "edgetrain.exporters")):
        return None
    from edgetrain.exporters.devices import first_cuda_name

    return first_cuda_name()


def _kernels_line(found: dict[str, Any] | None) -> str:
    if found is None:
        return f"compiled here; to install them: {library.how_to_install()}"
    current = "" if found["current"] else ", another version: the rest is compiled here"
    return f"{found['path']} ({found['version']}{current})"


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    kept = facts["cache"]
    place = f"{kept['path']} ({kept['objects']} kernels, {kept['nbytes']:,} bytes)"
    rows = [
        ("edgetrain", facts["edgetrain"]),
        ("python", f"{facts['python']}, {facts['system']}"),
        ("processor", f"{facts['cpu']}, {' '.join(facts['features'])}, {facts['lanes']} lanes"),
        ("cores", f"{facts['cores']}, usable {facts['usable_cores']}"),
        ("kernels", _kernels_line(facts["kernels"])),
        ("cache", place if kept["kept"] else "none; set EDGETRAIN_CACHE to a private folder"),
    ]
    for name, version in facts["packages"].items():
        what = "missing" if name in _needed() else "optional: not installed"
        rows.append((name, version or what))
    return [*rows, ("cuda", facts["cuda"] or "none (used only for comparisons with torch)")]
