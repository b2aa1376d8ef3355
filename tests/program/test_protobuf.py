"""Messages without a schema come back unchanged, except where they were changed."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgetrain.program.protobuf import MAX_DEPTH, Message, entry


def written(message: Message) -> bytes:
    return b"".join(message.chunks())


def model() -> onnx.ModelProto:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 3], np.arange(6, dtype=np.float32))
    node = helper.make_node("Gemm", ["x", "w"], ["y"], name="n", alpha=0.5, transB=0)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    return helper.make_model(helper.make_graph([node], "g", [x], [y], [weight]), producer_name="é")


def test_message_comes_back_as_it_was() -> None:
    data = model().SerializeToString()
    message = Message(data)
    assert message.text(2) == "é" and message.integer(1) == model().ir_version
    for graph in message.messages(7):
        for tensor in graph.messages(5):
            assert (tensor.text(8), tensor.integers(1)) == ("w", [2, 3])
        (value,) = graph.messages(11)
        assert value.text(1) == "x"
    assert written(message) == data and message.nbytes() == len(data)


def test_message_changes_what_is_set_replaced_kept_and_cleared() -> None:
    message = Message(model().SerializeToString())
    (graph,) = message.messages(7)
    graph.set(2, b"renamed")
    graph.keep(12, lambda value: False)
    (tensor,) = graph.messages(5)
    tensor.clear(4)
    tensor.set(9, np.ones(6, np.float32).tobytes())
    message.replace(14, [entry("k", "v"), entry("l", "")])
    wanted = model()
    wanted.graph.name = "renamed"
    del wanted.graph.output[:]
    wanted.graph.initializer[0].ClearField("float_data")
    wanted.graph.initializer[0].raw_data = np.ones(6, np.float32).tobytes()
    wanted.metadata_props.add(key="k", value="v")
    wanted.metadata_props.add(key="l", value="")
    assert written(message) == wanted.SerializeToString()


def test_integers_are_packed_or_not_and_signed() -> None:
    values = [0, 1, 127, 128, 2**40, -1, -(2**63), 2**63 - 1]
    plain = Message()
    plain.replace(1, values)
    tensor = TensorProto(dims=values)
    assert written(plain) == tensor.SerializeToString()
    assert Message(written(plain)).integers(1) == values
    packed = TensorProto(int64_data=values).SerializeToString()
    assert Message(packed).integers(7) == values
    assert Message(packed).numbers() == {7} and Message(b"\x3a\x00").numbers() == set()


@pytest.mark.parametrize(
    "data",
    [b"\x08", b"\x0a\x05abc", b"\x0d\x01", b"\x0b", b"\x00\x01", b"\x08" + b"\xff" * 11],
    ids=["no value", "cut text", "cut number", "group", "field 0", "endless number"],
)
def test_message_refuses_what_is_none(data: bytes) -> None:
    with pytest.raises(ValueError):
        Message(data)


def test_message_refuses_deep_nests() -> None:
    message = Message()
    for _ in range(MAX_DEPTH + 2):
        outer = Message()
        outer.replace(1, [message])
        message = outer
    message = Message(written(message))
    with pytest.raises(ValueError, match="deep"):
        for _ in range(MAX_DEPTH + 2):
            (message,) = message.messages(1)
