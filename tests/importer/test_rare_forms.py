"""Rare forms of files, each against onnxruntime, or refused by name."""

import itertools

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import edgetrain as et

FLOAT, INT = T.FLOAT, T.INT64


def node(op, inputs, outputs="y", **attrs):
    return helper.make_node(op, inputs.split(" "), outputs.split(), **attrs)


def model(nodes, shape, arrays=None, *, kind=FLOAT, out=FLOAT, opset=17):
    """A model of input x and output y."""
    arrays = [numpy_helper.from_array(np.asarray(a), name) for name, a in (arrays or {}).items()]
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", out, None)
    graph = helper.make_graph(nodes, "g", [x], [y], arrays)
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=domains)


def expected(made: onnx.ModelProto, x) -> np.ndarray:
    return ort.InferenceSession(made.SerializeToString()).run(["y"], {"x": x})[0]


def assert_equal(made: onnx.ModelProto, x, **limits) -> None:
    limits = {"rtol": 1e-5, "atol": 1e-6, **limits}
    np.testing.assert_allclose(et.forward(made, {"x": x})["y"], expected(made, x), **limits)


def draw(*shape) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


PAIR = [
    node("Sigmoid", "x", "p"), node("Sub", "one p", "q"), node("Concat", "q p", axis=1),
]  # fmt: skip


@pytest.mark.parametrize(
    "shape, axis, opset", [((3, 1), 1, 17), ((3, 3), 1, 17), ((3, 4, 1), -1, 17),
                           ((3, 4, 1), 1, 17), ((3, 1, 2, 2), 1, 11)],
)  # fmt: skip
def test_a_sigmoid_beside_its_complement(shape, axis, opset):
    nodes = [*PAIR[:2], node("Concat", "q p", axis=axis)]
    made = model(nodes, ["n", *shape[1:]], {"one": np.float32(1)}, opset=opset)
    assert_equal(made, draw(*shape))


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("layer", ["Gemm", "MatMul"])
def test_both_classes_of_a_column_are_a_softmax(layer, columns):
    arrays = {"one": np.float32(1), "w": draw(5, columns), "b": draw(1)}
    nodes = [node(layer, "x w", "m"), node("Add", "m b", "z"), node("Sigmoid", "z", "p")]
    made = model([*nodes, *PAIR[1:]], ["n", 5], arrays)
    assert_equal(made, draw(4, 5))
    ops = [n.op_type for n in et.load_onnx(made).nodes]
    assert ("Softmax" in ops) is (columns == 1)


def _branch(number, *, folded):
    """A branch that multiplies x by a constant, named like those of other branches."""
    array, arrays, nodes = numpy_helper.from_array(np.float32(number), "k"), [], []
    if folded:
        nodes = [helper.make_node("Constant", [], ["k"], value=array)]
    else:
        arrays = [array]
    out = helper.make_tensor_value_info("o", FLOAT, None)
    return helper.make_graph([*nodes, node("Mul", "x k", "o")], "b", [], [out], arrays)


@pytest.mark.parametrize("folded", [False, True])
def test_branches_may_use_the_same_names(folded):
    one, two, three, four = (_branch(n, folded=folded) for n in (2, 3, 5, 7))
    nodes = [
        helper.make_node("If", ["t"], ["a"], then_branch=one, else_branch=two),
        helper.make_node("If", ["t"], ["b"], then_branch=three, else_branch=four),
        node("Sub", "a b"),
    ]
    assert_equal(model(nodes, ["n", 3], {"t": np.array(True)}), draw(2, 3))


@pytest.mark.parametrize(
    "op, number", [("Min", 2**40), ("Max", -(2**40)), ("Less", 2**31), ("Greater", -(2**63)),
                   ("LessOrEqual", 2**63 - 1), ("GreaterOrEqual", 2**31)],
)  # fmt: skip
def test_order_beside_a_constant_of_more_than_32_bits(op, number):
    nodes = [node(op, "x k", "m"), node("Cast", "m", to=FLOAT)]
    made = model(nodes, ["n", 3], {"k": np.int64(number)}, kind=INT)
    assert_equal(made, np.array([[1, -2, 3]]))


