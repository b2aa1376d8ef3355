"""TensorFlow.js beside us in Node.js: a head for 10 classes on a frozen MobileNetV2.

    python -m benchmarks.tfjs_head [--steps N] [--rounds N] [--npm DIR]

Pictures are 96 x 96, minibatches 8. Each step computes the frozen features, with batch-norms on
their running statistics, and trains the head; weights and pictures are synthetic. TensorFlow.js
computes the features with predict, like its own examples. Columns are those of benchmarks/tfjs.py;
the download includes TensorFlow.js's weights as it saves them, gzipped.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.exporters import export_torch
from examples.zoo import mobilenet

from . import tfjs

MINIBATCH, LR, MOMENTUM = 8, 0.03, 0.9
SIZE, CLASSES, SAMPLES, STEM, LAST = 96, 10, 64, 32, 1280
ROWS = mobilenet.FULL
OURS: dict[str, dict[str, Any]] = {
    "frozen fp32": {"frozen": "fp32"},
    "frozen int8": {"frozen": "int8"},
}
STEPS, ROUNDS = 5, 3
HEAD = "| download | arrays | process growth | a step |"


def prepared(folder: Path, npm: Path | None) -> None:
    """Write the task, our modules and TensorFlow.js into `folder`."""
    task = {
        "minibatch": MINIBATCH, "lr": LR, "momentum": MOMENTUM, "size": SIZE, "classes": CLASSES,
        "samples": SAMPLES, "rows": ROWS, "stem": STEM, "last": LAST,
    }  # fmt: skip
    (folder / "task.json").write_text(json.dumps(task))
    torch.manual_seed(0)
    net = mobilenet.MobileNetV2(ROWS, STEM, LAST, CLASSES)
    export_torch(net, (torch.zeros(2, 3, SIZE, SIZE),), folder / "mobilenet.onnx")
    model = et.load_onnx(folder / "mobilenet.onnx")
    for number, options in enumerate(OURS.values()):
        optimizer = et.SGD(lr=LR, momentum=MOMENTUM, nesterov=True)
        program = et.compile(
            model,
            loss="cross_entropy",
            minibatch=MINIBATCH,
            target="wasm32",
            optimizer=optimizer,
            train=("head.*",),
            verbose=False,
            **options,
        )
        bundle(program, folder / str(number), name="head")
    tfjs.install(folder, npm)


def lines(steps: int = STEPS, rounds: int = ROUNDS, npm: Path | None = None) -> Iterator[str]:
    """The second table of docs/browser.md."""
    contenders = tfjs.contenders(OURS)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepared(folder, npm)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, contender in contenders.items():
                found[name].append(tfjs.ran(folder, contender, steps, __file__))
        sizes = {name: tfjs.download(folder, one, "head") for name, one in contenders.items()}
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    yield f"| {steps} steps of {MINIBATCH}, Node.js {version.stdout.strip()} {HEAD}"
    yield "|---|---:|---:|---:|---:|"
    for name, runs in found.items():
        if "error" in runs[0]:
            yield f"| {name} | {tfjs.mib(sizes[name])} | {runs[0]['error']} | | |"
            continue
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        yield (
            f"| {name} | {tfjs.mib(sizes[name] + middle.get('weights', 0))} | "
            f"{tfjs.mib(middle['own'])} | {tfjs.mib(middle['grown'])} | {middle['ms']:.1f} ms |"
        )


if __name__ == "__main__":
    tfjs.main(lines, __doc__, STEPS, ROUNDS)
