"""New classes: which layer is replaced, its weights, the exported file."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.api import verify
from edgetrain.cli import main
from edgetrain.compiler.compilation import Compilation
from edgetrain.errors import UsageError
from edgetrain.exporters.parity import parity
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from tests.compiler.nets import Net


def gemm(made: Net) -> str:
    return made.head(made.conv("x", "conv", 5, 2), 5, 7)


def turned(made: Net) -> str:
    """MatMul with a transposed weight, an added bias, softmax at the end."""
    flat = made.add("Flatten", ["x"], "flat")
    hidden = made.add("Relu", [made.add("MatMul", [flat, made.weight("in.w", 32, 5)], "in")], "act")
    weight = made.add("Transpose", [made.weight("fc.weight", 7, 5)], "fc.t", perm=[1, 0])
    product = made.add("MatMul", [hidden, weight], "mm")
    logits = made.add("Add", [made.weight("fc.bias", 7), product], "sum")
    return made.add("Softmax", [logits], "probs", axis=-1)


def convolution(made: Net) -> str:
    """SqueezeNet's head: 1 x 1 convolution, activation, mean over positions, a fixed shape."""
    maps = made.add("Relu", [made.conv("x", "body", 5, 2)], "act")
    inputs = [maps, made.weight("cls.weight", 7, 5, 1, 1), made.weight("cls.bias", 7)]
    maps = made.add("Relu", [made.add("Conv", inputs, "cls")], "scores")
    made.constants["shape"] = np.array([-1, 7], np.int64)
    return made.add("Reshape", [made.add("GlobalAveragePool", [maps], "mean"), "shape"], "out")


