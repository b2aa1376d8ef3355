"""Softmax and Sigmoid as exporters write them out, and what may follow before a loss."""

import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import edgetrain as et
from edgetrain.exporters.reference import reference
from edgetrain.importer import load_onnx
from tests.importer.models import info, node

onnxruntime = pytest.importorskip("onnxruntime")

C = 5
INTS = {"ax": [-1], "one_ax": [1], "last": [2], "spread": [-1, C]}
MATRICES = {"column": np.ones((C, 1)), "row": np.ones((1, C)), "square": np.ones((C, C))}
MATRICES |= {"vector": np.ones(C), "minus_column": -np.ones((C, 1))}
FLOATS = {
    "size": float(C),
    "one": 1.0,
    "low": -np.inf,
    "minus": -1.0,
    "nought": 0.0,
    "half": 0.5,
    "two": 2.0,
}


def _save(path, nodes, opset=18, x=("N", 4), y=("N", C), ints=(), weights=True):
    """Save a net with z = x @ w + b followed by these nodes, which compute y."""
    r = np.random.default_rng(0).standard_normal
    arrays = {"w": r((4, C)).astype("f"), "b": r(C).astype("f")} if weights else {}
    arrays |= {name: np.float32(v) for name, v in FLOATS.items()}
    arrays |= {name: np.asarray(v, np.float32) for name, v in MATRICES.items()}
    arrays |= {name: np.array(v, np.int64) for name, v in {**INTS, **dict(ints)}.items()}
    first = [node("MatMul", "x w", "p"), node("Add", "p b", "z")] if weights else []
    parts = [*first, *nodes]
    used = {name for part in parts for name in part.input}
    kept = [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items() if n in used]
    graph = helper.make_graph(parts, "g", [info("x", *x)], [info("y", *y)], kept)
    imports = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


