"""Attention's extra outputs and lengths of padded keys, compared with onnx.reference."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgetrain.api import forward
from edgetrain.errors import ModelError
from edgetrain.importer.decode import decode

_SHAPES = {"q": (2, 4, 3, 6), "k": (2, 2, 5, 6), "v": (2, 2, 5, 2)}


def _proto(
    inputs: dict[str, np.ndarray], given: tuple[str, ...], outputs, opset, constants=None, **attrs
):
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, a in inputs.items()
    ]
    arrays = [numpy_helper.from_array(a, k) for k, a in (constants or {}).items()]
    outs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in outputs if k]
    node = helper.make_node("Attention", given, outputs, "attend", **attrs)
    graph = helper.make_graph([node], "model", infos, outs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _inputs(**shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {k: rng.normal(size=s).astype(np.float32) for k, s in (_SHAPES | shapes).items()}


def _check(proto, inputs) -> None:
    expected = ReferenceEvaluator(proto).run(None, inputs)
    found = forward(decode(proto, Path("model")), inputs)
    for info, array in zip(proto.graph.output, expected, strict=True):
        np.testing.assert_allclose(found[info.name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_attention_gives_its_scores_at_every_stage(mode):
    inputs, outputs = _inputs(), ("y", "", "", "scores")
    # In mode 0 onnx.reference applies softcap; the standard says this output is the plain product.
    attrs = {"is_causal": 1, "softcap": 2.0 if mode else 0.0, "qk_matmul_output_mode": mode}
    _check(_proto(inputs, ("q", "k", "v"), outputs, 23, **attrs), inputs)


def test_attention_gives_the_keys_and_values_that_the_past_is_joined_to():
    inputs = _inputs(pk=(2, 2, 4, 6), pv=(2, 2, 4, 2))
    given = ("q", "k", "v", "", "pk", "pv")
    _check(_proto(inputs, given, ("y", "keys", "values"), 23, is_causal=1), inputs)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_ignores_padded_keys(causal):
    inputs = _inputs() | {"count": np.array([5, 3], np.int64)}
    given = ("q", "k", "v", "", "", "", "count")
    _check(_proto(inputs, given, ("y",), 24, is_causal=causal), inputs)


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("masked", ["a row", "a key"])
def test_a_constant_mask_hides_the_keys_after_its_end(masked, opset):
    """Keys without a column in the mask are hidden, also in a row that hides all of its keys."""
    inputs, mask = _inputs(), np.zeros((3, 4), np.float32)
    mask[(1,) if masked == "a row" else (slice(None), 1)] = -np.inf
    constants = {"mask": mask}
    _check(_proto(inputs, ("q", "k", "v", "mask"), ("y",), opset, constants), inputs)


@pytest.mark.parametrize("keys", [5, 4])
def test_a_mask_of_booleans_may_be_an_input(keys):
    mask = np.random.default_rng(3).random((2, 1, 3, keys)) < 0.6
    mask[..., 0] = True
    inputs = _inputs() | {"mask": mask}
    expected = _inputs() | {"mask": np.where(mask, 0, -np.inf).astype(np.float32)}
    given = ("q", "k", "v", "mask")
    model = decode(_proto(inputs, given, ("y",), 24), Path("model"))
    found = forward(model, inputs)["y"]
    model = decode(_proto(expected, given, ("y",), 24), Path("model"))
    np.testing.assert_allclose(found, forward(model, expected)["y"], rtol=1e-6, atol=1e-6)


def test_attention_names_heads_that_cannot_be_shared():
    inputs = _inputs(k=(2, 3, 5, 6), v=(2, 3, 5, 2))
    proto = _proto(inputs, ("q", "k", "v"), ("y",), 23)
    with pytest.raises(ModelError, match="'attend'.*a multiple of key heads"):
        forward(decode(proto, Path("model")), inputs)
