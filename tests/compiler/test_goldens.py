"""Golden texts of graphs after all passes. EDGETRAIN_UPDATE_GOLDENS=1 rewrites them."""

import os
from pathlib import Path

import pytest

from . import nets

FOLDER = Path(__file__).parent / "golden"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("which", ["train", "evaluate"])
def test_passes_give_the_committed_graph(which, precision):
    found = str(getattr(nets.graphs(nets.conv_bn_relu_conv(), precision=precision), which)) + "\n"
    path = FOLDER / f"conv_bn_relu_conv.{which}.{precision}.txt"
    if os.environ.get("EDGETRAIN_UPDATE_GOLDENS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found)
    assert found == path.read_text()
