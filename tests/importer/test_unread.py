"""Untrained outputs stay in the file unchanged; linear models of ai.onnx.ml."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.errors import ModelError, UnsupportedOpError
from edgetrain.importer import load_onnx

from .models import info, node

onnxruntime = pytest.importorskip("onnxruntime")

R = np.random.default_rng(0).standard_normal
X = np.random.default_rng(1).standard_normal((6, 4)).astype("f")
CLASSES = np.array([0, 1, 2, 2, 1, 0], np.int32)
INT = TensorProto.INT64


def ml(op, inputs, outputs, **attrs):
    made = helper.make_node(op, inputs.split(), outputs.split(), domain="ai.onnx.ml", **attrs)
    return made


def save(path, nodes, outputs, initializers=(), inputs=None, opset=17):
    graph = helper.make_graph(
        nodes, "g", inputs or [info("x", "N", 4)], outputs, list(initializers)
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=9)
    path.write_bytes(proto.SerializeToString())
    return path


def run(path, x=X):
    session = onnxruntime.InferenceSession(path)
    found = session.run(None, {session.get_inputs()[0].name: x})
    return dict(zip([o.name for o in session.get_outputs()], found, strict=True))


def array(name, values, kind="f"):
    return numpy_helper.from_array(np.asarray(values, kind), name)


LABEL = helper.make_tensor_value_info("label", INT, None)
STRINGS = helper.make_tensor("classes", TensorProto.STRING, [3], [b"a", b"b", b"c"])
BRANCHES = {
    "NonZero": ([node("NonZero", "y", "label")], [], LABEL),
    "ArrayFeatureExtractor": (
        [node("ArgMax", "y", "k", axis=1, keepdims=0), ml("ArrayFeatureExtractor", "c k", "label")],
        [array("c", [10, 20, 30], np.int64)],
        LABEL,
    ),
    "labels that are strings": (
        [
            node("ArgMax", "y", "k", axis=1, keepdims=0),
            ml("ArrayFeatureExtractor", "classes k", "label"),
        ],
        [STRINGS],
        helper.make_tensor_value_info("label", TensorProto.STRING, None),
    ),
    "weights of its own": (
        [node("MatMul", "y other", "o"), node("NonZero", "o", "label")],
        [array("other", R((3, 3)))],
        LABEL,
    ),
    "floats behind it": (
        [node("NonZero", "y", "n"), node("Cast", "n", "label", to=1)],
        [],
        helper.make_tensor_value_info("label", TensorProto.FLOAT, None),
    ),
}


@pytest.mark.parametrize("first", ["y", "label"])
@pytest.mark.parametrize("branch", BRANCHES)
def test_branch_that_is_not_trained_is_carried_unchanged(branch, first, tmp_path):
    nodes, more, label = BRANCHES[branch]
    y = info("y", "N", 3)
    path = save(
        tmp_path / "m.onnx",
        [node("MatMul", "x w", "y"), *nodes],
        [y, label] if first == "y" else [label, y],
        [array("w", R((4, 3))), *more],
    )
    program = et.compile(path, minibatch=6)
    trainer = et.Trainer(program)
    assert {*trainer.parameters} == {"w"}
    before = np.array(trainer.parameters["w"])
    trainer.step(X, CLASSES)
    weights = np.array(trainer.parameters["w"])
    assert not np.array_equal(weights, before)
    out = trainer.export_onnx(tmp_path / "out.onnx")
    # The same file with the trained weights inserted by hand.
    proto = onnx.load(path)
    for one in proto.graph.initializer:
        if one.name == "w":
            one.CopyFrom(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "hand.onnx")
    expected = run(tmp_path / "hand.onnx")
    found = run(out)
    assert [*found] == [*expected]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    np.testing.assert_allclose(et.forward(path, {"x": X})["y"], run(path)["y"], rtol=1e-5)
    et.api.verify(program)


def test_unread_op_that_is_chosen_is_refused_by_name(tmp_path):
    nodes = [node("MatMul", "x w", "y"), node("NonZero", "y", "label")]
    path = save(tmp_path / "m.onnx", nodes, [info("y", "N", 3), LABEL], [array("w", R((4, 3)))])
    with pytest.raises(UnsupportedOpError, match="NonZero"):
        et.compile(path, output="label")


def test_several_outputs_behind_one_that_cannot_be_trained_are_named(tmp_path):
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("NonZero", "a", "label")]
    outputs = [LABEL, info("a", "N", 3), info("b", "N", 3)]
    path = save(tmp_path / "m.onnx", nodes, outputs, [array("w", R((4, 3)))])
    with pytest.raises(ModelError, match=r"a, b.*--output"):
        et.compile(path)
    et.compile(path, output="b")


W, B = R((3, 4)).astype("f"), R(3).astype("f")
PARTS = {"coefficients": W.ravel().tolist(), "intercepts": B.tolist()}
SCALER = ml("Scaler", "x", "s", offset=[0.1, 0.2, 0.3, 0.4], scale=[2.0, 1.0, 0.5, 1.5])
AFTER = {
    "nothing": ([], "p", None),
    "Normalizer": ([ml("Normalizer", "p", "q", norm="L1")], "q", None),
    "ZipMap": (
        [
            ml("Normalizer", "p", "q", norm="L1"),
            ml("ZipMap", "q", "z", classlabels_int64s=[3, 5, 9]),
        ],
        "z",
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(INT, helper.make_tensor_type_proto(1, []))
        ),
    ),
}
_F = torch.nn.functional
POSTS = {
    "SOFTMAX": lambda z: z,
    "LOGISTIC": lambda z: _F.logsigmoid(z),  # normalised to a sum of 1: a softmax of the logarithm
}


def _classifier(path, post, after, scaled):
    more, name, kind = AFTER[after]
    output = info(name, "N", 3) if kind is None else helper.make_value_info(name, kind)
    nodes = [SCALER] if scaled else []
    nodes.append(
        ml(
            "LinearClassifier", "s" if scaled else "x", "label p",
            classlabels_ints=[3, 5, 9], post_transform=post, multi_class=1, **PARTS,
        )
    )  # fmt: skip
    outputs = [helper.make_tensor_value_info("label", INT, ["N"]), output]
    return save(path, [*nodes, *more], outputs), name


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("post", ["SOFTMAX", "LOGISTIC", "NONE"])
def test_linear_classifier_trains_as_torch_and_keeps_its_form(post, after, scaled, tmp_path):
    if post == "NONE" and after != "nothing":
        pytest.skip("scores are not normalised")
    path, name = _classifier(tmp_path / "m.onnx", post, after, scaled)
    found = run(path)[name]
    found = np.array([[row[k] for k in (3, 5, 9)] for row in found]) if after == "ZipMap" else found
    np.testing.assert_allclose(et.forward(path, {"x": X})[name], found, rtol=1e-5, atol=1e-6)
    bce = post == "LOGISTIC" and after == "nothing"
    loss = "bce_with_logits" if bce else "cross_entropy"
    y = np.eye(3, dtype="f")[CLASSES] if bce else CLASSES
    value, grads = et.loss_and_gradients(path, {"x": X}, y, loss=loss)
    w, b = torch.tensor(W, requires_grad=True), torch.tensor(B, requires_grad=True)
    x = torch.tensor(X)
    if scaled:
        x = (x - torch.tensor([0.1, 0.2, 0.3, 0.4])) * torch.tensor([2.0, 1.0, 0.5, 1.5])
    z = x @ w.T + b
    if bce:
        expected = _F.binary_cross_entropy_with_logits(z, torch.tensor(y))
    else:
        logits = POSTS[post](z) if post != "NONE" else z
        expected = _F.cross_entropy(logits, torch.tensor(y).long())
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    assert {k.rpartition(".")[2] for k in grads} == {"coefficients", "intercepts"}
    for key, grad in grads.items():
        own = w if key.endswith("coefficients") else b
        np.testing.assert_allclose(grad, own.grad, rtol=1e-4, atol=1e-6)  # order of sums


@pytest.mark.parametrize("after", AFTER)
def test_trained_classifier_has_its_coefficients_in_its_node(after, tmp_path):
    path, _ = _classifier(tmp_path / "m.onnx", "SOFTMAX", after, True)
    program = et.compile(path, minibatch=6, optimizer=et.SGD(lr=0.5))
    trainer = et.Trainer(program)
    for _ in range(3):
        trainer.step(X, CLASSES)
    out = trainer.export_onnx(tmp_path / "out.onnx")
    old, new = onnx.load(path).graph.node, onnx.load(out).graph.node
    assert [n.op_type for n in new] == [n.op_type for n in old]
    labels = run(out)["label"]
    expected = np.array([3, 5, 9])[trainer.predict(X).argmax(1)]
    np.testing.assert_array_equal(labels, expected)
    again = load_onnx(out)
    for name, value in trainer.parameters.items():
        np.testing.assert_array_equal(again.initializers[name], value)
    et.api.verify(program)


def test_linear_regressor_trains(tmp_path):
    nodes = [ml("LinearRegressor", "x", "y", targets=3, **PARTS)]
    path = save(tmp_path / "m.onnx", nodes, [info("y", "N", 3)])
    np.testing.assert_allclose(et.forward(path, {"x": X})["y"], run(path)["y"], rtol=1e-5)
    trainer = et.Trainer(et.compile(path, loss="mse", minibatch=6))
    losses = [trainer.step(X, R((6, 3)).astype("f") * 0).loss for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    out = trainer.export_onnx(tmp_path / "out.onnx")
    np.testing.assert_allclose(run(out)["y"], trainer.predict(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
def test_normalizer_of_data_equals_onnxruntime(norm, tmp_path):
    nodes = [ml("Normalizer", "x", "n", norm=norm), node("MatMul", "n w", "y")]
    path = save(tmp_path / "m.onnx", nodes, [info("y", "N", 3)], [array("w", R((4, 3)))])
    x = abs(X)
    x[0], x[1, :] = 0, -np.arange(1, x.shape[1] + 1)
    np.testing.assert_allclose(et.forward(path, {"x": x})["y"], run(path, x)["y"], rtol=1e-5)


def test_columns_are_chosen_in_front_of_a_model(tmp_path):
    nodes = [ml("ArrayFeatureExtractor", "x at", "n"), node("MatMul", "n w", "y")]
    more = [array("w", R((2, 3))), array("at", [[0, 2]], np.int64)]
    path = save(tmp_path / "m.onnx", nodes, [info("y", "N", 3)], more)
    np.testing.assert_allclose(et.forward(path, {"x": X})["y"], run(path)["y"], rtol=1e-5)
    et.Trainer(et.compile(path, minibatch=6)).step(X, CLASSES)


def test_classifier_whose_form_no_op_has_is_refused_by_name(tmp_path):
    nodes = [
        ml("LinearClassifier", "x", "label p", classlabels_ints=[3, 5, 9],
           post_transform="PROBIT", **PARTS)
    ]  # fmt: skip
    outputs = [helper.make_tensor_value_info("label", INT, ["N"]), info("p", "N", 3)]
    path = save(tmp_path / "m.onnx", nodes, outputs, [])
    with pytest.raises(ModelError, match="LinearClassifier|no initializers"):
        et.compile(path)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("RandomNormalLike", "x", "r"), node("MatMul", "r w", "y")],
        [node("MatMul", "v w", "y")],
    ],
)
def test_output_that_reads_no_input_is_refused(nodes, tmp_path):
    """Noise and weights only: no data would reach it."""
    weights = [array("w", R((4, 3))), array("v", R((1, 4)))]
    path = save(tmp_path / "net.onnx", nodes, [info("y", None, 3)], weights)
    with pytest.raises(ModelError, match="output 'y' does not depend on any input"):
        et.compile(path, loss="mse", minibatch=4)


SCALERS = {
    "MinMaxScaler": [node("Mul", "x scale", "c"), node("Add", "c shift", "s")],
    "StandardScaler": [node("Sub", "x shift", "c"), node("Div", "c scale", "s")],
    "clipped": [
        node("Mul", "x scale", "c"), node("Add", "c shift", "d"), node("Clip", "d", "s"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("behind", ["", "Identity", "ZipMap"])
def test_binary_classifier_of_a_pipeline_trains_its_network_alone(scaler, behind, tmp_path):
    """Probabilities are [1 - p, p]; the scaler stays unchanged."""
    w, v, b = R((4, 5)).astype("f"), R((5, 1)).astype("f"), R((1, 1)).astype("f")
    scale = np.abs(R((1, 4))).astype("f") + 1
    nodes = [
        *SCALERS[scaler], node("Cast", "s", "cast", to=1), node("MatMul", "cast coef", "a"),
        node("Relu", "a", "h"), node("MatMul", "h coef1", "m"), node("Add", "m intercepts", "z"),
        node("Sigmoid", "z", "p"), node("Sub", "one p", "q"),
        node("Concat", "q p", "both" if behind else "y", axis=1),
        *([node("Identity", "both", "y")] if behind == "Identity" else []),
        *([ml("ZipMap", "both", "y", classlabels_int64s=[0, 1])] if behind == "ZipMap" else []),
    ]  # fmt: skip
    arrays = {"scale": scale, "shift": R((1, 4)), "coef": w, "coef1": v, "intercepts": b, "one": 1}
    out = AFTER["ZipMap"][2] if behind == "ZipMap" else None
    out = helper.make_value_info("y", out) if out is not None else info("y", "N", 2)
    path = save(tmp_path / "m.onnx", nodes, [out], [array(n, a) for n, a in arrays.items()])
    proto = onnx.load(path)
    proto.producer_name = "skl2onnx"
    onnx.save(proto, path)
    found = run(path)["y"]
    found = np.array([[row[k] for k in (0, 1)] for row in found]) if behind == "ZipMap" else found
    np.testing.assert_allclose(et.forward(path, {"x": X})["y"], found, rtol=1e-5, atol=1e-6)
    value, grads = et.loss_and_gradients(path, {"x": X}, CLASSES % 2)
    assert set(grads) == {"coef", "coef1", "intercepts"}
    shift = torch.tensor(np.asarray(arrays["shift"], "f"))
    x = (torch.tensor(X) - shift) / torch.tensor(scale) if scaler == "StandardScaler" else (
        torch.tensor(X) * torch.tensor(scale) + shift
    )  # fmt: skip
    leaves = [torch.tensor(a, requires_grad=True) for a in (w, v, b)]
    z = torch.relu(x @ leaves[0]) @ leaves[1] + leaves[2]
    true = _F.binary_cross_entropy_with_logits(z[:, 0], torch.tensor(CLASSES % 2).float())
    true.backward()
    assert value == pytest.approx(true.item(), rel=1e-5)
    for name, leaf in zip(("coef", "coef1", "intercepts"), leaves, strict=True):
        np.testing.assert_allclose(grads[name], leaf.grad, rtol=1e-4, atol=1e-6)  # order of sums
