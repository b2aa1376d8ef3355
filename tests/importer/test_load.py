"""Damaged files and files that are not models: one line, at once, no large allocations."""

import time
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgetrain as et
from edgetrain.api import plan
from edgetrain.errors import ModelError, UnsupportedOpError, UsageError
from edgetrain.importer import load_onnx

from .models import info, linear, model, node, tensor

LIMIT_NBYTES = 64 * 2**20


def _constant(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _load(tmp_path, proto):
    path = tmp_path / "m.onnx"
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return load_onnx(path)


def _refused(tmp_path, proto, match=None, error=ModelError, **options):
    """Loading or planning fails in one line, quickly, within 64 MiB."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(error, match=match) as caught:
            plan(_load(tmp_path, proto), loss="mse", minibatch=2, **options)
        assert tracemalloc.get_traced_memory()[1] < LIMIT_NBYTES
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - start < 10
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 2000


@pytest.mark.parametrize("opset", [9, 13, 18, 21, 23])
def test_load_reads_opset(tmp_path, opset):
    assert _load(tmp_path, linear(opset=opset)).opset == opset


@pytest.mark.parametrize("opset", [1, 6, 999])
def test_load_refuses_opset_out_of_range(tmp_path, opset):
    _refused(tmp_path, linear(opset=opset))


def test_load_names_a_missing_file(tmp_path):
    with pytest.raises(ModelError, match=r"gone\.onnx: No such file"):
        load_onnx(tmp_path / "gone.onnx")


def test_load_refuses_a_folder(tmp_path):
    with pytest.raises(ModelError):
        load_onnx(tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"hello world, this is not a model\n" * 50, bytes(range(256)) * 40]
)
def test_load_refuses_garbage(tmp_path, data):
    _refused(tmp_path, data)


def test_load_refuses_every_truncation(tmp_path):
    data = linear().SerializeToString()
    for length in range(1, len(data) - 1, 7):
        with pytest.raises(ModelError):
            _load(tmp_path, data[:length])


def test_load_refuses_or_reads_every_flipped_byte(tmp_path):
    """A damaged file raises nothing but our own errors."""
    data, rng = bytearray(linear().SerializeToString()), np.random.default_rng(7)
    for at in rng.choice(len(data), 120, replace=False):
        changed = data.copy()
        changed[at] ^= 1 << int(rng.integers(8))
        try:
            plan(_load(tmp_path, bytes(changed)), loss="mse", minibatch=2)
        except (ModelError, UsageError):
            continue


def test_load_refuses_a_cycle(tmp_path):
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]
    _refused(tmp_path, model(nodes))


def test_load_refuses_undefined_and_duplicate_names(tmp_path):
    _refused(tmp_path, model([node("Relu", "nothing", "y")]))
    _refused(tmp_path, model([node("Relu", "x", "y", name="a"), node("Tanh", "x", "y", name="b")]))


def test_load_refuses_weights_that_are_not_finite(tmp_path):
    for value in (np.nan, np.inf):
        nodes = [node("MatMul", "x w", "y")]
        _refused(tmp_path, model(nodes, [tensor("w", 4, 3, value=value)]), "'w'.* finite")


def test_load_refuses_a_model_without_inputs(tmp_path):
    _refused(tmp_path, model([node("Relu", "w", "y")], [tensor("w", 4, 3)], inputs=[]))


@pytest.mark.parametrize("dims", [[2**40], [2**31, 2**31, 4], [-3, 4], [4, 4], [2**20] * 8])
def test_load_refuses_tensor_that_its_data_do_not_fill(tmp_path, dims):
    proto = linear()
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend(dims)
    _refused(tmp_path, proto, "w")


def test_load_refuses_strings(tmp_path):
    words = TensorProto(name="w", dims=[1], data_type=TensorProto.STRING, string_data=[b"hi"])
    _refused(tmp_path, model([node("MatMul", "x w", "y")], [words]))


HUGE = [  # op, nodes, constant input s
    (
        "ConstantOfShape",
        [node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")],
        (10**6, 10**6),
    ),
    ("Expand", [node("Expand", "w s", "c"), node("Add", "x c", "y")], (10**6, 10**6, 4)),
    ("Tile", [node("Tile", "k s", "c"), node("Add", "x c", "y")], (10**12,)),
    ("Tile wraps", [node("Tile", "k s", "c"), node("Add", "x c", "y")], (2**62,)),
    ("Pad", [node("Pad", "w s", "c"), node("Add", "x c", "y")], (0, 0, 0, 10**12)),
    ("Reshape", [node("Reshape", "x s", "y")], (10**6, 10**6)),
    ("Gather", [node("Gather", "w s", "y")], (10**6,)),
]


@pytest.mark.parametrize(("nodes", "values"), [h[1:] for h in HUGE], ids=[h[0] for h in HUGE])
def test_bind_refuses_huge_shapes(tmp_path, nodes, values):
    initializers = [_constant("s", *values), tensor("w", 4, 4), _constant("k", 1)]
    _refused(tmp_path, model(nodes, initializers))


def test_bind_refuses_constants_that_double(tmp_path):
    nodes = [node("Concat", "w w", "c0", axis=0)]
    nodes += [node("Concat", f"c{k} c{k}", f"c{k + 1}", axis=0) for k in range(40)]
    nodes.append(node("Gather", "c40 x", "y"))
    _refused(tmp_path, model(nodes, [_constant("w", 1, 2, 3)]))


def test_bind_refuses_constants_that_broadcast(tmp_path):
    nodes = [
        node("Range", "zero many one", "row"), node("Unsqueeze", "row one", "column"),
        node("Mul", "row column", "square"), node("Cast", "square", "f", to=1),
        node("Add", "x f", "y"),
    ]  # fmt: skip
    scalars = {"zero": 0, "many": 10**6, "one": 1}
    initializers = [numpy_helper.from_array(np.array(v), n) for n, v in scalars.items()]
    _refused(tmp_path, model(nodes, initializers))


MALFORMED = [
    ("groups of 3", node("Conv", "i k", "y", group=3), (2, 4, 3, 3)),
    ("groups of 0", node("Conv", "i k", "y", group=0), (2, 4, 3, 3)),
    ("kernel_shape", node("Conv", "i k", "y", kernel_shape=[5, 5]), (2, 4, 3, 3)),
    ("channels", node("Conv", "i k", "y"), (2, 3, 3, 3)),
    ("kernel too large", node("Conv", "i k", "y"), (2, 4, 9, 9)),
    ("negative pads", node("Conv", "i k", "y", pads=[-9, 0, 0, 0]), (2, 4, 3, 3)),
    ("stride 0", node("Conv", "i k", "y", strides=[0, 1]), (2, 4, 3, 3)),
    ("three strides", node("Conv", "i k", "y", strides=[1, 1, 1]), (2, 4, 3, 3)),
    ("pool kernel", node("MaxPool", "i", "y", kernel_shape=[9, 9]), ()),
    ("pool pads", node("MaxPool", "i", "y", kernel_shape=[1, 1], pads=[2, 2, 2, 2]), ()),
    ("softmax axis", node("Softmax", "i", "y", axis=7), ()),
    ("concat axis", node("Concat", "i i", "y", axis=-9), ()),
    ("transpose", node("Transpose", "i", "y", perm=[0, 0, 1, 2]), ()),
    ("flatten axis", node("Flatten", "i", "y", axis=9), ()),
    ("gemm rank", node("Gemm", "i k", "y"), (2, 4, 3, 3)),
    ("matmul sizes", node("MatMul", "i k", "y"), (7, 4)),
    ("broadcast", node("Add", "i k", "y"), (3, 3, 5)),
    ("scale", node("LayerNormalization", "i k", "y"), (9,)),
    ("dropout", node("Dropout", "i r", "y"), ()),
]


@pytest.mark.parametrize(
    ("bad", "shape"), [m[1:] for m in MALFORMED], ids=[m[0] for m in MALFORMED]
)
def test_bind_refuses_malformed_node(tmp_path, bad, shape):
    nodes = [node("Mul", "x gain", "i"), bad]
    ratio = numpy_helper.from_array(np.float32(1.5), "r")
    initializers = [tensor("k", *shape), tensor("gain", 4, 1, 1), ratio]
    proto = model(nodes, initializers, [info("x", "batch", 4, 6, 6)])
    _refused(tmp_path, proto, "node 'y'")


@pytest.mark.parametrize(
    ("op", "values"),
    [("Reshape", (-1, -1)), ("Reshape", (-2, -4)), ("Reshape", (3, 5)), ("Squeeze", (1,)),
     ("Squeeze", (5,)), ("Unsqueeze", (9,)), ("Unsqueeze", (1, 1)), ("Expand", (3, 3)),
     ("Gather", (9,)), ("Gather", (4, -5)), ("Split", (1, 1)), ("ReduceMean", (4,)),
     ("Pad", (0, -4, 0, 0)), ("Pad", (1, 1)), ("Pad", (0, -9, 0, 9))],
)  # fmt: skip
def test_bind_refuses_malformed_constant_input(tmp_path, op, values):
    attrs = {"axis": 1} if op in ("Gather", "Split") else {}
    outputs = "y z" if op == "Split" else "y"
    nodes = [node("MatMul", "x w", "h"), node(op, "h c", outputs, name="y", **attrs)]
    proto = model(nodes, [tensor("w", 4, 4), _constant("c", *values)], opset=18)
    _refused(tmp_path, proto, "node 'y'")


def test_bind_lists_every_unsupported_op_at_once(tmp_path):
    nodes = [
        node("MatMul", "x w", "h"), node("Det", "h", "d"), node("Tile", "d two", "t"),
        node("Relu", "t", "r"), node("Unique", "h", "v i"), node("Add", "r v", "y"),
    ]  # fmt: skip
    proto = model(nodes, [tensor("w", 4, 4), _constant("one", 1), _constant("two", 2)])
    with pytest.raises(UnsupportedOpError) as caught:
        plan(_load(tmp_path, proto), loss="mse", minibatch=2)
    message = str(caught.value)
    assert "node 'd': ONNX Det (opset 17)" in message and "ONNX Unique" in message
    assert "\n" not in message and "edgetrain ops" in message


def test_bind_lists_ops_that_only_fold_when_their_inputs_are_not_constant(tmp_path):
    nodes = [
        node("MatMul", "x w", "h"), node("NonZero", "h", "n"), node("Cast", "n", "c", to=1),
        node("Unique", "h", "v i"), node("Add", "c v", "y"),
    ]  # fmt: skip
    proto = model(nodes, [tensor("w", 4, 4), _constant("one", 1)])
    with pytest.raises(UnsupportedOpError, match=r"NonZero.*Unique"):
        plan(_load(tmp_path, proto), loss="mse", minibatch=2)


def test_bind_lists_ops_of_other_domains(tmp_path):
    proto = model([node("MatMul", "x w", "h"), node("Mystery", "h", "y")], [tensor("w", 4, 4)])
    proto.graph.node[1].domain = "com.example"
    proto.opset_import.add(domain="com.example", version=1)
    _refused(tmp_path, proto, "com.example.Mystery", UnsupportedOpError)


def test_bind_wants_symbolic_dimensions_by_name(tmp_path):
    nodes = [node("MatMul", "x w", "y")]
    proto = model(nodes, [tensor("w", 4, 3)], [info("x", "batch", "T", 4)])
    _refused(tmp_path, proto, r"--dim T=SIZE", UsageError)
    account = plan(_load(tmp_path, proto), loss="mse", minibatch=2, dims={"T": 5})
    assert account["feasible"]


def test_bind_wants_nameless_dimensions_by_input_and_axis(tmp_path):
    proto = model([node("MatMul", "x w", "y")], [tensor("w", 4, 3)], [info("x", "batch", None, 4)])
    _refused(tmp_path, proto, r"--dim x\.1=SIZE", UsageError)


def test_bind_refuses_shapes_that_depend_on_values(tmp_path):
    nodes = [node("Cast", "x", "s", to=7), node("Reshape", "x s", "y")]
    _refused(tmp_path, model(nodes), "depends on values")


def test_bind_refuses_names_that_edgetrain_keeps(tmp_path):
    proto = model([node("MatMul", "x ctl", "y")], [tensor("ctl", 4, 3)])
    _refused(tmp_path, proto, "'ctl'")


def test_parse_refuses_functions_that_explode(tmp_path):
    proto = linear()
    for k in range(40):
        body = [helper.make_node(f"f{k + 1}" if k < 39 else "Relu", [a], [b],
                                 domain="f" if k < 39 else "")
                for a, b in (("i", "m"), ("m", "o"))]  # fmt: skip
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        proto.functions.append(helper.make_function("f", f"f{k}", ["i"], ["o"], body, opsets))
    proto.opset_import.add(domain="f", version=1)
    proto.graph.node.append(helper.make_node("f0", ["y"], ["z"], domain="f"))
    _refused(tmp_path, proto, "expand")


def test_parse_inlines_functions(tmp_path):
    proto = linear()
    proto.graph.node[0].output[0] = "h"
    body = [helper.make_node("Relu", ["i"], ["o"])]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("f", "act", ["i"], ["o"], body, opsets))
    proto.opset_import.add(domain="f", version=1)
    proto.graph.node.append(helper.make_node("act", ["h"], ["y"], domain="f"))
    assert [n.op_type for n in _load(tmp_path, proto).nodes] == ["Gemm", "Relu"]


def test_a_model_in_memory_is_loaded_as_its_file(tmp_path):
    path = "examples/digits/model.onnx"
    proto = onnx.load(path)
    made, ours = (et.compile(one, loss="cross_entropy", minibatch=8) for one in (path, proto))
    made.save(tmp_path / "path.edge")
    ours.save(tmp_path / "proto.edge")
    assert (tmp_path / "path.edge").read_bytes() == (tmp_path / "proto.edge").read_bytes()
    big = onnx.load(path)
    onnx.external_data_helper.convert_model_to_external_data(big, size_threshold=0)
    onnx.save(big, tmp_path / "big.onnx")
    away = onnx.load(tmp_path / "big.onnx", load_external_data=False)
    with pytest.raises(ModelError, match=r"tensor .* in another file"):
        load_onnx(away)
    with pytest.raises(ModelError, match="^ModelProto ''"):
        load_onnx(onnx.ModelProto())
