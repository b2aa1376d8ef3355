"""GroupNormalization of opset 18, which onnx's checker no longer accepts, and refusals."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from edgetrain.api import forward
from edgetrain.errors import ModelError
from edgetrain.importer.decode import decode


def _model(tmp_path, opset: int, groups: int, scale: np.ndarray, bias: np.ndarray):
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 6, 4]) for name in "xy"
    ]
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], "norm", num_groups=groups)
    arrays = [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph([node], "model", infos[:1], infos[1:], arrays)
    opsets = [helper.make_opsetid("", opset)]
    return decode(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path)


@pytest.fixture
def parts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, and scale and bias of three groups."""
    rng = np.random.default_rng(7)
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in ((2, 6, 4), 3, 3))


def test_group_normalization_scales_groups_before_opset_21(tmp_path, parts):
    x, scale, bias = parts
    found = forward(_model(tmp_path, 18, 3, scale, bias), {"x": x})["y"]
    wide = (torch.tensor(v).double().repeat_interleave(2) for v in (scale, bias))
    expected = torch.nn.functional.group_norm(torch.tensor(x).double(), 3, *wide)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("groups", [0, 4])
def test_group_normalization_names_groups_that_do_not_divide_the_channels(tmp_path, parts, groups):
    x, scale, bias = parts
    with pytest.raises(ModelError, match=f"'norm'.*{groups} groups for 6 channels"):
        forward(_model(tmp_path, 21, groups, scale, bias), {"x": x})


def test_group_normalization_names_a_scale_of_the_wrong_size(tmp_path, parts):
    x, scale, bias = parts
    with pytest.raises(ModelError, match=r"'norm'.*shape \[3\]; expected \[6\]"):
        forward(_model(tmp_path, 21, 3, scale, bias), {"x": x})
