"""Weights in files without parameter names: none stays constant silently."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.cli import main
from edgetrain.importer import load_onnx

from .models import info, node

R = np.random.default_rng(0).standard_normal
X = np.random.default_rng(1).standard_normal((4, 2)).astype("f")
Y = np.random.default_rng(2).standard_normal((4, 1)).astype("f")
ONE = {"one": np.array([1]), "two": np.array([2]), "last": np.array([-1])}


def _save(path, nodes, weights, inputs=None, y=("N", 1), opset=18):
    arrays = {k: np.asarray(v, "f") for k, v in weights.items()} | ONE
    given = inputs or [info("x", "N", 2)]
    initializers = [numpy_helper.from_array(a, k) for k, a in arrays.items()]
    graph = helper.make_graph(nodes, "g", given, [info("y", *y)], initializers)
    imports = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


DENSE = [
    node("MatMul", "x dense/MatMul", "p"),
    node("Add", "p dense/bias", "q"),
    node("Relu", "q", "s"),
    node("MatMul", "s dense_1/MatMul", "u"),
    node("Add", "u dense_1/bias", "y"),
]


@pytest.mark.parametrize("order", ["u dense_1/bias", "dense_1/bias u"])
@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_bias_of_one_number_is_trained(order, shape, tmp_path):
    weights = {"dense/MatMul": R((2, 16)), "dense/bias": R(16)}
    weights |= {"dense_1/MatMul": R((16, 1)), "dense_1/bias": R(shape)}
    nodes = [*DENSE[:-1], node("Add", order, "y")]
    path = _save(tmp_path / "m.onnx", nodes, weights)
    _, grads = et.loss_and_gradients(path, {"x": X}, Y, loss="mse")
    assert {*grads} == {*weights}
    given = {k: torch.tensor(np.asarray(v, "f"), requires_grad=True) for k, v in weights.items()}
    hidden = torch.relu(torch.tensor(X) @ given["dense/MatMul"] + given["dense/bias"])
    out = hidden @ given["dense_1/MatMul"] + given["dense_1/bias"]
    torch.nn.functional.mse_loss(out, torch.tensor(Y)).backward()
    for name, value in given.items():
        np.testing.assert_allclose(grads[name], value.grad, rtol=1e-4, atol=1e-6)  # order of sums


def test_number_that_is_added_to_several_outputs_stays_constant(tmp_path):
    weights = {"fc/MatMul": R((2, 3)), "epsilon": [1e-5]}
    nodes = [node("MatMul", "x fc/MatMul", "p"), node("Add", "p epsilon", "y")]
    assert load_onnx(_save(tmp_path / "m.onnx", nodes, weights, y=("N", 3))).parameters == (
        "fc/MatMul",
    )


@pytest.mark.parametrize("wave", ["Sin", "Cos", "both"])
@pytest.mark.parametrize("scaled", [False, True])
def test_layer_before_a_wave_is_trained(scaled, wave, tmp_path):
    weights = {"net.0.weight": R((16, 2)), "net.0.bias": R(16)}
    width = 32 if wave == "both" else 16
    weights |= {"net.2.weight": R((1, width)), "net.2.bias": R(1)}
    ends = [node("Mul", "q thirty", "t")] if scaled else [node("Identity", "q", "t")]
    waves = [node("Sin", "t", "s"), node("Cos", "t", "c"), node("Concat", "s c", "f", axis=1)]
    ends += waves if wave == "both" else [node(wave, "t", "f")]
    nodes = [
        node("Gemm", "x net.0.weight net.0.bias", "q", transB=1),
        *ends,
        node("Gemm", "f net.2.weight net.2.bias", "y", transB=1),
    ]
    extra = {"thirty": 30.0} if scaled else {}
    path = _save(tmp_path / "m.onnx", nodes, weights | extra)
    _, grads = et.loss_and_gradients(path, {"x": X}, Y, loss="mse")
    assert {*grads} == {*weights}


def test_fourier_features_of_data_are_trained_and_those_of_a_formula_are_not(tmp_path):
    nodes = [
        node("MatMul", "x net.features", "q"),
        node("Sin", "q", "s"),
        node("MatMul", "s net.head", "y"),
    ]
    weights = {"net.features": R((2, 8)), "net.head": R((8, 1))}
    assert load_onnx(_save(tmp_path / "m.onnx", nodes, weights)).parameters == tuple(weights)
    rows = [info("x", "N", 1)]
    weights["net.features"] = 10000 ** (-np.arange(8) / 8)[None]
    found = load_onnx(_save(tmp_path / "m.onnx", nodes, weights, rows))
    assert found.parameters == ("net.head",)


ROTARY = [
    node("MatMul", "p3 rope.inv_freq", "f"),
    node("Concat", "f f", "e", axis=-1),
    node("Cos", "e", "c"),
    node("MatMul", "x net.w", "h"),
    node("Mul", "h c", "r"),
    node("MatMul", "r net.head", "y"),
]
PLACES = {
    "counted": [
        node("Shape", "x", "size"),
        node("Gather", "size at", "n"),
        node("Range", "zero n step", "p0"),
        node("Cast", "p0", "p1", to=1),
        node("Reshape", "p1 column", "p3"),
    ],
    "input": [
        node("Cast", "ids", "p1", to=1),
        node("Add", "p1 offset", "p2"),
        node("Unsqueeze", "p2 last", "p3"),
    ],
    "mask": [
        node("CumSum", "ids at", "p0"),
        node("Sub", "p0 step", "p1"),
        node("Cast", "p1", "p2", to=1),
        node("Unsqueeze", "p2 last", "p3"),
    ],
}


@pytest.mark.parametrize("places", PLACES)
def test_rotary_frequencies_are_not_trained(places, tmp_path):
    weights = {"rope.inv_freq": R((1, 4)), "net.w": R((2, 8)), "net.head": R((8, 1))}
    numbers = {"at": np.array(1), "zero": np.array(0), "step": np.array(1)}
    numbers |= {"column": np.array([-1, 1]), "offset": np.array(2, "f")}
    given = [info("x", "N", 6, 2)]
    if places != "counted":
        given.append(info("ids", "N", 6, kind=TensorProto.INT64))
    path = _save(tmp_path / "m.onnx", [*PLACES[places], *ROTARY], weights, given, ("N", 6, 1))
    proto = onnx.load(path)
    for name, array in numbers.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, path)
    assert load_onnx(path).parameters == ("net.w", "net.head")


RBF = [
    node("Unsqueeze", "x one", "u"),
    node("Sub", "u rbf.centers", "d"),
    node("Mul", "d d", "q"),
    node("ReduceSum", "q last", "s", keepdims=0),
    node("Neg", "s", "m"),
    node("Div", "m rbf.width", "e"),
    node("Exp", "e", "k"),
    node("Gemm", "k out.weight out.bias", "o", transB=1),
]
OPERANDS = {
    "Div": (node("Div", "o temperature", "y"), 1.5),
    "Max": (node("Max", "o knee", "y"), -0.2),
    "Min": (node("Min", "o knee", "y"), 0.3),
    "Pow": (node("Pow", "o2 power", "y"), 1.5),
    "Where": (node("Where", "is o other", "y"), 0.7),
}


@pytest.mark.parametrize("op", OPERANDS)
def test_named_operands_of_a_formula_are_listed_and_trained_on_request(op, tmp_path, capsys):
    last, number = OPERANDS[op]
    name = {"Div": "temperature", "Pow": "power", "Where": "other"}.get(op, "knee")
    between = {
        "Pow": [node("Abs", "o", "o1"), node("Add", "o1 small", "o2")],
        "Where": [node("Greater", "o nought", "is")],
    }
    weights = {"rbf.centers": R((6, 2)), "rbf.width": abs(R(6)) + 1}
    weights |= {"out.weight": R((1, 6)), "out.bias": R(1), name: number}
    extra = {"Pow": {"const_1": 0.1}, "Where": {"const_2": 0.0}}.get(op, {})
    nodes = [*RBF, *between.get(op, []), last]
    for one in nodes:
        for k, read in enumerate(one.input):
            one.input[k] = {"small": "const_1", "nought": "const_2"}.get(read, read)
    path = _save(tmp_path / "m.onnx", nodes, weights | extra)
    assert load_onnx(path).operands.keys() == {"rbf.centers", "rbf.width", name}
    assert main(["plan", str(path), "--loss", "mse"]) == 0
    said = capsys.readouterr().err
    assert all(
        part in said for part in ("rbf.centers (operand of Sub)", f"{name} (operand of {op})")
    )
    train = ["rbf.*", name, "out.*"]
    value, grads = et.loss_and_gradients(path, {"x": X}, Y, loss="mse", train=train)
    assert {*grads} == {*weights}
    from edgetrain.compiler.compilation import Compilation
    from edgetrain.exporters.reference import reference

    options = et.api.make_options(loss="mse", train=train)
    found = reference(Compilation(load_onnx(path), options).prepared.chosen, {"x": X}, Y, "mse")
    assert value == pytest.approx(found.loss, rel=1e-5)
    for key, grad in found.gradients.items():
        np.testing.assert_allclose(grads[key], grad, rtol=1e-3, atol=1e-6)  # order of sums
    main(["plan", str(path), "--loss", "mse", *(f"--train={pattern}" for pattern in train)])
    assert "not trained" not in capsys.readouterr().err


COMPUTED = {
    "Exp": ([node("Exp", "own", "g"), node("Mul", "o g", "y")], 0.4, "Mul"),
    "Sigmoid": ([node("Sigmoid", "own", "g"), node("Mul", "g o", "y")], R(1), "Mul"),
    "Softplus": (
        [node("Softplus", "own", "h"), node("Sqrt", "h", "g"), node("Div", "o g", "y")], 0.2, "Div",
    ),
    "Mul": ([node("Mul", "own own", "g"), node("Add", "o g", "y")], -0.3, "Add"),
}  # fmt: skip


@pytest.mark.parametrize("kind", COMPUTED)
def test_operand_computed_from_a_named_number_is_listed_and_trained_on_request(kind, tmp_path):
    last, number, op = COMPUTED[kind]
    weights = {"out.weight": R((1, 2)), "out.bias": R(1), "own": number}
    nodes = [node("Gemm", "x out.weight out.bias", "o", transB=1), *last]
    path = _save(tmp_path / "m.onnx", nodes, weights)
    assert dict(load_onnx(path).operands) == {"own": op}
    _, grads = et.loss_and_gradients(path, {"x": X}, Y, loss="mse", train_constants=["own"])
    assert {*grads} == {*weights}
    given = {k: torch.tensor(np.asarray(v, "f"), requires_grad=True) for k, v in weights.items()}
    out = torch.tensor(X) @ given["out.weight"].T + given["out.bias"]
    own = given["own"]
    out = {
        "Exp": lambda: out * own.exp(),
        "Sigmoid": lambda: own.sigmoid() * out,
        "Softplus": lambda: out / torch.nn.functional.softplus(own).sqrt(),
        "Mul": lambda: out + own * own,
    }[kind]()
    torch.nn.functional.mse_loss(out, torch.tensor(Y)).backward()
    for name, value in given.items():
        np.testing.assert_allclose(grads[name], value.grad, rtol=1e-4, atol=1e-6)  # order of sums


def test_weight_on_the_left_of_gemm_is_trained(tmp_path):
    weights = {"fc.weight": R((3, 2)), "fc.bias": R((3, 1))}
    nodes = [
        node("Gemm", "fc.weight x fc.bias", "t", transB=1),
        helper.make_node("Transpose", ["t"], ["y"], perm=[1, 0]),
    ]
    path = _save(tmp_path / "m.onnx", nodes, weights, y=("N", 3))
    target = R((4, 3)).astype("f")
    _, grads = et.loss_and_gradients(path, {"x": X}, target, loss="mse")
    given = {k: torch.tensor(np.asarray(v, "f"), requires_grad=True) for k, v in weights.items()}
    out = (given["fc.weight"] @ torch.tensor(X).T + given["fc.bias"]).T
    torch.nn.functional.mse_loss(out, torch.tensor(target)).backward()
    assert {*grads} == {*weights}
    for name, value in given.items():
        np.testing.assert_allclose(grads[name], value.grad, rtol=1e-4, atol=1e-6)  # order of sums


def test_star_trains_no_constant_of_a_formula(tmp_path):
    weights = {"centers": R((6, 2)), "width": abs(R(6)) + 1}
    weights |= {"out.weight": R((1, 6)), "out.bias": R(1)}
    nodes = [helper.make_node("Identity", ["o"], ["y"])]
    for one in RBF:
        copy = onnx.NodeProto()
        copy.CopyFrom(one)
        copy.input[:] = [name.removeprefix("rbf.") for name in one.input]
        nodes.insert(-1, copy)
    path = _save(tmp_path / "m.onnx", nodes, weights)
    program = et.compile(path, loss="mse", minibatch=4, train=["*"])
    assert {*et.Trainer(program).parameters} == {"out.weight", "out.bias"}
    program = et.compile(path, loss="mse", minibatch=4, train=["*", "centers"])
    trainer = et.Trainer(program)
    assert {*trainer.parameters} == {"centers", "out.weight", "out.bias"}
    trainer.step(X, Y)
    out = trainer.export_onnx(tmp_path / "out.onnx")
    moved = {t.name: numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
    np.testing.assert_array_equal(moved["centers"], trainer.parameters["centers"])
    assert not np.array_equal(moved["centers"], weights["centers"].astype("f"))


JOINED = [
    node("Shape", "x", "n", end=1), node("Concat", "n two", "s", axis=0),
    node("Expand", "late s", "c"), node("Concat", "c x", "j", axis=1),
]  # fmt: skip


def _joined(late):
    return lambda x, w: late(torch.cat([w["late"].expand(len(x), 2), x], 1), w)


LATE = {
    "Sum": ([node("Sum", "x x late", "h")], R(2), lambda x, w: x + x + w["late"]),
    "Mean": ([node("Mean", "x late", "h")], R(2), lambda x, w: (x + w["late"]) / 2),
    "Einsum": (
        [node("Einsum", "x mix late", "h", equation="ni,ij,jk->nk")],
        R((2, 2)),
        lambda x, w: x @ w["mix"] @ w["late"],
    ),
    "Relu": ([*JOINED, node("Relu", "j", "h")], R((1, 2)), _joined(lambda j, w: j.relu())),
    "LayerNormalization": (
        [*JOINED, node("LayerNormalization", "j ln.weight ln.bias", "h")],
        R((1, 2)),
        _joined(lambda j, w: torch.layer_norm(j, (4,), w["ln.weight"], w["ln.bias"])),
    ),
}


@pytest.mark.parametrize("op", LATE)
def test_a_weight_is_trained_whatever_op_reads_it_and_in_whatever_place(op, tmp_path):
    nodes, late, meaning = LATE[op]
    width = 4 if "j" in nodes[-1].input else 2
    weights = {"out.weight": R((1, width)), "out.bias": R(1), "late": late}
    more = {"mix": (2, 2), "ln.weight": 4, "ln.bias": 4}
    weights |= {name: R(shape) for name, shape in more.items() if name in nodes[-1].input}
    nodes = [*nodes, node("Gemm", "h out.weight out.bias", "y", transB=1)]
    path = _save(tmp_path / "m.onnx", nodes, weights)
    _, grads = et.loss_and_gradients(path, {"x": X}, Y, loss="mse")
    assert {*grads} == {*weights}
    given = {k: torch.tensor(np.asarray(v, "f"), requires_grad=True) for k, v in weights.items()}
    out = meaning(torch.tensor(X), given) @ given["out.weight"].T + given["out.bias"]
    torch.nn.functional.mse_loss(out, torch.tensor(Y)).backward()
    for name, value in given.items():
        np.testing.assert_allclose(grads[name], value.grad, rtol=1e-4, atol=1e-6)  # order of sums


# Op -> shape of its weight, other operands, attributes, the op in torch.
MOVED = {
    "DepthToSpace": (
        (1, 4, 2, 2), {}, {"blocksize": 2, "mode": "CRD"},
        lambda w: torch.nn.functional.pixel_shuffle(w, 2),
    ),
    "GatherElements": (
        (2, 2), {"pick": [[0, 1], [1, 0]]}, {},
        lambda w: w.gather(0, torch.tensor([[0, 1], [1, 0]])),
    ),
    "GatherND": (
        (2, 2), {"places": [[1], [0]]}, {}, lambda w: w[torch.tensor([1, 0])],
    ),
    "SpaceToDepth": (
        (1, 1, 4, 4), {}, {"blocksize": 4},
        lambda w: torch.nn.functional.pixel_unshuffle(w, 4),
    ),
    "ReverseSequence": (
        (2, 2), {"steps": [1, 2]}, {}, lambda w: torch.stack([w[:, 0], w[:, 1].flip(0)], 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", MOVED)
def test_a_weight_without_a_name_is_trained_behind_any_op_that_moves_its_numbers(op, tmp_path):
    shape, reads, attrs, meaning = MOVED[op]
    weight = np.asarray(R(shape), "f")
    nodes = [
        node(op, " ".join(["val_0", *reads]), "moved", **attrs),
        node("Reshape", "moved form", "w"), node("MatMul", "x w", "h"),
        node("ReduceMean", "h last", "y"),
    ]  # fmt: skip
    path = _save(tmp_path / "m.onnx", nodes, {"val_0": weight})
    proto = onnx.load(path)
    numbers = {name: np.array(values) for name, values in (reads | {"form": [2, -1]}).items()}
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in numbers.items())
    onnx.save(proto, path)
    _, grads = et.loss_and_gradients(path, {"x": X}, Y, loss="mse")
    value = torch.tensor(weight, requires_grad=True)
    out = (torch.tensor(X) @ meaning(value).reshape(2, -1)).mean(1, keepdim=True)
    torch.nn.functional.mse_loss(out, torch.tensor(Y)).backward()
    (grad,) = grads.values()
    np.testing.assert_allclose(grad, value.grad, rtol=1e-4, atol=1e-6)  # order of sums


def test_a_norm_without_a_scale_has_no_parameter(tmp_path):
    nodes = [
        node("RMSNormalization", "x val_1", "n"),
        node("RMSNormalization", "n norm.weight", "h"),
        node("MatMul", "h fc.weight", "y"),
    ]
    weights = {"val_1": np.ones(2), "norm.weight": np.ones(2), "fc.weight": R((2, 1))}
    path = _save(tmp_path / "m.onnx", nodes, weights, opset=23)
    assert load_onnx(path).parameters == ("norm.weight", "fc.weight")


QUERIED = [node("MatMul", "x mix", "k"), node("Attention", "late k k", "h")]
PICTURE = [node("GridSample", "late x", "h")]


@pytest.mark.parametrize(
    ("op", "nodes", "shapes"),
    [
        ("Attention", QUERIED, {"mix": (2, 2), "late": (4, 1, 3, 2)}),
        ("GridSample", PICTURE, {"late": (4, 1, 5, 5)}),
        ("Max", [node("Max", "x x late", "h")], {"late": (2,)}),
        ("Min", [node("Min", "x x late", "h")], {"late": (2,)}),
    ],
)
def test_an_operand_that_may_be_a_weight_is_listed(op, nodes, shapes, tmp_path):
    weights = {name: R(shape) for name, shape in shapes.items()}
    inputs = [info("x", 4, 1, 3, 2)]
    path = _save(tmp_path / "m.onnx", [*nodes, node("Relu", "h", "y")], weights, inputs, opset=23)
    assert dict(load_onnx(path).operands) == {"late": op}


def test_bounds_thresholds_and_scales_are_no_weights(tmp_path):
    weights = {"low": -1.0, "high": 1.0, "fill": 0.5, "zoom": [1, 1, 2, 2], "bound": R((3, 2))}
    nodes = [
        node("Clip", "x low high", "a"), node("Greater", "a bound", "m"),
        node("Pad", "a pads fill", "b"), node("Resize", "b - zoom", "c"), node("Relu", "c", "y"),
        node("Cast", "m", "unused", to=TensorProto.FLOAT),
    ]  # fmt: skip
    path = _save(tmp_path / "m.onnx", nodes, weights, [info("x", 4, 1, 3, 2)], opset=23)
    proto = onnx.load(path)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([0, 0, 1, 1] * 2), "pads"))
    onnx.save(proto, path)
    model = load_onnx(path)
    assert not model.operands and not model.parameters and not model.untrained


@pytest.mark.parametrize("op", ["Max", "Sum", "Concat"])
def test_an_empty_operand_is_no_weight(op, tmp_path):
    attrs = {"axis": 1} if op == "Concat" else {}
    weights = {"none": np.zeros((4, 0)) if op == "Concat" else np.zeros((0,))}
    nodes = [node(op, "x none", "h", **attrs), node("Relu", "h", "y")]
    model = load_onnx(_save(tmp_path / "m.onnx", nodes, weights, [info("x", 4, 1)]))
    assert not model.operands and not model.parameters and not model.untrained
