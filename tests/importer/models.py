"""Small ONNX files for the importer tests."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tensor(name: str, *shape: int, value: float | None = None) -> onnx.TensorProto:
    """A float32 initializer: increasing numbers, or one value."""
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) * np.float32(0.01)
    return numpy_helper.from_array(array if value is None else np.full_like(array, value), name)


def info(name: str, *dims, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, kind, list(dims))


def node(op: str, inputs: str, outputs: str, **attrs) -> onnx.NodeProto:
    """`inputs` and `outputs` are names separated by spaces; `-` is an absent one."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), attrs.pop("name", outputs), **attrs)


def model(
    nodes, initializers=(), inputs=None, outputs=None, opset: int = 17, meta=None, ir: int = 8
) -> onnx.ModelProto:
    """A model of x [batch, 4] -> y."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [info("x", "batch", 4)] if inputs is None else inputs,
        [info("y", "batch", None)] if outputs is None else outputs,
        list(initializers),
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    if meta:
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in meta.items()}
        helper.set_model_props(proto, texts)
    return proto


def linear(**options) -> onnx.ModelProto:
    """y = x @ w + b."""
    nodes = [node("Gemm", "x w b", "y")]
    return model(nodes, [tensor("w", 4, 3), tensor("b", 3)], **options)


def external(path: Path, location: str, offset=None, length=None) -> None:
    """Write `linear` with w in another file."""
    proto = linear()
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            weight.external_data.add(key=key, value=str(value))
    path.write_bytes(proto.SerializeToString())
