"""Quantised graphs that are refused, in a line that says what was found."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.errors import ModelError, UnsupportedOpError
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse

_SCALE, _ZERO = np.float32(0.05), np.uint8(3)


def _proto(nodes, arrays, opset=21, kind=TensorProto.FLOAT):
    """x [batch, 4] through `nodes` to y, as a file."""
    arrays = {"s": _SCALE, "z": _ZERO, "w": np.eye(4, dtype=np.float32)} | arrays
    graph = helper.make_graph(
        [helper.make_node(op, i.split(), o.split(), **attrs) for op, i, o, attrs in nodes],
        "net",
        [helper.make_tensor_value_info("x", kind, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", None])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _model(nodes, arrays, opset=21, kind=TensorProto.FLOAT):
    """Like `_proto`, decoded."""
    proto = _proto(nodes, arrays, opset, kind)
    return decode(parse(proto.SerializeToString(), "net"), Path("net"))


_END = ("MatMul", "h w", "y", {})
_PAIR = [("QuantizeLinear", "x s z", "q", {}), ("DequantizeLinear", "q s z", "h", {}), _END]
_EIGHT = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)

REFUSED = {
    "scale of 0": (_PAIR, {"s": np.float32(0)}, "scale 's'; expected finite numbers above 0"),
    "scale of NaN": (_PAIR, {"s": np.float32("nan")}, "scale 's'; expected finite numbers above 0"),
    "scale below 0": (_PAIR, {"s": np.float32(-1)}, "scale 's'; expected finite numbers above 0"),
    "no scales": (_PAIR, {"s": np.zeros(0, np.float32)}, "scale 's'; expected finite numbers"),
    "zero points": (_PAIR, {"z": np.zeros(3, np.uint8)}, "3 zero points of uint8 for 1 scales"),
    "16 bits": (_PAIR, {"z": np.int16(0)}, "int16; expected uint8 or int8"),
    "another scale": (
        [_PAIR[0], ("DequantizeLinear", "q t z", "h", {}), _END], {"t": np.float32(0.1)},
        "'q' was quantised with another scale or zero point",
    ),
    "scales by channel": (
        [("DequantizeLinear", "v t", "w2", {"axis": 0}), ("MatMul", "x w2", "y", {})],
        {"v": _EIGHT, "t": np.float32([0.1, 0.2, 0.3])},
        "a scale of shape [3] for 'v' of shape [4, 4]; expected one, or one per index of axis 0",
    ),
    "axis": (
        [("DequantizeLinear", "v t", "w2", {"axis": 7}), ("MatMul", "x w2", "y", {})],
        {"v": _EIGHT, "t": np.float32([0.1] * 4)}, "index of axis 7",
    ),
    "4 bits": (
        [("DequantizeLinear", "v s", "w2", {}), ("MatMul", "x w2", "y", {})],
        {"v": helper.make_tensor("v", TensorProto.INT4, [4, 4], [1] * 16)},
        "'v' has type int4; expected int8",
    ),
    "two types": (
        [("QuantizeLinear", "x s z", "q", {"output_dtype": TensorProto.INT8}), _PAIR[1], _END],
        {}, "output_dtype int8, but zero point uint8",
    ),
    "computed scale": (
        [
            ("ReduceMax", "x", "m", {"keepdims": 0}), ("QuantizeLinear", "x m", "q", {}),
            ("DequantizeLinear", "q m", "h", {}), _END,
        ],
        {}, "a scale 'm' is not constant",
    ),
    "arithmetic of integers": (
        [_PAIR[0], ("Cast", "q", "c", {"to": TensorProto.FLOAT}), ("MatMul", "c w", "y", {})],
        {}, "it computes with integers 'q'; expected a DequantizeLinear first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_grid_is_refused_by_name(case: str) -> None:
    nodes, arrays, text = REFUSED[case]
    held = {n: numpy_helper.to_array(a) if hasattr(a, "dims") else a for n, a in arrays.items()}
    with pytest.raises(ModelError) as error:
        _model(nodes, held)
    assert text in str(error.value) and "\n" not in str(error.value)


def test_integers_that_nothing_quantised_are_refused() -> None:
    nodes = [("DequantizeLinear", "x s z", "h", {}), _END]
    model = _model(nodes, {}, kind=TensorProto.UINT8)
    with pytest.raises(ModelError, match="integers 'x'; expected"):
        et.plan(model)


@pytest.mark.parametrize("per", ["tensor", "channel"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integers_that_are_an_output_are_the_files(per, dtype) -> None:
    scale = np.float32(0.02 if per == "tensor" else [0.02, 0.03, 0.01, 0.05])
    zero = np.full(scale.shape, 3, dtype)
    nodes = [("MatMul", "x w", "h", {}), ("QuantizeLinear", "h g o", "y", {"axis": 1})]
    proto = _proto(nodes, {"g": scale, "o": zero})
    proto.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(zero.dtype)
    x = np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    model = decode(parse(proto.SerializeToString(), "net"), Path("net"))
    (found,) = et.forward(model, {"x": x}).values()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.astype(int), expected.astype(int), atol=1)  # sums may tie


def test_other_integer_arithmetic_is_listed_as_unsupported() -> None:
    nodes = [
        _PAIR[0], ("QLinearSigmoid", "q s z s z", "r", {"domain": "com.microsoft"}),
        ("DequantizeLinear", "r s z", "h", {}), _END,
    ]  # fmt: skip
    with pytest.raises(UnsupportedOpError, match="ONNX com.microsoft.QLinearSigmoid"):
        et.plan(_model(nodes, {}))


def test_integers_may_be_moved_between_a_pair() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    moved = [
        _PAIR[0], ("Reshape", "q shape", "r", {}), ("Transpose", "r", "t", {"perm": [0, 2, 1]}),
        ("Reshape", "t flat", "f", {}), ("DequantizeLinear", "f s z", "h", {}), _END,
    ]  # fmt: skip
    shapes = {"shape": np.int64([-1, 2, 2]), "flat": np.int64([-1, 4])}
    found = et.forward(_model(moved, shapes), {"x": x})["y"]
    steps = np.clip(np.rint(x / _SCALE) + _ZERO, 0, 255) - _ZERO
    np.testing.assert_allclose(found, (steps * _SCALE)[:, [0, 2, 1, 3]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int16])
def test_weights_of_integers_are_parameters(dtype) -> None:
    whole = np.arange(16).reshape(4, 4).astype(dtype)
    nodes = [("DequantizeLinear", "v_quantized s", "v2", {}), ("MatMul", "x v2", "y", {})]
    given = {"v_quantized": whole, "w": np.float32(0)}
    if dtype == np.int16:
        with pytest.raises(ModelError, match="int16"):
            _model(nodes, given)
        return
    model = _model(nodes, given)
    (name,) = model.parameters
    np.testing.assert_allclose(model.initializers[name], whole * _SCALE, rtol=1e-6)


_EIGHTS = np.arange(-16, 16, dtype=np.int8).reshape(8, 4)
_STEPS = np.float32([[0.02, 0.04, 0.03, 0.01], [0.05, 0.02, 0.01, 0.03]])
_SECOND = {"t": np.float32(0.04), "u": np.uint8(7), "r": np.float32(0.08), "k": np.uint8(100)}
LIKE_ONNXRUNTIME = {
    "weights in blocks": (
        [
            ("Concat", "x x", "two", {"axis": 1}),
            ("DequantizeLinear", "v t", "w2", {"axis": 0, "block_size": 4}),
            ("MatMul", "two w2", "y", {}),
        ],
        {"v": _EIGHTS, "t": _STEPS},
    ),
    **{
        op: (
            [
                ("QuantizeLinear", "x s z", "a", {}),
                ("QuantizeLinear", "x t u", "b", {}),
                (op, "a s z b t u r k", "q", {"domain": "com.microsoft"}),
                ("DequantizeLinear", "q r k", "h", {}),
                _END,
            ],
            _SECOND,
        )
        for op in ("QLinearAdd", "QLinearMul")
    },
}


@pytest.mark.parametrize("case", LIKE_ONNXRUNTIME)
def test_quantised_arithmetic_is_onnxruntimes(case: str) -> None:
    nodes, arrays = LIKE_ONNXRUNTIME[case]
    x = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(_proto(nodes, arrays).SerializeToString())
    (expected,) = session.run(None, {"x": x})
    (found,) = et.forward(_model(nodes, arrays), {"x": x}).values()
    # A sum halfway between two steps may round either way.
    assert np.mean(np.abs(found - expected) > 1e-5) < 0.1
    np.testing.assert_allclose(found, expected, atol=0.0801 if case.startswith("Q") else 1e-5)


_STEP, _POINT = np.float32(0.05), np.int8(3)
MOVED = {
    "Identity": [("Identity", "v", "q", {})],
    "Transpose": [("Transpose", "v", "q", {"perm": [1, 0]})],
    "Reshape": [("Reshape", "v r", "p", {}), ("Reshape", "p q4", "q", {})],
    "Slice": [("Slice", "long b e", "q", {})],
    "Split": [("Split", "long", "p q", {"num_outputs": 2})],
    "Unsqueeze": [("Unsqueeze", "v b", "p", {}), ("Squeeze", "p b", "q", {})],
    "Gather": [("Gather", "long i", "q", {})],
    "GatherND": [("GatherND", "long rows", "q", {})],
    "GatherElements": [("GatherElements", "long each", "q", {})],
    "ReverseSequence": [("ReverseSequence", "v lengths", "q", {})],
    "Cast": [("Cast", "v", "q", {"to": TensorProto.INT8})],
    "other values": [("Concat", "v v", "p", {"axis": 0}), ("Slice", "p b e", "q", {})],
}  # fmt: skip


def _moved(moves, scale, axis: int = 1) -> onnx.ModelProto:
    """A product with integers that are moved before they become floats."""
    arrays = {
        "v": _EIGHT, "long": np.concatenate([_EIGHT, _EIGHT + 1]), "g": np.float32(scale),
        "o": np.full(np.shape(scale), _POINT), "r": np.int64([2, 8]), "q4": np.int64([4, 4]),
        "b": np.int64([0]), "e": np.int64([4]), "i": np.int64([3, 1, 0, 0]),
        "rows": np.int64([[3], [5], [0], [0]]), "each": np.arange(16).reshape(4, 4) % 8,
        "lengths": np.int64([1, 2, 3, 4]),
    }  # fmt: skip
    end = [("DequantizeLinear", "q g o", "h", {"axis": axis}), ("MatMul", "x h", "y", {})]
    return _proto([*moves, *end], arrays)


def _run(proto: onnx.ModelProto | str, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = proto if isinstance(proto, str) else proto.SerializeToString()
    return onnxruntime.InferenceSession(given, options).run(["y"], {"x": x})[0]


def _trained(proto: onnx.ModelProto, place) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(prediction, that of the trained file in onnxruntime, parameters) after two steps."""
    x, target = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    program = et.compile(proto, minibatch=3, loss="mse", optimizer=et.SGD(lr=0.5))
    with et.Trainer(program, data={"x": x, "y": target}) as trainer:
        trainer.fit(epochs=2)
        found = trainer.predict(x)
        trainer.export_onnx(place / "trained.onnx")
        names = [slot.name for slot in program.lasting if slot.role == "parameter"]
    return found, _run(str(place / "trained.onnx"), x), names


