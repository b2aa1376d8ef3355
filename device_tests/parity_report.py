"""Parity of the whole zoo with torch on one device, in fp64 and fp32, as a JSON report.

python -m device_tests.parity_report [--device cpu|cuda] [--jobs N] [--out FILE] [MODEL ...]

Without the device, nothing is run and the reason is printed.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgetrain as et
from benchmarks import marks
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import REFERENCES, parity
from edgetrain.losses import Loss
from examples.zoo import ZOO

FOLLOWS = ("kernels", "planner")  # of marks.SOURCES
STEPS = 2
BATCH = 8
REPORTS = Path(__file__).with_name("reports")


def model_parity(name: str, device: str) -> dict[str, Any]:
    """Results of `parity` for one small zoo model, for each reference."""
    entry = ZOO[name]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.onnx")
        example = entry.example_inputs(2, "small")
        export_torch(entry.build("small"), example, path, batch_dim=entry.batch_dim)
        ignored = -100 if entry.ignore_index is None else entry.ignore_index
        loss = Loss(entry.loss, ignore_index=ignored)
        out = {}
        for reference in REFERENCES:
            found = parity(
                path, device=device, reference=reference, steps=STEPS, minibatch=BATCH, loss=loss
            ).to_json()
            kept = ("ok", "first_departure", "worst")
            out[reference] = {"comparisons": len(found["tensors"]), **{k: found[k] for k in kept}}
    return {"ok": all(found["ok"] for found in out.values()), **out}


def attempt(name: str, device: str) -> dict[str, Any]:
    """Like `model_parity`, but an exception becomes a failed result."""
    try:
        return model_parity(name, device)
    except Exception as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def facts(device: str, models: dict[str, Any]) -> dict[str, Any]:
    """The report: device, versions, date, and each model's result."""
    cuda = device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})",
        "note": "" if cuda else "no CUDA device was at hand; torch ran on the CPU",
        "torch": torch.__version__, "cuda": torch.version.cuda if cuda else None,
        "numpy": np.__version__, "edgetrain": et.__version__,
        "date": datetime.date.today().isoformat(), "steps": STEPS, "batch": BATCH,
        "made": dataclasses.asdict(marks.now(FOLLOWS)), "models": models,
    }  # fmt: skip


def line_of(name: str, result: dict[str, Any]) -> str:
    """One line per model: for each reference, comparisons and the worst gradient error."""
    if "error" in result:
        return f"{name:22} FAILED  {result['error']}"
    cells = [f"{name:22} {'ok' if result['ok'] else 'DEPARTS':8}"]
    for reference in REFERENCES:
        found = result[reference]
        worst = found["worst"].get("gradient", {}).get("error")
        cells.append(f"{reference}: {found['comparisons']} comparisons, gradient {worst:.1e}  ")
    return "".join(cells).rstrip()


def write_report(device: str, models: dict[str, Any], out: Path | None = None) -> Path:
    """Write the report, by default as device_tests/reports/<device>_parity.json."""
    folder = Path(os.environ.get("EDGETRAIN_REPORTS") or REPORTS)
    out = out or folder / f"{device}_parity.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(facts(device, models), indent=1) + "\n")
    return out


def main() -> int:
    """Print the report of the named models, or of all; return 1 if one departs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("parity on CUDA: skipped, torch finds no CUDA device here")
        return 0
    names = args.models or list(ZOO)
    results = {}
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        found = pool.map(attempt, names, [args.device] * len(names))
        for name, result in zip(names, found, strict=True):
            results[name] = result
            print(line_of(name, result), flush=True)
    failed = [name for name, result in results.items() if not result["ok"]]
    print(f"{len(names) - len(failed)} of {len(names)} agree:", args.device, end="; ")
    print("report in", write_report(args.device, results, args.out))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
