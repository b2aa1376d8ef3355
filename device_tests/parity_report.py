"""Parity of the whole zoo with torch on one device, as a JSON report.

python -m device_tests.parity_report [--device cpu|cuda] [--out FILE] [MODEL ...]
"""

import argparse
import datetime
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgetrain as et
from edgetrain.ops.loss import Loss
from examples.zoo import ZOO
from exporters import export_torch
from exporters.parity import parity

STEPS = 2
BATCH = 8


def model_parity(name: str, device: str) -> dict[str, Any]:
    """What `parity` finds for one model of the zoo at small scale."""
    entry = ZOO[name]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.onnx")
        example = entry.example_inputs(2, "small")
        export_torch(entry.build("small"), example, path, batch_dim=entry.batch_dim)
        ignored = -100 if entry.ignore_index is None else entry.ignore_index
        loss = Loss(entry.loss, ignore_index=ignored)
        found = parity(path, device=device, steps=STEPS, batch=BATCH, loss=loss).to_json()
    return {key: found[key] for key in ("ok", "first_departure", "worst")}


def facts(device: str, models: dict[str, Any]) -> dict[str, Any]:
    """The report: device, versions, date, what each model gave."""
    cuda = device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if cuda else f"CPU ({platform.machine()})",
        "note": "" if cuda else "no CUDA device was at hand; torch ran on the CPU in float64",
        "torch": torch.__version__, "numpy": np.__version__, "edgetrain": et.__version__,
        "date": datetime.date.today().isoformat(), "steps": STEPS, "batch": BATCH,
        "models": models,
    }  # fmt: skip


def main() -> None:
    """Write the report of the named models, or of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out")
    args = parser.parse_args()
    results = {}
    for name in args.models or ZOO:
        try:
            results[name] = model_parity(name, args.device)
        except et.EdgetrainError as error:
            results[name] = {"ok": False, "error": str(error)}
        print(name, "ok" if results[name]["ok"] else results[name], flush=True)
    out = Path(args.out or Path(__file__).with_name("reports") / f"{args.device}_parity.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(facts(args.device, results), indent=1) + "\n")


if __name__ == "__main__":
    main()
