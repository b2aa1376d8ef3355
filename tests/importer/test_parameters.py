"""Which tensors are trained: by metadata, otherwise by the operands that initializers feed."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from edgetrain.importer import load_onnx

from .models import info, model, node, tensor

SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"


@pytest.fixture
def load(tmp_path):
    def loaded(proto):
        path = tmp_path / "m.onnx"
        path.write_bytes(proto.SerializeToString())
        return load_onnx(path)

    return loaded


def test_classify_follows_metadata(load):
    nodes = [node("Gemm", "x w b", "h"), node("Add", "h shift", "y")]
    initializers = [tensor("w", 4, 3), tensor("b", 3), tensor("shift", 3)]
    meta = {"edgetrain.parameters": ["w"], "edgetrain.buffers": ["b"]}
    found = load(model(nodes, initializers, meta=meta))
    assert (found.parameters, found.buffers, found.warnings) == (("w",), (), ())


def test_classify_reads_the_signature_of_torch(load):
    nodes = [node("Gemm", "x w -", "h"), node("Mul", "h s", "g"), node("Add", "g k", "y")]
    initializers = [tensor("w", 4, 3), tensor("s", 3), tensor("k", 3)]
    signature = (
        "\n# inputs\np_w: PARAMETER target='w'\np_s: PARAMETER target='s'\n"
        "b_k: BUFFER target='k' persistent=True\nx: USER_INPUT\n"
    )
    assert load(model(nodes, initializers, meta={SIGNATURE: signature})).parameters == ("w", "s")


def test_classify_warns_of_parameters_that_are_gone(load):
    nodes = [node("Gemm", "x w b", "y")]
    meta = {"edgetrain.parameters": ["w", "b", "bn.weight"]}
    found = load(model(nodes, [tensor("w", 4, 3), tensor("b", 3)], meta=meta))
    assert found.parameters == ("w", "b")
    assert "1 parameter of" in found.warnings[0] and "bn.weight" in found.warnings[0]


@pytest.mark.parametrize("text", ["{", "3", '{"a": 1}', "[" * 100_000, "null"])
def test_classify_falls_back_to_slots_when_metadata_is_damaged(load, text):
    nodes = [node("Gemm", "x w b", "y")]
    initializers = [tensor("w", 4, 3), tensor("b", 3)]
    proto = model(nodes, initializers, meta={"edgetrain.parameters": text})
    assert load(proto).parameters == ("w", "b")


def test_classify_by_slots_tells_weights_from_numbers(load):
    half = numpy_helper.from_array(np.float32(0.5), "half")
    nodes = [
        node("MatMul", "x w", "a"),
        node("Add", "a bias", "b"),
        node("Mul", "b half", "c"),
        node("Div", "c scale", "d"),
        node("BatchNormalization", "d gamma beta mean var", "y"),
    ]
    names = ("bias", "scale", "gamma", "beta", "mean", "var")
    found = load(model(nodes, [tensor("w", 4, 3), half, *(tensor(n, 3) for n in names)]))
    assert set(found.parameters) == {"w", "bias", "gamma", "beta"}
    assert found.buffers == ("mean", "var")


def test_classify_by_slots_follows_a_transposed_weight(load):
    nodes = [node("Transpose", "w", "wt"), node("MatMul", "x wt", "y")]
    assert load(model(nodes, [tensor("w", 3, 4)])).parameters == ("w",)


def test_classify_keeps_aliases_of_tied_parameters(load):
    nodes = [node("MatMul", "x w", "h"), node("MatMul", "h w", "y")]
    meta = {"edgetrain.parameters": ["w"], "edgetrain.tied": {"head.weight": "w"}}
    found = load(model(nodes, [tensor("w", 4, 4)], meta=meta))
    assert dict(found.aliases) == {"head.weight": "w"}


def test_classify_ignores_integers_in_metadata(load):
    nodes = [node("Gather", "w i", "h"), node("MatMul", "x h", "y")]
    ids = numpy_helper.from_array(np.arange(4), "i")
    meta = {"edgetrain.parameters": ["w", "i"]}
    assert load(model(nodes, [tensor("w", 5, 4), ids], meta=meta)).parameters == ("w",)


def test_load_widens_half_and_bfloat16_weights(load):
    weight = numpy_helper.from_array(np.arange(16, dtype=np.float16).reshape(4, 4), "w")
    bfloat = TensorProto(name="b", dims=[4], data_type=TensorProto.BFLOAT16)
    bfloat.raw_data = np.full(4, 0x3F80, np.uint16).tobytes()
    nodes = [
        node("Cast", "w", "w32", to=TensorProto.FLOAT),
        node("Cast", "b", "b32", to=TensorProto.FLOAT),
        node("Gemm", "x w32 b32", "y"),
    ]
    found = load(model(nodes, [weight, bfloat]))
    assert set(found.parameters) == {"w", "b"}
    np.testing.assert_array_equal(found.initializers["b"], np.ones(4, np.float32))


def test_weightless_keeps_constants_and_drops_weights(load):
    nodes = [node("Gemm", "x w -", "h"), node("Sub", "h shift", "y")]
    found = load(model(nodes, [tensor("w", 4, 30), tensor("shift", 30)]))
    left = {
        t.name: len(t.raw_data)
        for t in onnx.ModelProto.FromString(found.weightless).graph.initializer
    }
    assert left == {"w": 0, "shift": 120}


def test_inputs_keep_their_types_and_dimensions(load):
    inputs = [
        info("ids", "batch", "T", kind=TensorProto.INT64),
        info("mask", 1, 7, kind=TensorProto.BOOL),
        info("x", None, 3),
    ]
    nodes = [
        node("Gather", "w ids", "g"), node("Cast", "mask", "m", to=1),
        node("Unsqueeze", "x one", "u"), node("Add", "g u", "y"),
    ]  # fmt: skip
    one = numpy_helper.from_array(np.array([1]), "one")
    outputs = [info("y", "batch", "T", 3), info("m", 1, 7)]
    found = load(model(nodes, [tensor("w", 5, 3), one], inputs, outputs))
    assert [(s.name, s.dims, s.dtype) for s in found.inputs] == [
        ("ids", ("batch", "T"), "int"), ("mask", (1, 7), "bool"), ("x", (None, 3), "float"),
    ]  # fmt: skip
    assert found.outputs == ("y", "m")
