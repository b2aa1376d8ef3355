"""Mutated valid models: a plan or an EdgetrainError, never another exception, never slow."""

import random
import time

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.errors import EdgetrainError
from edgetrain.importer import load_onnx

from ..importer.malformed import model, tensor

pytestmark = pytest.mark.slow

RUNS = 400
SECONDS = 5.0
_STRANGE = [-(2**63), -(2**31), -1, 0, 1, 2, 3, 7, 255, 2**31, 2**40, 2**63 - 1]


def _valid() -> bytes:
    """Convolution, batch-norm, pooling, resize, reshape, two products."""
    node, rng = helper.make_node, np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "c.w", "c.b"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], "norm"),
        node("Relu", ["n"], ["r"], "relu"),
        node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["p", "", "scales"], ["u"], "resize", mode="linear"),
        node("ConvTranspose", ["u", "t.w"], ["t"], "up", group=2, strides=[2, 2]),
        node("Concat", ["t", "t"], ["j"], "join", axis=1),
        node("Slice", ["j", "start", "end", "axes"], ["s"], "cut"),
        node("Reshape", ["s", "flat"], ["f"], "flat"),
        node("Gemm", ["f", "l.w", "l.b"], ["h"], "linear", transB=1),
        node("Gather", ["h", "picks"], ["y"], "pick", axis=1),
    ]
    shapes = {"c.w": (6, 4, 3, 3), "c.b": (6,), "t.w": (6, 2, 2, 2), "l.w": (5, 192), "l.b": (5,)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    arrays |= {name: np.ones(6) for name in "gbmv"}
    arrays |= {"scales": np.float32([1, 1, 2, 2]), "flat": np.array([0, -1])}
    arrays |= {"start": np.array([0]), "end": np.array([3]), "axes": np.array([1])}
    arrays["picks"] = np.array([0, 2, 4])
    return model(nodes, [tensor(name, array) for name, array in arrays.items()], rank=2)


def _attribute(graph, rng) -> None:
    attributes = [a for n in graph.node for a in n.attribute]
    chosen = rng.choice(attributes)
    if chosen.type == AttributeProto.INT:
        chosen.i = rng.choice(_STRANGE)
    elif chosen.type == AttributeProto.INTS:
        values = list(chosen.ints)
        values[rng.randrange(len(values))] = rng.choice(_STRANGE)
        del chosen.ints[:]
        chosen.ints.extend(rng.choice([values, values[:-1], [*values, 1]]))
    else:
        chosen.s = rng.choice([b"", b"nearest", b"cubic", b"\xff\xfe", b"SAME_UPPER"])


def _edge(graph, rng) -> None:
    node = rng.choice(graph.node)
    names = [name for n in graph.node for name in (*n.input, *n.output)]
    node.input[rng.randrange(len(node.input))] = rng.choice(["", "nowhere", *names])


def _op(graph, rng) -> None:
    rng.choice(graph.node).op_type = rng.choice(
        ["Relu", "Conv", "Add", "MatMul", "Squeeze", "Tile", "Einsum", "LSTM", "If", "TopK", "Pad"]
    )


def _constant(graph, rng) -> None:
    chosen = rng.choice([t for t in graph.initializer if t.data_type == TensorProto.INT64])
    values = numpy_helper.to_array(chosen).copy()
    values[rng.randrange(values.size)] = rng.choice(_STRANGE)
    chosen.CopyFrom(numpy_helper.from_array(values, chosen.name))


def _tensor(graph, rng) -> None:
    chosen = rng.choice(graph.initializer)
    what = rng.randrange(3)
    if what == 0:
        chosen.dims[rng.randrange(len(chosen.dims))] = rng.choice(_STRANGE)
    elif what == 1:
        chosen.data_type = rng.randrange(25)
    else:
        chosen.raw_data = chosen.raw_data[: rng.randrange(len(chosen.raw_data) + 1)]


def _remove(graph, rng) -> None:
    part = rng.choice([graph.node, graph.initializer, graph.output, graph.input])
    del part[rng.randrange(len(part))]


def _mutated(seed: int) -> bytes:
    rng = random.Random(seed)
    data = _valid()
    if rng.random() < 0.3:
        raw = bytearray(data)
        for _ in range(rng.randrange(1, 8)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw[: rng.choice([len(raw), rng.randrange(len(raw))])])
    proto = onnx.ModelProto.FromString(data)
    for _ in range(rng.randrange(1, 4)):
        change = rng.choice([_attribute, _edge, _op, _constant, _tensor, _remove])
        try:
            change(proto.graph, rng)
        except (IndexError, ValueError):  # nothing left to change
            continue
    return proto.SerializeToString()


def _plan(path) -> str:
    loaded = load_onnx(path)
    options = make_options(loss="mse", minibatch=2, microbatch=2)
    build_graphs(Compilation(loaded, options), 2)
    return "planned"


def test_unchanged_model_is_planned(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(_valid())
    assert _plan(path) == "planned"


def test_mutated_models_are_planned_or_refused(tmp_path):
    path, wrong = tmp_path / "model.onnx", []
    for seed in range(RUNS):
        path.write_bytes(_mutated(seed))
        start = time.perf_counter()
        try:
            _plan(path)
        except EdgetrainError as error:
            if "\n" in str(error):
                wrong.append((seed, "more than one line", str(error)[:200]))
        except Exception as error:
            wrong.append((seed, type(error).__name__, str(error)[:200]))
        seconds = time.perf_counter() - start
        if seconds > SECONDS:
            wrong.append((seed, "slow", f"{seconds:.1f} s"))
    assert wrong == []