def pixels(made: Net) -> str:
    """Classes for every pixel, upscaled by fixed factors."""
    maps = made.add("Relu", [made.conv("x", "body", 5, 2)], "act")
    small = made.add("MaxPool", [maps], "small", kernel_shape=[2, 2], strides=[2, 2])
    maps = made.conv(small, "cls", 7, 5)
    made.constants["factors"] = np.array([1, 1, 2, 2], np.float32)
    return made.add("Resize", [maps, "", "factors"], "out", mode="nearest",
                    coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip


# Net -> (names for its last layer, shapes of its new weights and biases).
NETS = {
    gemm: (("fc", "fc.w"), {"fc.w": (5, 4), "fc.b": (4,)}),
    turned: (("fc", "fc.weight"), {"fc.weight": (4, 5), "fc.bias": (4,)}),
    convolution: (("cls", "cls.weight"), {"cls.weight": (4, 5, 1, 1), "cls.bias": (4,)}),
    pixels: (("cls", "cls.w"), {"cls.w": (4, 5, 3, 3)}),
}


def file_of(build, tmp_path, names: bool = True):
    """Save the net as a file with a declared output, named nodes and inferred shapes."""
    made = Net(2, 4, 4)
    out = build(made)
    arrays = [numpy_helper.from_array(a, n) for n, a in (made.weights | made.constants).items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, 4, 4])
    shape = ["batch", 7, 4, 4] if build is pixels else ["batch", 7]
    y = helper.make_tensor_value_info(out, TensorProto.FLOAT, shape)
    graph = helper.make_graph(made.nodes, "net", [x], [y], arrays)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto = onnx.shape_inference.infer_shapes(proto)
    if names:
        labels = json.dumps(list("abcdefg"))
        found = json.dumps(list(made.weights))
        helper.set_model_props(proto, {"edgetrain.parameters": found, "edgetrain.labels": labels})
    onnx.save(proto, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def samples(program, n: int = 8):
    draw = np.random.default_rng(1)
    shape = (n, *program.output_shape[2:])
    return draw.normal(size=(n, 2, 4, 4)).astype(np.float32), draw.integers(0, 4, shape)


@pytest.mark.parametrize("build", NETS)
def test_a_new_head_is_trained_and_written(build, tmp_path):
    path, (names, shapes) = file_of(build, tmp_path), NETS[build]
    program = et.compile(path, new_head=4, minibatch=8)
    assert program.output_shape[1] == 4
    assert {n: program.slot(n).shape for n in shapes} == shapes
    bound = 1 / np.sqrt(45 if build is pixels else 5)
    for name in shapes:
        values = program.init[name]
        assert 0 < np.abs(values).max() <= bound and len(np.unique(values)) == values.size
    for name in names:
        other = et.compile(path, new_head={name: 4}, minibatch=8)
        assert all((other.init[n] == program.init[n]).all() for n in shapes), name
    verify(program)
    x, y = samples(program)
    with et.Trainer(program) as trainer:
        first = trainer.step(x, y).loss
        for _ in range(20):
            last = trainer.step(x, y).loss
        found = trainer.export_onnx(tmp_path / "trained.onnx")
        expected = trainer.predict(x)
    assert last < first
    proto = onnx.load(found)
    onnx.checker.check_model(proto, full_check=True)
    declared = [d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim]
    assert declared[1] == 4
    assert "edgetrain.labels" not in {entry.key for entry in proto.metadata_props}
    out = onnxruntime.InferenceSession(found).run(None, {"x": x})[0]
    assert out.shape == expected.shape
    if build is turned:
        expected = torch.softmax(torch.tensor(expected), -1).numpy()
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", NETS)
def test_a_new_head_agrees_with_onnxruntime_and_torch(build, tmp_path):
    report = parity(file_of(build, tmp_path), new_head=4, minibatch=4, steps=2)
    assert report.ok, report.summary()
    assert report.facts["forward_reference"].startswith("onnxruntime")


def test_a_new_head_is_found_without_torchs_names(tmp_path):
    program = et.compile(file_of(convolution, tmp_path, names=False), new_head=4, minibatch=4)
    assert program.output_shape == (4, 4)


def test_a_new_head_of_as_many_classes_begins_anew(tmp_path):
    path = file_of(gemm, tmp_path)
    kept, drawn = et.compile(path), et.compile(path, new_head=7)
    assert kept.slot("fc.w").shape == drawn.slot("fc.w").shape
    assert not (kept.init["fc.w"] == drawn.init["fc.w"]).any()
    assert not (drawn.init["fc.w"] == et.compile(path, new_head=7, seed=1).init["fc.w"]).any()


def test_a_new_head_is_trained_beside_what_patterns_and_adapters_train(tmp_path):
    path = file_of(turned, tmp_path)
    for options, expected in (
        ({"train": ["in.w"]}, {"in.w", "fc.weight", "fc.bias"}),
        ({"lora": "r=2,targets=in.w"},
         {"in.w.lora_A.weight", "in.w.lora_B.weight", "fc.weight", "fc.bias"}),
        ({"freeze": ["fc.bias"]}, {"in.w", "fc.weight"}),
    ):  # fmt: skip
        program = et.compile(path, new_head=4, **options)
        assert set(program.account["training"]["trained"]["names"]) == expected, options


def two_products(made: Net) -> str:
    flat = made.add("Flatten", ["x"], "flat")
    a = made.add("MatMul", [flat, made.weight("a.weight", 32, 7)], "a")
    return made.add(
        "Add", [a, made.add("MatMul", [flat, made.weight("b.weight", 32, 7)], "b")], "y"
    )


def tied(made: Net) -> str:
    flat = made.add("Flatten", ["x"], "flat")
    h = made.add("MatMul", [flat, made.weight("in.weight", 32, 7)], "h")
    h = made.add("MatMul", [h, made.weight("tied.weight", 7, 7)], "h2")
    return made.add("MatMul", [h, "tied.weight"], "y")


def normed(made: Net) -> str:
    return made.norm(made.conv("x", "cls", 7, 2), "norm", 7)


def measured(made: Net) -> str:
    """Classes are reordered by fixed positions, so their number must not change."""
    made.constants["order"] = np.array([6, 5, 4, 3, 2, 1, 0], np.int64)
    return made.add("Gather", [made.head(made.conv("x", "conv", 5, 2), 5, 7), "order"], "y", axis=1)


@pytest.mark.parametrize(
    ("build", "head", "words"),
    [
        (two_products, 4, r"output 'y' is made by 2 layers: a, b. Name each .* a=4"),
        (tied, 4, "'tied.weight' or its bias is also read by node"),
        (normed, 4, r"'' \(BatchNormalization\) reads 7 numbers|reads 7 numbers 'norm.gamma'"),
        (measured, 4, "new head 4: .*"),
        (gemm, {"conv": 4}, "'conv': it names none of the model's last layers: fc"),
        (gemm, {"fc": 0}, "new_head: fc 0: expected 1 to 1048576"),
        (gemm, {"fc": "4"}, "new_head: fc '4': expected a whole number"),
        (gemm, True, "new_head True: expected a whole number"),
        (gemm, {"fc": 4, "fc.w": 4}, "'fc.w' is named twice"),
    ],
)
def test_a_head_that_cannot_be_replaced_is_refused(build, head, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        et.compile(file_of(build, tmp_path), new_head=head)


def test_several_layers_of_an_output_are_replaced_together(tmp_path):
    program = et.compile(file_of(two_products, tmp_path), new_head={"a": 4, "b": 4}, minibatch=8)
    assert program.output_shape == (8, 4)


def test_a_model_that_has_its_heads_stays_as_it_is(tmp_path):
    model = et.load_onnx(file_of(gemm, tmp_path))
    options = et.api.make_options(new_head=4)
    compilation = Compilation(model, options)
    headed = compilation.prepared.laid_out
    assert headed is not model and Compilation(headed, options).prepared.laid_out is headed
    assert compilation.with_options(precision="fp16").prepared.laid_out is headed


def test_command_replaces_the_head_and_keeps_the_classes_of_folders(tmp_path, capsys):
    """Class names are stored in the trained file, where a second run and `inspect` find them."""
    path, data = file_of(gemm, tmp_path), tmp_path / "data.npz"
    draw = np.random.default_rng(0)
    words = np.array(["cat", "dog", "elk", "fox"])[draw.integers(0, 4, 64)]
    np.savez(data, x=draw.normal(size=(64, 2, 4, 4)).astype(np.float32), y=words)
    run, out = str(tmp_path / "run"), str(tmp_path / "trained.onnx")
    options = ["--data", f"npz:{data}", "--minibatch", "8", "--steps", "4"]
    assert main(["train", str(path), "--new-head", "fc=4", "--out", run, *options]) == 0
    assert main(["export", run, "-o", out]) == 0
    capsys.readouterr()
    assert main(["eval", run, "--data", f"npz:{data}", "--metrics", "confusion"]) == 0
    assert "cat  dog  elk  fox" in capsys.readouterr().out
    assert main(["inspect", out]) == 0
    assert "classes cat, dog, elk, fox" in capsys.readouterr().out
    assert main(["train", str(path), "--new-head", "fc", "--out", run, *options]) == 2
    few = tmp_path / "few.npz"
    np.savez(few, x=np.zeros((8, 2, 4, 4), np.float32), y=np.array(["fox", "dog"] * 4))
    with et.Trainer(et.compile(out, minibatch=4), data=f"npz:{few}") as trainer:
        assert trainer.labels == ("cat", "dog", "elk", "fox")
        y = np.empty(2, np.int64)
        trainer.source.fill(np.arange(2), {"y": y})
        assert y.tolist() == [3, 1]


def test_a_layer_is_found_by_any_module_that_it_is_in(tmp_path):
    """The prefixes that keras and torch give weight names."""
    for weight, names in (
        ("dense/MatMul/ReadVariableOp:0", ("dense", "dense/MatMul")),
        ("classifier.1.weight", ("classifier", "classifier.1")),
    ):
        made = Net(6)
        hidden = made.add("Relu", [made.add("MatMul", ["x", made.weight("a.w", 6, 5)], "h")], "r")
        model = made.model(made.add("MatMul", [hidden, made.weight(weight, 5, 7)], "y"))
        for name in names:
            options = et.api.make_options(new_head={name: 4})
            headed = Compilation(model, options).prepared.laid_out
            assert headed.initializers[weight].shape == (5, 4), name


def test_weights_that_are_attributes_are_refused():
    """LinearClassifier's, which the trained file keeps unchanged."""
    coefficients = np.arange(12, dtype=np.float32).tolist()
    node = helper.make_node(
        "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", multi_class=1,
        coefficients=coefficients, intercepts=[0.0, 1.0, 2.0], classlabels_ints=[0, 1, 2],
        post_transform="SOFTMAX",
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    outs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3]),
    ]
    graph = helper.make_graph([node], "linear", [x], outs)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    proto = helper.make_model(graph, opset_imports=versions, ir_version=8)
    model = decode(parse(proto.SerializeToString(), "net"), Path("net"))
    with pytest.raises(UsageError, match="new head"):
        et.compile(model, new_head=5)
