"""The table of docs/models.md: every stock model of the list, compared and trained a step.

    python -m benchmarks.stock [LIBRARY/NAME ...] [--limit SECONDS] [--write]

Each thing is measured in a process of its own with a time limit, the first step with an empty cache
of kernels. What is found is kept in docs/models.json with digests of kernels and compiler: a model
is measured again where these have changed, so that the table can be made in pieces. --write makes
the document of what is kept, and measures nothing.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import marks
from edgetrain.units import format_bytes

from . import kept
from .listed import MINIBATCH, Listed, listed

DOCUMENT = marks.ROOT / "docs" / "models.md"
LIMIT = 600  # seconds of one measurement
HEAD = f"""\
# Stock models

Do models from torchvision, timm and transformers work unchanged? The list and its rules
(`benchmarks/stock/listed.py`) were written before any model was tried; weights are random. Each
model is:

1. exported with `export_torch`;
2. compared with torch in float64: loss, every gradient, an update;
3. planned with `--effort quick`;
4. trained for one step of {MINIBATCH} samples with SGD and momentum, in the smallest plan.

"torch's float32" is how far torch in float32 is from float64 in the tensor with the worst
gradient. With 2 samples, rounding can move an activation across the kink of a ReLU and change
gradients by up to 1e-2, in torch as in edgetrain: torch's float32 is off by 8.7e-3 in one of
three draws of ResNet-18. With SiLU and mean pooling instead, it is off by 3.7e-6, and edgetrain
by 8.7e-6. "torch" is the growth of torch's process for the same minibatch. CPU seconds are on two
cores of an x86 server; the first step starts with an empty kernel cache.

    python -m benchmarks.stock

| model | weights | gradient | torch's float32 | smallest arena | torch | plan, s | first step, s |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Measure what has changed, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = kept.read()
    rows = [row for row in kept.waiting() if not asked.models or row.label in asked.models]
    for row in [] if asked.write else rows:
        facts = measured(row, asked.limit)
        found[row.label] = {"configuration": row.text, "digests": kept.digests(), **facts}
        kept.write(found)
        print(row.label, facts.get("refused") or "trained", flush=True)
        DOCUMENT.write_text(document(found))
    DOCUMENT.write_text(document(found))


def measured(row: Listed, limit: int) -> dict[str, Any]:
    """Everything of a model, up to the first thing that is refused."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for what in ("export", "step", "parity", "torch"):
            cache = {"EDGETRAIN_CACHE": f"{folder}/kernels"} if what in ("step", "parity") else {}
            before = _seconds()
            part = _child(what, row, path, limit, cache)
            found |= part
            if what == "step" and "plan_cpu" in part:
                found["step_cpu"] = _seconds() - before - part["plan_cpu"]
            if "refused" in part:
                found["refused"] = f"{what}: {part['refused']}"
                break
    return found


def _seconds() -> float:
    """CPU time of processes that have ended, and of those that they waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _child(what: str, row: Listed, path: Path, limit: int, cache: dict[str, str]) -> dict:
    words = [sys.executable, "-m", "benchmarks.stock.measure", what, row.label, str(path)]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=limit, cwd=marks.ROOT,
            env=os.environ | cache,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"refused": f"not done within {limit} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"refused": f"exit status {done.returncode}"}


def document(found: dict[str, dict]) -> str:
    """docs/models.md."""
    rows = [row for row in listed() if row.label in found]
    return HEAD + "\n".join(_line(row, found[row.label]) for row in rows) + "\n\n" + _end(found)


def _line(row: Listed, found: dict[str, Any]) -> str:
    weights = f"{found['weights_mb']} MB" if "weights_mb" in found else ""
    cells = [f"{row.label} {row.text}".strip(), weights]
    if "refused" in found:
        return f"| {' | '.join(cells)} | refused, {found['refused'].replace('|', '/')} ||||||"
    verdict = f"{found['gradient']:.1e}" if found["parity"] else f"departs: {found['why']}"
    torchs = found.get("torch_gradient")
    cells += [verdict, "" if torchs is None else f"{torchs:.1e}"]
    cells += [format_bytes(found["arena"]), format_bytes(found["torch"])]
    cells += [f"{found['plan_cpu']:.1f}", f"{found['step_cpu']:.1f}"]
    return f"| {' | '.join(cells)} |"


def _end(found: dict[str, dict]) -> str:
    return "\n".join(_counts(list(found.values()))) + "\n"


def _counts(found: list[dict]) -> Iterator[str]:
    trained = [each for each in found if "refused" not in each]
    soon = [each for each in trained if each["plan_cpu"] + each["step_cpu"] <= 60]
    yield (
        f"{len(trained)} of {len(found)} models trained; {sum(each['parity'] for each in trained)} "
        f"match torch within tolerance. {len(soon)} needed at most 60 CPU seconds for planning and "
        f"the first step. {len(listed()) - len(found)} models of the list are not measured yet."
    )


if __name__ == "__main__":
    main()