_MAX = [node("ReduceMax", "z ax", "m"), node("Sub", "z m", "s"), node("Exp", "s", "e")]
_SUM = node("ReduceSum", "e ax", "t")
SOFTMAXES = {
    "plain": [node("Exp", "z", "e"), _SUM, node("Div", "e t", "y")],
    "maximum": [*_MAX, _SUM, node("Div", "e t", "y")],
    "reciprocal": [*_MAX, _SUM, node("Reciprocal", "t", "o"), node("Mul", "e o", "y")],
    "reciprocal first": [*_MAX, _SUM, node("Reciprocal", "t", "o"), node("Mul", "o e", "y")],
    "power": [*_MAX, _SUM, node("Pow", "t minus", "o"), node("Mul", "e o", "y")],
    "quotient of one": [*_MAX, _SUM, node("Div", "one t", "o"), node("Mul", "e o", "y")],
    "jax": [
        node("ReduceMax", "z ax", "m0", keepdims=0),
        node("Max", "low m0", "m1"),
        node("Unsqueeze", "m1 one_ax", "m"),
        node("Sub", "z m", "s"),
        node("Exp", "s", "e"),
        node("ReduceSum", "e one_ax", "t0", keepdims=0),
        node("Unsqueeze", "t0 one_ax", "t1"),
        node("Expand", "t1 spread_to", "t"),
        node("Div", "e t", "y"),
    ],
    "negated": [
        node("ReduceMax", "z ax", "m"),
        node("Neg", "m", "n"),
        node("Add", "z n", "s"),
        node("Exp", "s", "e"),
        _SUM,
        node("Div", "e t", "y"),
    ],
    "product with ones": [*_MAX, node("MatMul", "e column", "t"), node("Div", "e t", "y")],
    "product with a square of ones": [
        node("Exp", "z", "e"),
        node("MatMul", "e square", "t"),
        node("Div", "e t", "y"),
    ],
    "product with a vector of ones": [
        *_MAX,
        node("MatMul", "e vector", "t0"),
        node("Unsqueeze", "t0 one_ax", "t"),
        node("Reciprocal", "t", "o"),
        node("Mul", "e o", "y"),
    ],
    "Gemm with ones": [*_MAX, node("Gemm", "e row", "t", transB=1), node("Div", "e t", "y")],
    "Einsum with ones": [
        *_MAX,
        node("Einsum", "e column", "t", equation="ij,jk->ik"),
        node("Div", "e t", "y"),
    ],
    "mean times the number": [
        *_MAX,
        node("ReduceMean", "e ax", "a"),
        node("Mul", "size a", "t"),
        node("Div", "e t", "y"),
    ],
    "exp of log": [
        node("ReduceLogSumExp", "z ax", "l"),
        node("Sub", "z l", "q"),
        node("Exp", "q", "y"),
    ],
}
LOGS = {
    "log of softmax": [node("Softmax", "z", "q"), node("Log", "q", "y")],
    "log of division": [*_MAX, _SUM, node("Div", "e t", "q"), node("Log", "q", "y")],
    "less the log of a sum": [*_MAX, _SUM, node("Log", "t", "l"), node("Sub", "s l", "y")],
    "logsumexp": [node("ReduceLogSumExp", "z ax", "l"), node("Sub", "z l", "y")],
    "logsum": [node("Exp", "z", "e"), node("ReduceLogSum", "e ax", "l"), node("Sub", "z l", "y")],
    "log of a product with ones": [
        *_MAX,
        node("MatMul", "e column", "t"),
        node("Log", "t", "l"),
        node("Sub", "s l", "y"),
    ],
    "logsumexp with a maximum": [
        *_MAX,
        _SUM,
        node("Log", "t", "l"),
        node("Add", "l m", "k"),
        node("Sub", "z k", "y"),
    ],
}
SIGMOIDS = {
    "one over": [
        node("Neg", "z", "n"),
        node("Exp", "n", "e"),
        node("Add", "e one", "t"),
        node("Div", "one t", "y"),
    ],
    "reciprocal": [
        node("Mul", "z minus", "n"),
        node("Exp", "n", "e"),
        node("Add", "one e", "t"),
        node("Reciprocal", "t", "y"),
    ],
    "power": [
        node("Sub", "nought z", "n"),
        node("Exp", "n", "e"),
        node("Add", "one e", "t"),
        node("Pow", "t minus", "y"),
    ],
    "of e": [node("Exp", "z", "e"), node("Add", "e one", "t"), node("Div", "e t", "y")],
    "tanh": [
        node("Mul", "z half", "n"),
        node("Tanh", "n", "h"),
        node("Mul", "h half", "k"),
        node("Add", "k half", "y"),
    ],
}
BEHIND = {
    "nothing": [],
    "Identity": [node("Identity", "q", "y")],
    "Cast": [node("Cast", "q", "c", to=10), node("Cast", "c", "y", to=1)],
    "Reshape": [node("Reshape", "q wide", "c"), node("Reshape", "c flat", "y")],
    "Squeeze": [node("Unsqueeze", "q last", "c"), node("Squeeze", "c last", "y")],
    "Flatten": [node("Unsqueeze", "q last", "c"), node("Flatten", "c", "y")],
    "Transpose": [
        node("Unsqueeze", "q last", "c"),
        node("Transpose", "c", "d", perm=[0, 2, 1]),
        node("Flatten", "d", "y"),
    ],
    "two transposes": [
        node("Transpose", "q", "c"),
        node("Identity", "c", "d"),
        node("Transpose", "d", "y"),
    ],
    "Dropout": [node("Dropout", "q", "y")],
    "Clip": [node("Clip", "q tiny most", "y")],
}
X = np.random.default_rng(1).standard_normal((6, 4)).astype("f")
CLASSES = np.array([0, 1, 2, 3, 4, 0], np.int32)


