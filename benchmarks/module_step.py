"""Milliseconds of a step in Node.js and in native C with one lane, the two in turn: the digits.

    python -m benchmarks.module_step [--rounds N]

Both round products before adding them. The module has its target's four lanes and gets its samples
from JavaScript; the native bundle has one-lane kernels and generates its samples. A round times
some steps of each; figures are medians over rounds.
"""

import argparse
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.data.registry import open_data
from edgetrain.kernels import targets
from edgetrain.program import Program

from .bundle_step import DIGITS, SGD, in_c

OPTIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32, `--budget 110KiB`": {"budget": "110KiB"},
    "fp16": {"precision": "fp16"},
}
ONE_LANE = "riscv64"  # planned for it, emitted for this processor
NODE = Path(shutil.which("node") or "/node is not installed")
MINIBATCH, EACH, WARM, ROUNDS = 32, 20, 10, 30


def programs(options: dict[str, Any]) -> tuple[Program, Program]:
    """Compile the digits for a WebAssembly module, and for this processor with one lane."""
    given = {"minibatch": MINIBATCH, "optimizer": SGD, **options}
    model = et.load_onnx(DIGITS)
    module = et.compile(model, target="wasm32", verbose=False, **given)
    native = et.compile(model, target=ONE_LANE, arithmetic=targets.SEPARATE, verbose=False, **given)
    return module, native


def in_node(program: Program, folder: Path) -> subprocess.Popen:
    """Start the module's process: it reads a number of steps and prints milliseconds per step."""
    bundle(program, folder, name="net", target="wasm32")
    source = open_data("digits")
    x, y = np.zeros((source.n, 1, 8, 8), np.float32), np.zeros(source.n, np.int32)
    source.fill(np.arange(source.n), {"x": x, "y": y})
    x.tofile(folder / "x")
    y.astype(np.float32).tofile(folder / "y")
    script = Path(__file__).with_suffix(".mjs")
    pipe = subprocess.PIPE
    return subprocess.Popen([NODE, script, folder], stdin=pipe, stdout=pipe, text=True, bufsize=1)


def _asked(child: subprocess.Popen, line: str) -> str:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{line}\n")
    return child.stdout.readline()


def compared(options: dict[str, Any], rounds: int) -> tuple[float, float]:
    """Return milliseconds per step: in the module, in native C."""
    module, native = programs(options)
    found: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory() as place,
        in_node(module, Path(place)) as node,
        tempfile.TemporaryDirectory() as other,
        in_c(native, Path(other), targets.host().name) as child,
    ):
        for _ in range(WARM + rounds):
            ours = float(_asked(node, str(EACH)))
            theirs = statistics.median(float(_asked(child, "").split()[0]) for _ in range(EACH))
            found.append((ours, 1e3 * theirs))
        for one in (node, child):
            assert one.stdin is not None
            one.stdin.close()
    middle = [statistics.median(row[k] for row in found[WARM:]) for k in range(2)]
    return middle[0], middle[1]


def lines(rounds: int = ROUNDS) -> Iterator[str]:
    """The table."""
    yield "| a step of 32 digits | WebAssembly, ms | native C with one lane, ms | ratio |"
    yield "|---|---:|---:|---:|"
    for name, options in OPTIONS.items():
        ours, theirs = compared(options, rounds)
        yield f"| {name} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"(default: {ROUNDS})")
    for line in lines(parser.parse_args().rounds):
        print(line, flush=True)