@pytest.mark.parametrize("case", MOVED)
def test_integers_of_the_file_may_be_moved_before_they_are_floats(case: str, tmp_path) -> None:
    proto = _moved(MOVED[case], _STEP)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(et.forward(proto, {"x": x})["y"], _run(proto, x), rtol=1e-5)
    model = et.load_onnx(proto)
    if case == "other values":
        assert not model.parameters and "'h'" not in str(model.warnings)
        assert "its integers 'q' are computed from 'v', so they are not trained" in str(
            model.warnings
        )
        return
    found, stored, names = _trained(proto, tmp_path)
    assert len(names) == 1
    np.testing.assert_allclose(found, stored, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("case", ["Identity", "Transpose", "Cast", "Reshape"])
def test_scales_per_channel_follow_moves_or_are_refused(case: str, axis: int, tmp_path) -> None:
    proto = _moved(MOVED[case], [0.02, 0.03, 0.01, 0.05], axis)
    if case == "Reshape":
        with pytest.raises(ModelError, match="'q' are moved by Reshape and have one scale per"):
            et.load_onnx(proto)
        return
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(et.forward(proto, {"x": x})["y"], _run(proto, x), rtol=1e-5)
    found, stored, _ = _trained(proto, tmp_path)
    np.testing.assert_allclose(found, stored, rtol=1e-5, atol=1e-6)


def _branches(then: list, other: list, arrays, condition: str = "c") -> onnx.ModelProto:
    """y of two branches; a branch is (nodes, its own arrays, its output)."""
    graphs = [
        helper.make_graph(
            [helper.make_node(op, i.split(), o.split(), **attrs) for op, i, o, attrs in nodes],
            "branch",
            [],
            [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(a, n) for n, a in own.items()],
        )
        for nodes, own, out in (then, other)
    ]
    size = [
        ("Shape", "x", "sizes", {}), ("Gather", "sizes one", "n", {}), ("Equal", "n four", "d", {}),
    ]  # fmt: skip
    end = ("If", condition, "y", dict(zip(("then_branch", "else_branch"), graphs, strict=True)))
    fixed = {"one": np.int64(1), "four": np.int64(4)}
    return _proto([*size, end], {"c": np.array(True), **fixed, **arrays})


_QUANTISED = [
    ("QuantizeLinear", "x s z", "q", {}), ("DequantizeLinear", "q s z", "h", {}),
    ("DequantizeLinear", "v g o", "k", {}), ("MatMul", "h k", "t", {}),
]  # fmt: skip
_FLOATS = [("MatMul", "x k", "h", {}), ("Relu", "h", "t", {})]


@pytest.mark.parametrize("condition", ["c", "d"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_branches_are_quantised_and_trained_like_the_graph(condition, turned, own, tmp_path):
    arrays = {"g": _STEP, "o": _POINT}
    weights = {"v": _EIGHT}, {"k": np.eye(4, dtype=np.float32) + np.float32(0.1)}
    parts = [
        (_QUANTISED, weights[0] if own else {}, "t"), (_FLOATS, weights[1] if own else {}, "t"),
    ]  # fmt: skip
    outer = {} if own else {"v": weights[0]["v"], "k2": weights[1]["k"]}
    if not own:
        parts[1] = [("MatMul", "x k2", "h", {}), ("Relu", "h", "t", {})], {}, "t"
    proto = _branches(*(parts[::-1] if turned else parts), arrays | outer, condition)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(et.forward(proto, {"x": x})["y"], _run(proto, x), rtol=1e-5)
    found, stored, names = _trained(proto, tmp_path)
    assert len(names) == 1
    np.testing.assert_allclose(found, stored, rtol=1e-5, atol=1e-6)


def test_branches_whose_integers_differ_are_refused() -> None:
    pair = [([("QuantizeLinear", f"x {s} z", "q", {})], {}, "q") for s in "sg"]
    proto = _branches(*pair, {"g": np.float32(0.1)})
    with pytest.raises(ModelError, match="'y' has integers that its branches quantise differently"):
        decode(parse(proto.SerializeToString(), "net"), Path("net"))
