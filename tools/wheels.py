"""Build the wheels: edgetrain, edgetrain-runtime for devices that only run Programs, and
edgetrain-kernels-TARGET, compiled kernels for them.

usage: python -m tools.wheels [DIR [TARGET ...]]        (default: dist and the targets of
kernel_wheels.DEFAULT; `-` for TARGET builds no kernels)

edgetrain-runtime is a subset of the same folders under the same package name: one of the two is
installed, not both. What it lacks says so when it is asked for, and names the whole. Its sources
are without docstrings: in the memory of a device these are as much as a net.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from edgetrain.kernels.cache import sources
from edgetrain.kernels.linking import packing

from . import lean_source
from .kernel_wheels import DEFAULT, PLATFORMS, build_kernels

ROOT = Path(__file__).resolve().parents[1]
# What trains, evaluates and exports a Program.
RUNTIME = (
    "__init__.py", "__main__.py", "callbacks.py", "py.typed", "errors.py", "units", "ir", "formats",
    "program", "kernels", "losses", "optim", "options", "sparse", "data", "history", "screen",
    "runtime", "flower", "cli",
)  # fmt: skip
# Of kernels, what finds and loads those of an installed library; none is compiled there.
KERNELS = (
    "__init__", "cache/__init__", "cache/disk", "cache/jit", "cache/library", "cache/load",
    "cache/processor", "cache/sources", "control", "declaration/__init__",
    "declaration/expression", "declaration/ranges", "declaration/spec", "device/__init__",
    "device/layout", "emission/__init__", "emission/rewritten", "optimizers/__init__",
    "optimizers/states", "registry", "step_loop/__init__", "step_loop/layout", "tapes/__init__",
    "tapes/decode", "tapes/tape", "targets",
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
edgetrain = "edgetrain.cli:main"

[tool.setuptools.packages.find]
include = ["edgetrain*"]

[tool.setuptools.package-data]
edgetrain = {data}
"edgetrain.kernels" = ["{made}", "{declarations}"]
"""


def stage(folder: Path) -> Path:
    """Lay out the source of edgetrain-runtime; returns `folder`."""
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
    for name in RUNTIME:
        source, target = ROOT / "edgetrain" / name, folder / "edgetrain" / name
        if source.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(
                source, target, ignore=_other_kernels if name == "kernels" else unwanted
            )
        else:
            shutil.copy(source, target)
    packing.write_description(folder / "edgetrain" / "kernels")
    lean_source.strip(folder / "edgetrain")
    return folder


def copy_source(source: Path, copy: Path) -> None:
    """A source tree without what was built in it: builds leave nothing behind in the tree."""
    unwanted = (".*", "__pycache__", "build", "dist", "runs", "*.egg-info")
    shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(*unwanted))


def _other_kernels(folder: str, names: list[str]) -> set[str]:
    """What is left out of a folder of kernels."""
    place = Path(folder).relative_to(ROOT / "edgetrain" / "kernels")
    kept = {Path(name).with_suffix(".py") for name in KERNELS}
    folders = {path.parent for path in kept}
    return {name for name in names if place / name not in kept | folders}


def build(source: Path, out: Path) -> None:
    """Build the wheel of a source tree into `out`, leaving nothing behind in the tree."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "source"
        copy_source(source, copy)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        subprocess.run([*pip, "-w", str(out), str(copy)], check=True)


def build_runtime(out: Path) -> Path:
    """Build edgetrain-runtime into `out`; returns the wheel's path."""
    with tempfile.TemporaryDirectory() as folder:
        build(stage(Path(folder)), out)
    return max(out.glob("edgetrain_runtime-*.whl"), key=lambda path: path.stat().st_mtime)


def main(out: str = "dist", *names: str) -> int:
    """Build all; says where they lie. A word that begins with a dash shows how to call this."""
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
