"""The zoo on a CUDA device: the engine against torch in fp64 and fp32; writes a report.

The report goes to device_tests/reports/ (or where EDGETRAIN_REPORTS points). `make parity-cuda`
does the same in parallel and without pytest.
"""

import pytest
import torch

from examples.zoo import ZOO

from .parity_report import attempt, write_report

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

_RESULTS: dict[str, dict] = {}


@pytest.fixture(scope="module", autouse=True)
def report():
    """Written when the last model is done."""
    yield
    write_report("cuda", _RESULTS)


@pytest.mark.parametrize("name", ZOO)
def test_zoo_model_equals_torch_on_cuda(name):
    _RESULTS[name] = attempt(name, "cuda")
    assert _RESULTS[name]["ok"], _RESULTS[name]