@pytest.mark.parametrize("op", ["Equal", "Add", "Mul", "Sub"])
@pytest.mark.parametrize("number", [2**32 - 1, -(2**31) - 1])
def test_other_constants_of_more_than_32_bits_are_refused(op, number):
    nodes = [node("Min", "x k", "m"), node(op, "m k", "s"), node("Cast", "s", to=FLOAT)]
    made = model(nodes, ["n", 3], {"k": np.int64(number)}, kind=INT)
    with pytest.raises(et.ModelError, match="'k' has integers of more than 32 bits"):
        et.forward(made, {"x": np.array([[1, -2, 3]])})


@pytest.mark.parametrize("kind", [T.UINT8, T.INT8, T.UINT16, T.INT16])
def test_a_cast_of_integers_keeps_the_bits_that_fit(kind):
    nodes = [node("Cast", "x", "c", to=kind), node("Cast", "c", to=FLOAT)]
    numbers = [0, -1, 127, 128, 255, 256, 300, -129, 32767, 32768, 65535, 65536, -70000, 16777215]
    assert_equal(model(nodes, ["n", len(numbers)], kind=INT), np.array([numbers]))


def test_a_mean_of_constant_integers_is_an_integer():
    nodes = [node("ReduceMean", "k", "m", axes=[0], keepdims=0), node("Mul", "x m")]
    made = model(nodes, ["n", 3], {"k": [1, 2]}, kind=INT, out=INT, opset=13)
    assert_equal(made, np.array([[10, 20, 30]]))


MODES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@pytest.mark.parametrize("scale", [0.1, 0.2, 1 / 3, 0.6, 0.7, 1.3, 2.5, 3.0])
def test_nearest_pixels_are_onnxruntimes(scale):
    x = np.arange(20, dtype=np.float32).reshape(2, 1, 10)
    for mode, rounding in itertools.product(MODES, ROUNDINGS):
        resize = node(
            "Resize", "x  s", mode="nearest", coordinate_transformation_mode=mode,
            nearest_mode=rounding,
        )  # fmt: skip
        assert_equal(model([resize], ["n", 1, 10], {"s": np.float32([1, 1, scale])}, opset=13), x)


@pytest.mark.parametrize("scale", [0.1, 0.2, 1 / 3, 0.6, 0.7, 1.3, 2.5])
def test_nearest_pixels_are_torchs(scale):
    x = np.arange(20, dtype=np.float32).reshape(2, 1, 10)
    resize = node(
        "Resize", "x  s", mode="nearest", coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )  # fmt: skip
    made = model([resize], ["n", 1, 10], {"s": np.float32([1, 1, scale])}, opset=13)
    wanted = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=scale, mode="nearest")
    np.testing.assert_array_equal(et.forward(made, {"x": x})["y"], wanted.numpy())


@pytest.mark.parametrize("scales", [[1, 1, 0.5, 2], [1, 1, 2, 0.5], [1, 1, 0.5, 0.7]])
@pytest.mark.parametrize("op, opset", [("Resize", 10), ("Upsample", 9)])
def test_each_axis_of_an_old_resize_has_its_own_rounding(op, opset, scales):
    if op == "Upsample" and min(scales) < 1:
        pytest.skip("onnxruntime's Upsample only enlarges")
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)
    resize = node(op, "x s", mode="nearest")
    assert_equal(model([resize], ["n", 1, 4, 6], {"s": np.float32(scales)}, opset=opset), x)


@pytest.mark.parametrize(
    "nodes, arrays, opset",
    [
        *(
            ([node("Transpose", "x", "a", perm=[1, 0, 2]), node(op, "a", "b"),
              node("Transpose", "b", perm=[1, 0, 2])], {}, 11)
            for op in ("Softmax", "LogSoftmax", "Hardmax")
        ),
        ([node("Hardmax", "x", axis=0)], {}, 17),
        ([node("CumSum", "x k")], {"k": np.int64(0)}, 17),
        ([node("LpNormalization", "x", axis=0)], {}, 17),
        ([node("Transpose", "x", "a", perm=[1, 0, 2]), node("Trilu", "a", "b"),
          node("Transpose", "b", perm=[1, 0, 2])], {}, 17),
        ([node("Pad", "x k")], {"k": [1, 0, 0, -1, 0, 0]}, 17),
        ([node("ScatterElements", "x k u", axis=2)],
         {"k": np.zeros((1, 5, 6), np.int64), "u": np.ones((1, 5, 6), np.float32)}, 17),
    ],
)  # fmt: skip
def test_ops_that_join_the_samples_of_a_fixed_batch_are_refused(nodes, arrays, opset):
    made = model(nodes, [1, 5, 6], arrays, opset=opset)
    with pytest.raises(et.EdgetrainError, match="the batch|crop"):
        et.forward(made, {"x": draw(4, 5, 6)}, batch_axis={"x": 0})


