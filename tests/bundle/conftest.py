"""Libraries and modules shared by the bundle tests."""

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import bundle
from tests.bundle.loaded import Loaded
from tests.bundle.node import missing


@pytest.fixture(scope="session")
def two_layers(tmp_path_factory):
    """A small net of two Gemms, which compiles within a second."""
    from onnx import TensorProto, helper, numpy_helper, save

    draw = np.random.default_rng(0)
    arrays = [
        numpy_helper.from_array(draw.standard_normal(s).astype(np.float32) * np.float32(0.3), n)
        for n, s in (("one.w", (12, 6)), ("one.b", (12,)), ("two.w", (3, 12)), ("two.b", (3,)))
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "one.w", "one.b"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "two.w", "two.b"], ["y"], transB=1),
    ]
    shapes = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", k])]
        for n, k in (("x", 6), ("y", 3))
    ]
    graph = helper.make_graph(nodes, "two_layers", *shapes, arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    path = tmp_path_factory.mktemp("bundle") / "two_layers.onnx"
    save(model, path)
    return et.load_onnx(path)


@pytest.fixture(scope="session")
def program(two_layers):
    """fp16 with Adam: a loss scale, rounding, two moments."""
    return et.compile(
        two_layers, optimizer=et.Adam(lr=0.01), minibatch=8, microbatch=4, precision="fp16",
        threads=1,
    )  # fmt: skip


@pytest.fixture(scope="session")
def library(program):
    return Loaded(program)


@pytest.fixture(scope="session")
def module_program(two_layers):
    """Like `program`, for WebAssembly."""
    return et.compile(
        two_layers, optimizer=et.Adam(lr=0.01), minibatch=8, microbatch=4, precision="fp16",
        target="wasm32",
    )  # fmt: skip


@pytest.fixture(scope="session")
def module_folder(module_program, tmp_path_factory):
    """The bundle of `module_program`, named `small`."""
    if missing():
        pytest.skip(missing())
    out = tmp_path_factory.mktemp("module")
    bundle(module_program, out, name="small")
    return out