def _torch(loss, target):
    """Return torch's loss and gradients for x @ w + b."""
    r = np.random.default_rng(0).standard_normal
    w, b = (torch.tensor(r(s).astype("f"), requires_grad=True) for s in ((4, C), (C,)))
    value = loss(torch.tensor(X) @ w + b, torch.tensor(target))
    value.backward()
    return value.item(), {"w": w.grad.numpy(), "b": b.grad.numpy()}


def _agree(path, name, target, expected):
    value, grads = et.loss_and_gradients(path, {"x": X}, target, loss=name, dropout=True)
    assert value == pytest.approx(expected[0], rel=1e-5)
    for key, grad in expected[1].items():
        np.testing.assert_allclose(grads[key], grad, rtol=1e-4, atol=1e-6)  # order of sums


def _ops(path):
    from edgetrain.compiler.bind import bind

    return {n.op for n in bind(load_onnx(path), 6).graph.nodes}


@pytest.mark.parametrize("form", [*SOFTMAXES, *LOGS])
def test_softmax_spelled_out_is_one_node_that_cross_entropy_absorbs(form, tmp_path):
    nodes = {**SOFTMAXES, **LOGS}[form]
    ints = {"spread_to": [6, C]} if form == "jax" else {}
    path = _save(tmp_path / "m.onnx", nodes, ints=ints, x=(6 if form == "jax" else "N", 4))
    op = "log_softmax" if form in LOGS else "softmax"
    assert _ops(path) - {"view"} == {"matmul", "add", op}
    expected = _torch(torch.nn.functional.cross_entropy, CLASSES.astype(np.int64))
    _agree(path, "cross_entropy", CLASSES, expected)
    found = reference(load_onnx(path), {"x": X}, CLASSES)
    assert found.loss == pytest.approx(expected[0], rel=1e-5)


