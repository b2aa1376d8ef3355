"""Build the wheels: edgetrain, edgetrain-runtime for devices that only run Programs, and
edgetrain-kernels-TARGET, compiled kernels for them.

usage: python -m tools.wheels [DIR [TARGET ...]]        (default: dist and the targets of
kernel_wheels.DEFAULT; `-` for TARGET builds no kernels)

edgetrain-runtime is a subset of the same folders under the same package name: one of the two is
installed, not both. What it lacks says so when it is asked for, and names the whole. It holds
what a device reaches (device_modules.py), without docstrings, which would take as much memory there
as a net, and without comments and margins (lean_source.py).
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection
from pathlib import Path

from edgetrain.kernels.cache import sources
from edgetrain.kernels.linking import packing

from . import device_modules, lean_source
from .kernel_wheels import DEFAULT, PLATFORMS, build_kernels

ROOT = Path(__file__).resolve().parents[1]
# The rooms that a device may have: they train, evaluate and export a Program. A device gets only
# the part of them that its entry points reach (device_modules.py).
RUNTIME = (
    "__init__.py", "__main__.py", "callbacks.py", "py.typed", "errors.py", "units", "ir", "formats",
    "program", "kernels", "losses", "optim", "options", "sparse", "data", "history", "screen",
    "runtime", "flower", "cli",
)  # fmt: skip
# Of kernels, only the code that finds and loads an installed library; a device compiles none.
KERNELS = (
    "__init__", "cache/__init__", "cache/addresses", "cache/closures", "cache/disk",
    "cache/jit", "cache/library", "cache/load", "cache/processor", "cache/sources", "control",
    "declaration/__init__", "declaration/expression", "declaration/ranges", "declaration/spec",
    "device/__init__", "device/layout", "emission/__init__", "emission/rewritten",
    "optimizers/__init__", "optimizers/states", "registry", "step_loop/__init__",
    "step_loop/layout", "tapes/__init__", "tapes/decode", "tapes/tape", "targets",
)  # fmt: skip
NEEDS = ("numpy>=2.0",)
HEADER = """\
[build-system]
requires = ["setuptools>=70"]
build-backend = "setuptools.build_meta"

[project]
name = "edgetrain-runtime"
version = "{version}"
description = "Trains compiled edgetrain Programs on a device: numpy and no compiler of models."
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = "{python}"
dependencies = {needs}

[project.scripts]
edgetrain = "edgetrain.__main__:main"

[tool.setuptools.packages.find]
include = ["edgetrain*"]

[tool.setuptools.package-data]
edgetrain = {data}
"edgetrain.kernels" = ["{made}", "{declarations}"]
"""


def stage(folder: Path) -> Path:
    """Lay out the source of edgetrain-runtime; return `folder`."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = whole["project"]
    data = whole["tool"]["setuptools"]["package-data"]["edgetrain"]
    text = HEADER.format(
        version=project["version"], python=project["requires-python"], needs=list(NEEDS),
        data=data, made=sources.MADE, declarations=sources.DECLARATIONS,
    )  # fmt: skip
    (folder / "pyproject.toml").write_text(text)
    shutil.copy(ROOT / "LICENSE", folder)
    (folder / "edgetrain").mkdir()
    files = files_of_runtime()
    modules = {device_modules.module_of(path) for path in files if path.suffix == ".py"}
    for source in files:
        target = folder / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".py":
            target.write_text(_lean(source, modules))
        else:
            shutil.copy(source, target)
    packing.write_description(folder / "edgetrain" / "kernels")
    return folder


def copy_source(source: Path, copy: Path) -> None:
    """Copy a source tree without build products, so that builds leave nothing in the tree."""
    unwanted = (".*", "__pycache__", "build", "dist", "runs", "*.egg-info")
    shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(*unwanted))


def _lean(source: Path, modules: Collection[str]) -> str:
    text, name = source.read_text(), device_modules.module_of(source)
    never = device_modules.never_run(ast.parse(text), name, modules)
    return lean_source.lean(text, never)


def files_of_runtime() -> list[Path]:
    """The files of edgetrain-runtime: modules that a device reaches, and data of its rooms."""
    package = ROOT / "edgetrain"
    inside = [package / name for name in RUNTIME]
    files = [f for path in inside for f in (path.rglob("*") if path.is_dir() else [path])]
    files = [f for f in files if f.is_file() and "__pycache__" not in f.parts]
    kernels = {package / "kernels" / f"{name}.py" for name in KERNELS}
    files = [f for f in files if "kernels" not in f.parts or f in kernels]
    modules = {device_modules.module_of(f): f for f in files if f.suffix == ".py"}
    held = {modules[name] for name in device_modules.reached(modules)}
    return sorted(f for f in files if f.suffix != ".py" or f in held)


def build(source: Path, out: Path) -> None:
    """Build a source tree's wheel into `out`, leaving nothing behind in the tree."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "source"
        copy_source(source, copy)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        subprocess.run([*pip, "-w", str(out), str(copy)], check=True)


def build_runtime(out: Path) -> Path:
    """Build edgetrain-runtime into `out`; return the wheel's path."""
    with tempfile.TemporaryDirectory() as folder:
        build(stage(Path(folder)), out)
    return max(out.glob("edgetrain_runtime-*.whl"), key=lambda path: path.stat().st_mtime)


def main(out: str = "dist", *names: str) -> int:
    """Build everything and print the paths; an argument starting with a dash shows the usage."""
    if any(word.startswith("-") and word != "-" for word in (out, *names)):
        print(__doc__)
        return 0 if {out, *names} & {"-h", "--help"} else 2
    unknown = [name for name in names if name not in (*PLATFORMS, "-")]
    if unknown:
        print(f"tools.wheels: target {unknown[0]!r}; expected {', '.join(PLATFORMS)} or -")
        return 2
    os.environ["EDGETRAIN_KERNELS"] = "none"  # what is compiled here is not for this machine
    folder = Path(out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    build(ROOT, folder)
    build_runtime(folder)
    wanted = [name for name in names or DEFAULT if name != "-"]
    if wanted:
        build_kernels(folder, wanted)
    for wheel in sorted(folder.glob("edgetrain*.whl")):
        print(f"{wheel} ({wheel.stat().st_size:,} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
