"""The zoo on a CUDA device: the engine beside torch in float64 there; writes a report.

The report goes to device_tests/reports/ (or where EDGETRAIN_REPORTS points).
"""

import json
import os
from pathlib import Path

import pytest
import torch

from examples.zoo import ZOO

from .parity_report import facts, model_parity

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

_RESULTS: dict[str, dict] = {}


@pytest.fixture(scope="module", autouse=True)
def report():
    """Written when the last model is done."""
    yield
    folder = Path(os.environ.get("EDGETRAIN_REPORTS") or Path(__file__).with_name("reports"))
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts("cuda", _RESULTS), indent=1)
    (folder / "cuda_parity.json").write_text(text + "\n")


@pytest.mark.parametrize("name", ZOO)
def test_zoo_model_equals_torch_on_cuda(name):
    _RESULTS[name] = model_parity(name, "cuda")  # every model of the zoo can be trained
    assert _RESULTS[name]["ok"], _RESULTS[name]