@pytest.mark.parametrize("form", [*SOFTMAXES, *LOGS, *SIGMOIDS])
def test_function_spelled_out_gives_what_onnxruntime_gives(form, tmp_path):
    nodes = {**SOFTMAXES, **LOGS, **SIGMOIDS}[form]
    ints = {"spread_to": [6, C]} if form == "jax" else {}
    path = _save(tmp_path / "m.onnx", nodes, ints=ints, x=(6 if form == "jax" else "N", 4))
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    np.testing.assert_allclose(et.forward(path, {"x": X})["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", SIGMOIDS)
def test_sigmoid_spelled_out_is_one_node_that_bce_absorbs(form, tmp_path):
    path = _save(tmp_path / "m.onnx", SIGMOIDS[form])
    assert _ops(path) == {"matmul", "add", "sigmoid"}
    target = np.random.default_rng(2).random((6, C)).astype("f")
    expected = _torch(torch.nn.functional.binary_cross_entropy_with_logits, target)
    _agree(path, "bce_with_logits", target, expected)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("axis", [1, 2, -1, -2, -3])
def test_softmax_over_any_axis_is_recognised_in_every_opset(axis, opset, keepdims, tmp_path):
    where = {"keepdims": keepdims}
    given = {"axis": [axis]}
    top, total = ("m", "t") if keepdims else ("m0", "t0")
    tops = ["z axis", {}] if opset >= 18 else ["z", {"axes": [axis]}]
    totals = ["e axis", {}] if opset >= 13 else ["e", {"axes": [axis]}]

    def back(a, b):
        if keepdims:
            return []
        if opset >= 13:
            return [node("Unsqueeze", f"{a} axis", b)]
        return [node("Unsqueeze", a, b, axes=[axis])]

    nodes = [
        node("ReduceMax", tops[0], top, **tops[1], **where),
        *back("m0", "m"),
        node("Sub", "z m", "s"),
        node("Exp", "s", "e"),
        node("ReduceSum", totals[0], total, **totals[1], **where),
        *back("t0", "t"),
        node("Div", "e t", "y"),
    ]
    nodes = [node("Mul", "x w", "z"), *nodes]
    w = numpy_helper.from_array(np.linspace(0.5, 1.5, 5 * 5, dtype="f").reshape(5, 5), "w")
    constants = [w, numpy_helper.from_array(np.array(given["axis"]), "axis")]
    graph = helper.make_graph(nodes, "g", [info("x", 5, 5, 5)], [info("y", 5, 5, 5)], constants)
    path = tmp_path / "m.onnx"
    imports = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    from edgetrain.compiler.bind import bind

    made = [n for n in bind(load_onnx(path), 5).graph.nodes if n.op != "view"]
    assert [(n.op, n.attrs.get("axis")) for n in made[1:]] == [("softmax", axis % 3)]
    x = np.random.default_rng(3).standard_normal((5, 5, 5)).astype("f")
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(et.forward(path, {"x": x})["y"], expected, rtol=1e-5, atol=1e-6)


def test_quotient_by_a_sum_that_lies_along_another_axis_stays_arithmetic(tmp_path):
    nodes = [
        node("Exp", "z", "e"),
        node("ReduceSum", "e one_ax", "t", keepdims=0),
        node("Div", "e t", "y"),
    ]
    path = _save(tmp_path / "m.onnx", nodes, x=(C, 4))
    x = X[:C]
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(et.forward(path, {"x": x})["y"], expected, rtol=1e-5)


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "spelled", "Sigmoid"])
def test_loss_absorbs_what_has_something_harmless_behind_it(kind, behind, tmp_path):
    spelled = [*_MAX, _SUM, node("Div", "e t", "q")]
    nodes = spelled if kind == "spelled" else [node(kind, "z", "q")]
    nodes = [*nodes, *(BEHIND[behind] or [node("Identity", "q", "y")])]
    if kind == "LogSoftmax" and behind == "Clip":
        pytest.skip("no guard of logarithms")
    ints = {"wide": [-1, 1, C], "flat": [-1, C]}
    path = _save(tmp_path / "m.onnx", nodes, ints=ints)
    model = onnx.load(path)
    for name, number in (("tiny", 1e-7), ("most", 1 - 1e-7)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    onnx.save(model, path)
    if kind == "Sigmoid":
        target = np.random.default_rng(2).random((6, C)).astype("f")
        expected = _torch(torch.nn.functional.binary_cross_entropy_with_logits, target)
        _agree(path, "bce_with_logits", target, expected)
    else:
        expected = _torch(torch.nn.functional.cross_entropy, CLASSES.astype(np.int64))
        _agree(path, "cross_entropy", CLASSES, expected)


@pytest.mark.parametrize("low", [-2.0, -1.0, 0.0])
@pytest.mark.parametrize("logs", [["LogSoftmax"], ["Softmax", "Log"]], ids=len)
def test_a_clip_of_log_probabilities_is_computed(logs, low, tmp_path):
    names = ["z", "q", "r"][: len(logs) + 1]
    nodes = [node(kind, a, b) for kind, a, b in zip(logs, names, names[1:], strict=False)]
    path = _save(tmp_path / "m.onnx", [*nodes, node("Clip", f"{names[-1]} floor roof", "y")])
    model = onnx.load(path)
    for name, number in (("floor", low), ("roof", 1.0)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    onnx.save(model, path)

    def clipped(x, y):
        return torch.nn.functional.cross_entropy(torch.log_softmax(x, 1).clamp(low), y)

    _agree(path, "cross_entropy", CLASSES, _torch(clipped, CLASSES.astype(np.int64)))


def test_softmax_over_another_axis_than_the_classes_is_not_absorbed(tmp_path):
    nodes = [node("Reshape", "z shape", "c"), node("Softmax", "c", "y", axis=2)]
    path = _save(tmp_path / "m.onnx", nodes, y=("N", C, 1, 1), ints={"shape": [-1, C, 1, 1]})
    target = CLASSES.reshape(6, 1, 1)
    value, _ = et.loss_and_gradients(path, {"x": X}, target)
    assert value == pytest.approx(np.log(C), rel=1e-6)  # a softmax over one element is always 1


def test_exported_model_still_gives_the_files_own_outputs(tmp_path):
    path = _save(tmp_path / "m.onnx", SOFTMAXES["maximum"])
    trainer = et.Trainer(et.compile(path, minibatch=6))
    trainer.step(X, CLASSES)
    out = trainer.export_onnx(tmp_path / "out.onnx")
    assert [n.op_type for n in onnx.load(out).graph.node] == [
        n.op_type for n in onnx.load(path).graph.node
    ]
    (found,) = onnxruntime.InferenceSession(out).run(None, {"x": X})
    logits = torch.tensor(trainer.predict(X))
    np.testing.assert_allclose(found, torch.softmax(logits, 1).numpy(), rtol=1e-5)


# A softmax with powers of two, which nothing recognises.
_UNKNOWN = [node("Pow", "two z", "e"), _SUM, node("Div", "e t", "y")]
_UNKNOWN_SIGMOID = [node("Pow", "two z", "e"), node("Add", "e one", "t"), node("Div", "e t", "y")]


@pytest.mark.parametrize("loss", ["cross_entropy", "bce_with_logits"])
@pytest.mark.parametrize("way", ["step", "fit", "batches", "microbatches"])
def test_trainer_says_once_that_outputs_look_like_probabilities(loss, way, tmp_path):
    classes = loss == "cross_entropy"
    path = _save(tmp_path / "m.onnx", _UNKNOWN if classes else _UNKNOWN_SIGMOID)
    y = CLASSES if classes else np.eye(C, dtype="f")[CLASSES]
    events = []
    micro = {"microbatch": 2} if way == "microbatches" else {}
    program = et.compile(path, loss=loss, minibatch=6, **micro)
    data = {"fit": (X, y), "batches": [(X, y), (X, y)]}.get(way)
    trainer = et.Trainer(program, data, on_event=events.append)
    if data is None:
        losses = [trainer.step(X, y).loss for _ in range(2)]
    else:
        trainer.fit(steps=2)
        losses = [event["loss"] for event in events if event["event"] == "step"]
    said = [event["message"] for event in events if event["event"] == "warning"]
    assert len(losses) == 2
    assert len(said) == 1
    assert loss in said[0]
    assert "probabilities" in said[0]


def test_look_at_outputs_changes_no_bit_and_warns_in_python(tmp_path, monkeypatch):
    program = et.compile(_save(tmp_path / "m.onnx", _UNKNOWN), minibatch=6, microbatch=3)
    trainer = et.Trainer(program)
    with pytest.warns(UserWarning, match="probabilities"):
        trainer.step(X, CLASSES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.step(X, CLASSES)
    monkeypatch.setattr(et.losses.CrossEntropy, "doubt", lambda self, output: "")
    other = et.Trainer(program)
    for _ in range(2):
        other.step(X, CLASSES)
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(value, other.state_dict()[name])


def test_logits_are_not_called_probabilities(tmp_path):
    path = _save(tmp_path / "m.onnx", [node("Identity", "z", "y")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        et.Trainer(et.compile(path, minibatch=6)).step(X, CLASSES)


def test_a_shift_by_something_else_than_the_maximum_stays(tmp_path):
    bounded = [node("Less", "m two", "c"), node("Where", "c two m", "mm")]
    rest = [node("Sub", "z mm", "s"), node("Exp", "s", "e"), _SUM, node("Log", "t", "l")]
    ends = [node("Add", "l m", "n"), node("Sub", "z n", "y")]
    path = _save(tmp_path / "m.onnx", [node("ReduceMax", "z ax", "m"), *bounded, *rest, *ends])
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": X})
    np.testing.assert_allclose(et.forward(path, {"x": X})["y"], expected, rtol=1e-4, atol=1e-5)
