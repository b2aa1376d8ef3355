"""TensorFlow.js beside us in Node.js: the digits, with the same network, minibatch and optimizer.

    python -m benchmarks.tfjs [--steps N] [--rounds N] [--npm DIR]

npm installs TensorFlow.js in a temporary folder; --npm names a folder that already has it.
Contenders alternate, each in a process of its own. Download: everything that a page fetches,
gzipped. Arrays: the peak of tf.profile; for us, memory.buffer with stack and constants. Process
growth: the maximum, counted from before the library is loaded. Time: the median over steps, after a
second of warm-up steps, then over rounds.
"""

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.data.registry import open_data

ROOT = Path(__file__).resolve().parents[1]
VERSION = "4.22.0"
PACKAGES = ("@tensorflow/tfjs", "@tensorflow/tfjs-backend-wasm")
MINIBATCH, LR, MOMENTUM = 32, 0.03, 0.9
OURS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32, `--budget 110KiB`": {"budget": "110KiB"},
    "fp16": {"precision": "fp16"},
}
# What a page loads of it, by backend.
THEIRS = {
    "cpu": ("tfjs/dist/tf.min.js",),
    "wasm": (
        "tfjs/dist/tf.min.js",
        "tfjs-backend-wasm/dist/tf-backend-wasm.min.js",
        "tfjs-backend-wasm/dist/tfjs-backend-wasm-simd.wasm",
    ),
}
STEPS, ROUNDS = 100, 3
NPM = Path(shutil.which("npm") or "/npm is not installed")
HEAD = "| download | arrays | process growth | a step | accuracy |"
_SECONDS = 900


def prepared(folder: Path, npm: Path | None) -> None:
    """Write the task, our modules and TensorFlow.js into `folder`."""
    task = {"minibatch": MINIBATCH, "lr": LR, "momentum": MOMENTUM}
    (folder / "task.json").write_text(json.dumps(task))
    source = open_data("digits")
    for part, prefix in ((source, ""), (source.for_split("test"), "held_")):
        x = np.zeros((part.n, 1, 8, 8), np.float32)
        y = np.zeros(part.n, np.int32)
        part.fill(np.arange(part.n), {"x": x, "y": y})
        (folder / f"{prefix}x").write_bytes(x.tobytes())
        (folder / f"{prefix}y").write_bytes(y.tobytes())
    model = et.load_onnx(ROOT / "examples" / "digits" / "model.onnx")
    for number, options in enumerate(OURS.values()):
        optimizer = et.SGD(lr=LR, momentum=MOMENTUM, nesterov=True)
        program = et.compile(
            model,
            minibatch=MINIBATCH,
            target="wasm32",
            optimizer=optimizer,
            verbose=False,
            **options,
        )
        bundle(program, folder / str(number), name="digits")
    install(folder, npm)


def install(folder: Path, npm: Path | None) -> None:
    """Provide TensorFlow.js in `folder`/npm: link to `npm`, or install it."""
    if npm is not None:
        (folder / "npm").symlink_to(npm.resolve())
        return
    (folder / "npm").mkdir()
    named = [f"{package}@{VERSION}" for package in PACKAGES]
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder / "npm")]
    subprocess.run([NPM, "install", *flags, *named], check=True, stdout=subprocess.DEVNULL)


def contenders(own: Iterable[str] = OURS) -> dict[str, str]:
    """Name -> how the script is told to run it."""
    ours = {f"edgetrain {name}": f"ours:{k}" for k, name in enumerate(own)}
    return ours | {f"TensorFlow.js {VERSION}, {backend}": f"theirs:{backend}" for backend in THEIRS}


def download(folder: Path, contender: str, name: str = "digits") -> int:
    """Bytes that a page fetches, gzipped; `name`: our modules' name."""
    kind, which = contender.split(":")
    files = [folder / which / f"{name}.{end}" for end in ("wasm", "js")]
    if kind == "theirs":
        files = [folder / "npm" / "node_modules" / "@tensorflow" / name for name in THEIRS[which]]
    return sum(len(gzip.compress(file.read_bytes(), mtime=0)) for file in files)


def ran(folder: Path, contender: str, steps: int, script: str = __file__) -> dict[str, Any]:
    """Run a contender once and return its results; `script`: the Python file beside the .mjs."""
    script = str(Path(script).with_suffix(".mjs"))
    command = ["node", script, contender, str(folder), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def lines(steps: int = STEPS, rounds: int = ROUNDS, npm: Path | None = None) -> Iterator[str]:
    """The table of docs/browser.md."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepared(folder, npm)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders()}
        for _ in range(rounds):
            for name, contender in contenders().items():
                found[name].append(ran(folder, contender, steps))
        sizes = {name: download(folder, contender) for name, contender in contenders().items()}
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    yield f"| {steps} steps of {MINIBATCH}, Node.js {version.stdout.strip()} {HEAD}"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, runs in found.items():
        if "error" in runs[0]:
            yield f"| {name} | {kib(sizes[name])} | {runs[0]['error']} | | | |"
            continue
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        yield (
            f"| {name} | {kib(sizes[name])} | {kib(middle['own'])} | {mib(middle['grown'])} | "
            f"{middle['ms']:.2f} ms | {100 * middle['accuracy']:.1f} % |"
        )


def kib(nbytes: float) -> str:
    """Bytes as a table cell in KiB."""
    return f"{nbytes / 2**10:,.1f} KiB"


def mib(nbytes: float) -> str:
    """Bytes as a table cell in MiB."""
    return f"{nbytes / 2**20:,.1f} MiB"


def main(table: Callable[..., Iterator[str]], about: str, steps: int, rounds: int) -> None:
    """Print a table; parses `--steps`, `--rounds` and `--npm`."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--steps", type=int, default=steps, help=f"of a run (default: {steps})")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"(default: {rounds})")
    parser.add_argument("--npm", type=Path, help="folder with node_modules/@tensorflow")
    given = parser.parse_args()
    print("\n".join(table(given.steps, given.rounds, given.npm)))


if __name__ == "__main__":
    main(lines, __doc__, STEPS, ROUNDS)
