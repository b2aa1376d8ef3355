"""MaxPool's second output: refused if something reads it, otherwise ignored."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import edgetrain as et
from edgetrain.errors import ModelError
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse


def _model(*nodes):
    first = helper.make_node("MaxPool", ["x"], ["y", "where"], "pool", kernel_shape=[2, 2])
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2, 5, 5])
        for name in ("x", nodes[-1].output[0] if nodes else "y")
    ]
    graph = helper.make_graph([first, *nodes], "net", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return decode(parse(proto.SerializeToString(), "net"), Path("net"))


def test_indices_that_nothing_reads_are_left_out():
    x = np.arange(50, dtype=np.float32).reshape(1, 2, 5, 5)
    found = et.forward(_model(), {"x": x})["y"]
    np.testing.assert_array_equal(found, x[:, :, 1:, 1:])


def test_indices_that_are_read_are_refused_by_name():
    reader = helper.make_node("Cast", ["where"], ["z"], "cast", to=TensorProto.FLOAT)
    with pytest.raises(ModelError, match=r"'pool' \(MaxPool\): its second output"):
        et.forward(_model(reader), {"x": np.zeros((1, 2, 5, 5), np.float32)})
