"""The zoo on a CUDA device: the engine beside torch in float64 there; writes a report.

The report goes to device_tests/reports/ (or where EDGETRAIN_REPORTS points): device, versions,
date, worst tensor of each model.
"""

import datetime
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.errors import UnsupportedOpError
from edgetrain.ops.loss import Loss
from examples.zoo import ZOO
from exporters import export_torch
from exporters.parity import parity

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

_STEPS = 2
_BATCH = 8
_RESULTS: dict[str, dict] = {}


@pytest.fixture(scope="module", autouse=True)
def report():
    """Written when the last model is done."""
    yield
    folder = Path(os.environ.get("EDGETRAIN_REPORTS") or Path(__file__).with_name("reports"))
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "cuda": torch.version.cuda, "numpy": np.__version__, "edgetrain": et.__version__,
        "date": datetime.date.today().isoformat(), "steps": _STEPS, "batch": _BATCH,
        "models": _RESULTS,
    }  # fmt: skip
    (folder / "cuda_parity.json").write_text(json.dumps(facts, indent=1) + "\n")


@pytest.mark.parametrize("name", ZOO)
def test_zoo_model_equals_torch_on_cuda(name, tmp_path):
    entry = ZOO[name]
    torch.manual_seed(0)
    path = tmp_path / f"{name}.onnx"
    export_torch(
        entry.build("small"), entry.example_inputs(2, "small"), path, batch_dim=entry.batch_dim
    )
    ignored = -100 if entry.ignore_index is None else entry.ignore_index
    loss = Loss(entry.loss, ignore_index=ignored)
    try:
        found = parity(path, device="cuda", steps=_STEPS, batch=_BATCH, loss=loss)
    except UnsupportedOpError as error:
        pytest.skip(str(error))
    summary = found.to_json()
    _RESULTS[name] = {key: summary[key] for key in ("ok", "first_departure", "worst")}
    assert found.ok, found.summary()
