"""NEON by counting: instructions that kernels execute for four multiply-adds, under emulation.

    python -m benchmarks.neon

One vector instruction does four multiply-adds, so 1 is the minimum; the rest are loads, packing and
loops. Each kernel is emitted for aarch64 and linked with a small main that calls it once or twice;
the difference between qemu's logs of executed blocks is one call.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgetrain.kernels import registry, targets

from .kernel_cases import fmas_of

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
_CONV = {
    **{"n": 2, "c": 32, "h": 16, "wd": 16, "k": 32, "kh": 3, "kw": 3, "oh": 16, "ow": 16},
    **{"sh": 1, "sw": 1, "ph": 1, "pw": 1, "dh": 1, "dw": 1, "g": 1, "act": 0, "acc": 0, "key": 0},
}
_PLAIN = {"bias": -1, "stat": -1, "gamma": -1, "beta": -1, "lo": 0, "hi": 0}
_GEMM = {
    **{"z1": 1, "z2": 1, "m": 128, "n": 128, "k2": 1, "k": 192, "az1": 0, "az2": 0, "ak2": 0},
    **{"bz1": 0, "bz2": 0, "bk2": 0, "cz1": 0, "cz2": 0, "cm": 128, "bias": -1, "ctl": -1},
    **{"alpha": 0x3F800000, "acc": 0, "sr": 0, "key": 0, "na": 24576, "nb": 24576, "nc": 16384},
}
CASES: tuple[tuple[str, str, str, Mapping[str, int]], ...] = (
    ("forward", "conv", "f32", _CONV | _PLAIN),
    ("forward, fp16", "conv", "f16", _CONV | _PLAIN),
    ("input gradient", "conv_dx", "f32", _CONV),
    ("input gradient, stride 2", "conv_dx", "f32", _CONV | {"sh": 2, "sw": 2, "oh": 8, "ow": 8}),
    ("weight gradient", "conv_dw", "f32", _CONV | _PLAIN),
    ("x W", "gemm", "f32", _GEMM | {"am": 192, "ak": 1, "bn": 1, "bk": 128}),
    ("x W'", "gemm", "f32", _GEMM | {"am": 192, "ak": 1, "bn": 192, "bk": 1}),
    ("x' W", "gemm", "f32", _GEMM | {"am": 1, "ak": 128, "bn": 1, "bk": 128}),
)


def missing() -> str:
    """Return what is not installed here; "" if nothing is missing."""
    return ", ".join(name for name in (COMPILER, EMULATOR) if shutil.which(name) is None)


def _main(symbol: str, words: list[str], buffers: list[int]) -> str:
    memory = "\n".join(
        f"static float b{i}[{size // 4 + 64}] __attribute__((aligned(64)));"
        for i, size in enumerate(buffers)
    )
    return f"""#include <stdint.h>
void {symbol}(int64_t, int64_t *, int64_t, int64_t);
{memory}
int main(int count, char **unused) {{
    int64_t words[] = {{{", ".join(words)}}};
    for (int i = 0; i < count; i++) {symbol}(0, words, 0, 1);
    return 0;
}}
"""


def executed(log: str) -> int:
    """Count instructions in qemu's log of translated (`in_asm`) and executed (`exec`) blocks."""
    sizes: dict[int, int] = {}
    total, start = 0, None
    for line in log.splitlines():
        if line.startswith("IN:"):
            start = None
        elif found := re.match(r"0x([0-9a-f]+):", line):
            start = int(found[1], 16) if start is None else start
            sizes[start] = sizes.get(start, 0) + 1 if int(found[1], 16) != start else 1
        elif found := re.match(r"Trace \d+: \S+ \[\w+/(\w+)/", line):
            total += sizes[int(found[1], 16)]
    return total


def instructions(name: str, storage: str, values: Mapping[str, int]) -> tuple[int, str]:
    """Return (instructions of one call on all-zero data, the kernel's variant)."""
    target = targets.get("aarch64").processor
    kinds = dict.fromkeys(registry.variants(name)[0].spec.variables, storage)
    given = {o.name: 0 for o in registry.variants(name)[0].spec.operands} | values
    kernel = registry.choose(name, given, kinds, target)
    extents = kernel.spec.extents(given, kinds, 1, target.lanes)
    scratch = kernel.spec.scratch_nbytes(given, 1, target.lanes)
    words: list[str] = []
    buffers: list[int] = []
    for operand in kernel.spec.operands:
        if operand.mode == "t" or operand.name in extents:
            words.append(f"(int64_t)b{len(buffers)}")
            words += [str(scratch)] if operand.mode == "t" else []
            buffers.append(scratch if operand.mode == "t" else extents[operand.name])
        else:
            words.append(str(given[operand.name]))
    symbol = kernel.symbol(kinds)
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        (at / "main.c").write_text(_main(symbol, words, buffers))
        (at / "kernel.o").write_bytes(kernel.object(kinds, target))
        subprocess.run(
            [COMPILER, "-O1", "-static", "main.c", "kernel.o", "-o", "run"], cwd=at, check=True
        )
        counts = []
        for arguments in ([], ["again"]):
            command = [EMULATOR, "-d", "in_asm,exec,nochain", "-D", "log", "./run", *arguments]
            subprocess.run(command, cwd=at, check=True)
            counts.append(executed((at / "log").read_text(errors="replace")))
    return counts[1] - counts[0], kernel.variant


def main() -> None:
    """Print the table."""
    if missing():
        print(f"benchmarks.neon: not installed: {missing()}")
        return
    print(
        "| kernel | pass | multiply-adds | instructions for four |\n|---|---|---|---|", flush=True
    )
    for title, name, storage, values in CASES:
        count, variant = instructions(name, storage, values)
        fmas = fmas_of(name, values)
        print(f"| {name}.{variant} | {title} | {fmas:,} | {4 * count / fmas:.2f} |", flush=True)


if __name__ == "__main__":
    main()
