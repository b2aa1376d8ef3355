"""Builds edgetrain-kernels-TARGET: all kernels of a processor in one library, for `tools.wheels`.

x86-64 and AArch64 only need llvmlite; the library refers to no other, so it works with glibc and
musl. Libraries for other processors are linked by their C compiler, if it is installed.
"""

import base64
import hashlib
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import edgetrain.compiler.compile  # noqa: F401 the planner's loops
from edgetrain import __version__
from edgetrain.kernels import registry, targets
from edgetrain.kernels.cache import library
from edgetrain.kernels.linking import packing
from edgetrain.kernels.linking.choices import every
from edgetrain.kernels.tapes.decode import Bound

ROOT = Path(__file__).resolve().parents[1]
# Target -> pip's platform tags.
PLATFORMS = {
    "x86-64-v3": "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
    "x86-64-v4": "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
    "aarch64": "manylinux_2_17_aarch64.musllinux_1_1_aarch64",
    "armv7": "manylinux_2_17_armv7l.musllinux_1_1_armv7l",
    "riscv64": "manylinux_2_31_riscv64.musllinux_1_2_riscv64",
}
DEFAULT = ("x86-64-v3", "x86-64-v4", "aarch64")
PLANNING = DEFAULT  # models are compiled there too: the packages that read them have wheels
_METADATA = """\
Metadata-Version: 2.1
Name: edgetrain-kernels-{target}
Version: {version}
Summary: Compiled kernels of edgetrain for {target}: nothing is compiled where it is installed.
License: Apache-2.0
Requires-Python: >=3.11,<3.15
"""
_WHEEL = "Wheel-Version: 1.0\nGenerator: edgetrain tools\nRoot-Is-Purelib: false\n"


# Kernels that every Program calls, then those that most nets call, in their usual variant.
_ALL = re.compile("drive_.*|rate_.*|run_tape|loss_.*|stat_.*|grad_.*")
_MOST = re.compile("bn_.*|bgrad_.*|ce_.*|conv|conv_d[wx]|copy|gemm|maxpool.*|reduce_mean|relu|sgd")


def _place(one: Bound) -> tuple[int, int]:
    """Sort key that keeps the kernels of one Program together, so a process maps fewer pages."""
    kernel, storages = one
    kinds = list(storages.values())
    halves = sum(kind == "f16" for kind in kinds)
    if not kinds and _ALL.fullmatch(kernel.name):
        return 0, 0
    exact = {"f32", "u8"}.issuperset(kinds)
    if exact and (_ALL.fullmatch(kernel.name) or _MOST.fullmatch(kernel.name)):
        is_last = kernel.variant == "plain" and len(registry.variants(kernel.name)) > 1
        return 1 + (is_last or kernel.variant in ("narrow", "depthwise")), 0
    return 3, halves


def build_kernels(
    out: Path, names: Sequence[str] = DEFAULT, kernels: Sequence[Bound] | None = None
) -> list[Path]:
    """Build the wheels of these targets into `out`; return their paths.

    Args:
      kernels: kernels with their storages; None: all that a Program may call.

    Each kernel is lowered once for all targets, with one process per processor; objects are
    cached.
    """
    found = [targets.get(name) for name in names]
    kernels = sorted(kernels or every(), key=_place)
    start = time.perf_counter()
    rows = packing.objects(kernels, [one.processor for one in found], os.cpu_count() or 1)
    seconds = time.perf_counter() - start
    paths = []
    for k, target in enumerate(found):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / library.package(target.name)
            code = [row[k] for row in rows]
            compiler = target.compiler if shutil.which(target.compiler) else ""
            planner = packing.planner(target.processor) if target.name in PLANNING else b""
            packing.write_library(place, target.name, __version__, code, (), compiler, planner)
            (place / "__init__.py").write_text(f'"""Kernels of edgetrain for {target.name}."""\n')
            size = (place / library.LIBRARY).stat().st_size
            paths.append(_zipped(out, target.name, place))
        print(f"{target.name}: {len(kernels)} kernels, {size:,} bytes; objects {seconds:.0f} s")
    return paths


def _zipped(out: Path, target: str, package: Path) -> Path:
    """Write a package as a wheel (PEP 427)."""
    name = f"{package.name}-{__version__}"
    info = f"{name}.dist-info"
    tags = [f"Tag: py3-none-{part}\n" for part in PLATFORMS[target].split(".")]
    files = {f"{package.name}/{path.name}": path.read_bytes() for path in sorted(package.iterdir())}
    files[f"{info}/METADATA"] = _METADATA.format(target=target, version=__version__).encode()
    files[f"{info}/WHEEL"] = (_WHEEL + "".join(tags)).encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = out / f"{name}-py3-none-{PLATFORMS[target]}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            file.writestr(entry, data)
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