def test_a_batch_of_one_that_is_reversed_stays_as_it_is():
    arrays = {"b": [-1], "e": [-(2**60)], "a": [0], "s": [-1], "w": draw(6, 2)}
    nodes = [node("Slice", "x b e a s", "r"), node("MatMul", "r w")]
    made, x = model(nodes, [1, 5, 6], arrays), draw(4, 5, 6)
    wanted = np.concatenate([expected(made, x[k : k + 1]) for k in range(4)])
    found = et.forward(made, {"x": x}, batch_axis={"x": 0})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_given_target_has_the_class_axis_of_training():
    made = model([node("MatMul", "x w")], ["n", 5, 3], {"w": draw(3, 5)})
    x, target = draw(2, 5, 3), np.array([[0, 1, 2, 3, 4], [4, 3, 0, 1, 2]], np.int32)
    loss, _ = et.loss_and_gradients(made, {"x": x}, target)[:2]
    program = et.compile(made, minibatch=2, loss="cross_entropy")
    with et.Trainer(program) as trainer:
        assert trainer.step(x, target).loss == pytest.approx(loss, rel=1e-5)


def _filled(number, out="w"):
    array = numpy_helper.from_array(np.float32([number]), "v")
    return helper.make_node("ConstantOfShape", ["s"], [out], value=array)


@pytest.mark.parametrize(
    "nodes, shape, size",
    [
        ([_filled(1 / 9), node("Conv", "x w", group=3)], [3, 5, 5], [3, 1, 3, 3]),
        ([_filled(1.0), node("LayerNormalization", "x w", axis=1)], [2, 3], [2, 3]),
        ([_filled(0.5), node("MatMul", "x w", "h"), node("MatMul", "h v")], [4], [4, 3]),
    ],
)
def test_constants_of_a_shape_keep_their_number(nodes, shape, size):
    made = model(nodes, ["n", *shape], {"s": np.array(size), "v": draw(3, 2)})
    assert_equal(made, draw(2, *shape))
    assert not et.load_onnx(made).warnings


def test_weights_without_values_are_drawn_and_that_is_said():
    second = helper.make_node(
        "ConstantOfShape", ["t"], ["weight"], value=_filled(0.02).attribute[0].t
    )
    nodes = [_filled(0.02), second, node("Conv", "x w", "h"), node("Conv", "h weight")]
    made = model(nodes, ["n", 3, 8, 8], {"s": np.array([4, 3, 3, 3]), "t": np.array([2, 4, 3, 3])})
    (warning,) = et.load_onnx(made).warnings
    assert "without values in the file (ConstantOfShape): 2 weights" in warning
    assert et.load_onnx(made, seed=-1).initializers["w"].std() > 0.1


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_alpha_of_a_quantised_product_scales_its_bias(alpha):
    draws = np.random.default_rng(0)
    arrays = {
        "xs": np.float32(0.05), "xz": np.uint8(128), "W": draws.integers(-99, 99, (6, 5), np.int8),
        "ws": np.float32(0.02), "wz": np.int8(0), "C": np.int32([300, -200, 100, 0, 50]),
    }  # fmt: skip
    product = node("QGemm", "q xs xz W ws wz C", domain="com.microsoft", alpha=alpha)
    made = model([node("QuantizeLinear", "x xs xz", "q"), product], ["n", 6], arrays)
    assert_equal(made, draw(4, 6), atol=1e-5)


def test_columns_of_an_integer_product_may_have_zero_points_of_their_own():
    draws = np.random.default_rng(0)
    arrays = {
        "W": draws.integers(-99, 99, (6, 5), np.int8), "ws": np.float32(0.02),
        "wz": np.int8([0, 1, -2, 3, 9]),
    }  # fmt: skip
    nodes = [
        node("DynamicQuantizeLinear", "x", "q xs xz"), node("MatMulInteger", "q W xz wz", "p"),
        node("Cast", "p", "f", to=FLOAT), node("Mul", "xs ws", "s"), node("Mul", "f s"),
    ]  # fmt: skip
    assert_equal(model(nodes, ["n", 6], arrays), draw(4, 6), atol=0.05)  # of the 8-bit inputs


