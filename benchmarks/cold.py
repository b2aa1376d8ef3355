"""CPU time of a first run, with an empty cache of kernels.

python -m benchmarks.docs cold          (into docs/systems.md; two rows need torchvision)
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEP = """
import sys
import numpy as np
import edgetrain as et
program = et.compile(sys.argv[1], loss="cross_entropy", minibatch=2)
trainer = et.Trainer(program)
shape = program.inputs["micro"][0].shape[1:]
trainer.step(np.random.rand(2, *shape).astype(np.float32), np.array([1, 2]))
"""
MODELS = "torchvision/resnet18", "torchvision/mobilenet_v3_small"


def readme_example() -> str:
    """Return the Python example from README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition("```python\n")[2].partition("```")[0]


def first_run(script: str, *arguments: str) -> tuple[float, int]:
    """Run a script with an empty cache; return (CPU seconds of all processes, kernels compiled)."""
    with tempfile.TemporaryDirectory() as name:
        Path(name, "examples").symlink_to(ROOT / "examples")
        environment = os.environ | {
            "EDGETRAIN_CACHE": f"{name}/cache",
            "EDGETRAIN_PROGRESS": "0",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", script, *arguments]
        subprocess.run(command, check=True, cwd=name, env=environment, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return seconds, sum(1 for _ in Path(name, "cache").rglob("*.o"))


def lines() -> Iterator[str]:
    """Return a row for the README example and one for the first step of each of MODELS."""
    from .stock import build  # with torch
    from .stock.listed import listed

    yield "| first run of | kernels compiled | CPU seconds |"
    yield "|---|---:|---:|"
    seconds, kernels = first_run(readme_example())
    yield f"| the README's Python example | {kernels} | {seconds:.0f} |"
    rows = {row.label: row for row in listed()}
    for label in MODELS:
        try:
            module = build.module_of(rows[label])
        except ImportError as error:
            yield f"| one training step of {label} | not measured | {error} |"
            continue
        with tempfile.TemporaryDirectory() as name:
            path = build.export(rows[label], Path(name, "m.onnx"), module)
            seconds, kernels = first_run(STEP, str(path))
        yield f"| one training step of {label} | {kernels} | {seconds:.0f} |"