def test_an_op_whose_name_is_not_text_is_refused(tmp_path):
    made = model([node("Shrimp", "x")], ["n", 3]).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(made.replace(b"Shrimp", b"Shrim\xd1"))
    with pytest.raises(et.ModelError, match="utf-8"):
        et.load_onnx(path)


def _norms(*inputs: str) -> list[onnx.NodeProto]:
    """Norms of these tensors, one after the other, then a product."""
    norms = [
        node("BatchNormalization", f"{'x' if not k else f'h{k - 1}'} {named}", f"h{k}")
        for k, named in enumerate(inputs)
    ]
    last = f"h{len(inputs) - 1}"
    return [
        *norms, node("GlobalMaxPool", last, "p"), node("Flatten", "p", "f"), node("MatMul", "f w"),
    ]  # fmt: skip


MERGED = {
    "one": (["one zero zero one"], ["g b m v"]),
    "two": (["one zero zero one", "one zero zero one*"], ["g b m v", "g b m2 v2"]),
    "only statistics": (["g b zero one", "g2 b2 zero one"], ["g b m v", "g2 b2 m2 v2"]),
}


@pytest.mark.parametrize("form", ["initializer", "constant"])
@pytest.mark.parametrize("producer", ["tf2onnx", "pytorch"])
@pytest.mark.parametrize("case", MERGED)
def test_running_statistics_are_not_merged_with_weights(case, producer, form, tmp_path):
    """As tf2onnx writes a fresh net: equal constants are one tensor."""
    draws = np.random.default_rng(1)
    x = (3 * draws.standard_normal((6, 4, 5, 5)) + 2).astype(np.float32)
    ones, zeros = ("one", "one*", "v", "v2", "g", "g2"), ("zero", "m", "m2", "b", "b2")
    found = []
    for inputs in MERGED[case]:
        names = {name for text in inputs for name in text.split()}
        arrays = {n: np.ones(4, np.float32) for n in ones if n in names}
        arrays |= {n: np.zeros(4, np.float32) for n in zeros if n in names}
        nodes = _norms(*inputs)
        if form == "constant":
            tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
            nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in tensors] + nodes
            arrays = {}
        made = model(nodes, ["n", 4, 5, 5], {**arrays, "w": draw(4, 2)})
        made.producer_name = producer
        program = et.compile(made, loss="mse", optimizer=et.SGD(lr=0.0), minibatch=6)
        trainer = et.Trainer(program)
        for _ in range(5):
            trainer.step(x, np.zeros((6, 2), np.float32))
        out = trainer.export_onnx(tmp_path / "out.onnx")
        np.testing.assert_allclose(
            ort.InferenceSession(out).run(None, {"x": x})[0], trainer.predict(x), rtol=1e-4
        )
        found.append(trainer.predict(x))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_a_norm_used_twice_keeps_its_statistics():
    loaded = et.load_onnx(model(_norms("g b m v", "g b m v"), ["n", 4, 5, 5], {
        "g": np.ones(4, np.float32), "b": np.zeros(4, np.float32), "m": np.zeros(4, np.float32),
        "v": np.ones(4, np.float32), "w": draw(4, 2),
    }))  # fmt: skip
    assert loaded.buffers == ("m", "v")


CONSTANTS = {
    "bias": ([node("Add", "p c")], {"value_floats": [0.1, 0.2, 0.3]}),
    "slope": ([node("PRelu", "p c")], {"value_float": 0.25}),
    "tensor": ([node("Add", "p c")], {"value": numpy_helper.from_array(draw(3))}),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_trained_constants_are_written_whatever_their_form(case, tmp_path):
    nodes, attributes = CONSTANTS[case]
    constant = helper.make_node("Constant", [], ["c"], **attributes)
    made = model([constant, node("MatMul", "x w", "p"), *nodes], ["n", 4], {"w": draw(4, 3)})
    options = {"optimizer": et.SGD(lr=0.1), "train_constants": ("c",)}
    program = et.compile(made, loss="mse", minibatch=6, **options)
    trainer, x = et.Trainer(program), draw(6, 4)
    for _ in range(3):
        trainer.step(x, np.zeros((6, 3), np.float32))
    assert "c" in trainer.parameters
    out = trainer.export_onnx(tmp_path / "out.onnx")
    found = ort.InferenceSession(out).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, trainer.predict(x), rtol=1e-5)


def _net(taken, other, arrays, condition="c"):
    """A product of x and "a", then one of two branches with their own arrays."""
    graphs = [
        helper.make_graph(
            nodes, "b", [], [helper.make_tensor_value_info("o", FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in own.items()],
        )
        for nodes, own in (taken, other)
    ]  # fmt: skip
    last = helper.make_node("If", [condition], ["y"], then_branch=graphs[0], else_branch=graphs[1])
    size = [node("Size", "a", "n"), node("Equal", "n twelve", "d"), node("MatMul", "x a", "h")]
    given = {"a": draw(4, 3), "c": np.array(True), "twelve": np.int64(12), **arrays}
    return model([*size, last], ["n", 4], given)


@pytest.mark.parametrize("condition", ["c", "d"])
@pytest.mark.parametrize("kind", ["initializer", "Constant", "output", "outer"])
def test_weights_of_the_branch_that_is_taken_are_trained(kind, condition, tmp_path):
    w, names = draw(3, 3), ["a", "w"]
    nodes, own = [node("MatMul", "h w", "o")], {"w": w}
    if kind == "Constant":
        constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w))
        nodes, own = [constant, *nodes], {}
    elif kind == "output":  # another branch gives a weight itself
        own = {"w": w}
    outer = {"w": own.pop("w")} if kind == "outer" else {}
    rest = [] if kind == "output" else [node("MatMul", "h v", "o")]
    other = {"o": draw(1, 3)} if kind == "output" else {"v": draw(3, 3)}
    made = _net((nodes, own), (rest, other), outer, condition)
    x, target = draw(5, 4), np.ones((5, 3), np.float32)
    program = et.compile(made, minibatch=5, loss="mse", optimizer=et.SGD(lr=0.1))
    assert [slot.name for slot in program.lasting if slot.role == "parameter"] == names
    with et.Trainer(program, data={"x": x, "y": target}) as trainer:
        trainer.fit(epochs=2)
        found = trainer.predict(x)
        trainer.export_onnx(tmp_path / "m.onnx")
    assert np.abs(found - expected(made, x)).max() > 1e-3
    np.testing.assert_allclose(found, expected(onnx.load(tmp_path / "m.onnx"), x), rtol=1e-5)


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_shrink_of_each_opset(opset):
    made = model([node("Shrink", "x", lambd=0.3, bias=0.1)], ["n", 4], opset=opset)
    assert_equal(made, draw(3, 4))


def test_a_group_norm_of_opset_18_has_a_scale_per_group():
    arrays = {"s": np.float32([2, -1]), "b": np.float32([0.5, 0])}
    norm = node("GroupNormalization", "x s b", num_groups=2)
    assert_equal(model([norm], ["n", 4, 3], arrays, opset=18), draw(2, 4, 3))


def test_the_number_of_elements_is_known():
    nodes = [node("Size", "x", "n"), node("Cast", "n", "f", to=FLOAT), node("Div", "x f")]
    assert_equal(model(nodes, ["n", 4]), draw(3, 4))


def test_the_mask_of_dropout_is_true_if_nothing_is_dropped():
    nodes = [
        node("Dropout", "x r", "z k"), node("Cast", "k", "f", to=FLOAT), node("Add", "z f"),
    ]  # fmt: skip
    assert_equal(model(nodes, ["n", 4], {"r": np.float32(0)}), draw(3, 4))
    with pytest.raises(et.ModelError, match=r"its second output \(mask\) is used"):
        et.forward(model(nodes, ["n", 4], {"r": np.float32(0.5)}), {"x": draw(3, 4)})


def test_sparse_initializers_are_refused_by_name():
    made = model([node("MatMul", "x s")], ["n", 4])
    pairs = ((np.float32([1]), "s"), ([3], "at"))
    values, at = (numpy_helper.from_array(np.asarray(a), n) for a, n in pairs)
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, [4, 4]))
    with pytest.raises(et.ModelError, match="initializer 's' is sparse; expected dense tensors"):
        et.load_onnx(made)
