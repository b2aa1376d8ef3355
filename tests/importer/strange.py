"""Files that no exporter writes: each parses as protobuf, and is loaded or refused in one line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .models import info, linear, model, node, tensor

_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64
Made = Callable[[Path], onnx.ModelProto | bytes]
X = ["batch", 4]


def _net(nodes=(), arrays=(), *, given=None, made=None, opset=17, **parts) -> onnx.ModelProto:
    """h = x w, then `nodes`, which compute y."""
    return model(
        [node("MatMul", "x w", "h" if nodes else "y"), *nodes], [tensor("w", 4, 4), *arrays],
        inputs=given, outputs=made, opset=opset, **parts,
    )  # fmt: skip


def _ints(name: str, *numbers: int) -> TensorProto:
    return helper.make_tensor(name, _INT, [len(numbers)], numbers)


def _of(name: str, kind: int, dims, raw: bytes = b"", **fields) -> TensorProto:
    return TensorProto(name=name, data_type=kind, dims=dims, raw_data=raw, **fields)


def _with(proto: onnx.ModelProto, change: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    change(proto)
    return proto


def _dimensions() -> dict[str, Made]:
    """Inputs and initializers with invalid dimensions."""
    given = {
        "overflow": ["batch", 2**62, 2**62], "overflow to 0": ["batch", 2**32, 2**32],
        "most": ["batch", 2**63 - 1], "negative": ["batch", -7], "batch of 2^63": [2**63 - 1, 4],
        "batch twice": ["batch", "batch"], "symbol twice": ["batch", "n", "n"],
        "symbol of a million letters": ["n" * 10**6, 4], "symbol with a line": ["a\nb", "c\nd"],
        "hundred dimensions": ["batch", *[1] * 100], "symbol of nothing": ["", ""],
        "unknown": [None, None], "no batch": [],
    }  # fmt: skip
    out: dict[str, Made] = {
        f"input {name}": lambda _, dims=dims: _net(
            [node("Relu", "h", "y")], given=[info("x", *dims)]
        )
        for name, dims in given.items()
    }
    held = {
        "overflow": [2**62, 2**62], "overflow to 16": [2**32, 2**32 + 4],
        "zero of many": [0, 2**62],
        "negative twice": [-4, -4], "most": [2**63 - 1], "thousand": [1] * 1000,
    }  # fmt: skip
    out |= {
        f"weight {name}": lambda _, dims=dims: _with(
            linear(), lambda p: p.graph.initializer[0].CopyFrom(_of("w", _FLOAT, dims, bytes(64)))
        )
        for name, dims in held.items()
    }
    inner = {
        "reshape": ("Reshape", [2**32, 2**32]), "expand": ("Expand", [2**32, 2**32, 1, 4]),
        "tile": ("Tile", [2**31, 2**33]), "most": ("Tile", [2**63 - 1, 2**63 - 1]),
    }  # fmt: skip
    out |= {
        f"{op} to {name}": lambda _, op=op, sizes=sizes: _net(
            [node(op, "h s", "y")], [_ints("s", *sizes)]
        )
        for name, (op, sizes) in inner.items()
    }
    return out


def _types() -> dict[str, Made]:
    """Rare element types."""
    kinds = {name: code for name, code in TensorProto.DataType.items() if code}

    def weight(kind: int, nbytes: int) -> onnx.ModelProto:
        return _with(
            linear(),
            lambda p: p.graph.initializer[0].CopyFrom(_of("w", kind, [4, 3], bytes(nbytes))),
        )

    out: dict[str, Made] = {}
    for name, code in kinds.items():
        for nbytes in (6, 12, 24):
            out[f"weight of {name.lower()}, {nbytes} bytes"] = lambda _, code=code, nbytes=nbytes: (
                weight(code, nbytes)
            )
        out[f"input of {name.lower()}"] = lambda _, code=code: _net(
            [node("Cast", "h", "c", to=_FLOAT), node("Relu", "c", "y")],
            given=[info("x", *X, kind=code)],
        )
        out[f"cast to {name.lower()}"] = lambda _, code=code: _net(
            [node("Cast", "h", "c", to=code), node("Cast", "c", "y", to=_FLOAT)]
        )
    out |= {
        "sequence input": lambda _: _net(given=[
            helper.make_tensor_sequence_value_info("x", _FLOAT, X)
        ]),
        "optional input": lambda _: _net(given=[helper.make_value_info("x",
            helper.make_optional_type_proto(helper.make_tensor_type_proto(_FLOAT, X)))]),
        "map input": lambda _: _net(given=[helper.make_value_info("x",
            helper.make_map_type_proto(_INT, helper.make_tensor_type_proto(_FLOAT, X)))]),
        "sequence nodes": lambda _: _net([
            node("SequenceConstruct", "h h", "q"), node("ConcatFromSequence", "q", "y", axis=0)
        ]),
        "quantised": lambda _: _net(
            [node("QuantizeLinear", "h s z", "q"), node("DequantizeLinear", "q s z", "y")],
            [tensor("s", value=0.1), _of("z", TensorProto.UINT8, [], b"\0")],
        ),
        "quantised product": lambda _: _net(
            [node("QLinearMatMul", "q s z q s z s z", "r"), node("DequantizeLinear", "r s z", "y")],
            [tensor("s", value=0.1), _of("z", TensorProto.UINT8, [], b"\0"),
             _of("q", TensorProto.UINT8, [4, 4], bytes(16))],
        ),
        "dynamic quantisation": lambda _: _net(
            [node("DynamicQuantizeLinear", "h", "q s z"), node("DequantizeLinear", "q s z", "y")]
        ),
        "strings of a node": lambda _: _net(
            [node("Constant", "", "k", value_strings=["a", "b"]), node("Add", "h k", "y")]
        ),
        "string regex": lambda _: _net(
            [node("Cast", "h", "c", to=TensorProto.STRING), node("StringNormalizer", "c", "y")]
        ),
    }  # fmt: skip
    return out


def _branches(depth: int, width: int = 1) -> onnx.ModelProto:
    """Nested Ifs; each level reads a value of the outermost graph."""

    def level(k: int) -> list[onnx.NodeProto]:
        made = []
        for j in range(width if k else 1):
            if k == 0:
                made.append(node("Relu", "h", f"v0_{j}"))
                continue
            outs = [info(f"v{k - 1}_0")]
            parts = [helper.make_graph(level(k - 1), f"g{k}{j}{s}", [], outs) for s in "te"]
            made.append(helper.make_node("If", ["c"], [f"v{k}_{j}"], f"if{k}_{j}",
                                         then_branch=parts[0], else_branch=parts[1]))  # fmt: skip
        return made

    last = node("Identity", f"v{depth}_0", "y")
    return _net([*level(depth), last], [numpy_helper.from_array(np.array(True), "c")])


def _loop(op: str, body_inputs, body_outputs, nodes, inputs: str, arrays=(), **attrs):
    body = helper.make_graph(nodes, "body", body_inputs, body_outputs)
    return _net([helper.make_node(op, inputs.split(), ["y"], "loop", body=body, **attrs)], arrays)


def _control() -> dict[str, Made]:
    state, count, going = info("s", *X), info("i", kind=_INT), info("c", kind=TensorProto.BOOL)
    step = [node("Relu", "s", "t"), node("Identity", "c", "d")]
    outs = [info("d", kind=TensorProto.BOOL), info("t", *X)]
    trips = numpy_helper.from_array(np.array(2**62), "n")
    yes = numpy_helper.from_array(np.array(True), "k")
    return {
        "ten levels": lambda _: _branches(10),
        "thirty levels": lambda _: _chained_levels(30),
        "wide levels": lambda _: _branches(5, 3),
        "endless Loop": lambda _: _loop("Loop", [count, going, state], outs, step, "n k h",
                                        [trips, yes]),
        "Loop without a body": lambda _: _net(
            [node("Loop", "n k h", "y")], [trips, yes]),
        "Scan": lambda _: _loop("Scan", [state], [info("t", *X)], [node("Relu", "s", "t")], "h",
                                num_scan_inputs=1),
        "If of nothing": lambda _: _net([node("If", "k", "y")], [yes]),
        "If of a missing branch": lambda _: _net([helper.make_node(
            "If", ["k"], ["y"], "if", then_branch=helper.make_graph([], "t", [], []))], [yes]),
        "branch of other shapes": lambda _: _net([helper.make_node(
            "If", ["k"], ["y"], "if",
            then_branch=helper.make_graph([node("Relu", "h", "t")], "t", [], [info("t")]),
            else_branch=helper.make_graph([node("Flatten", "h", "e", axis=0)], "e", [],
                                          [info("e")]))], [yes]),
        "branch that makes an outer name": lambda _: _net([helper.make_node(
            "If", ["k"], ["y"], "if",
            then_branch=helper.make_graph([node("Relu", "h", "h")], "t", [], [info("h")]),
            else_branch=helper.make_graph([node("Relu", "h", "e")], "e", [], [info("e")]))],
            [yes]),
        "branch that reads itself": lambda _: _net([helper.make_node(
            "If", ["k"], ["y"], "if",
            then_branch=helper.make_graph([node("Relu", "y", "t")], "t", [], [info("t")]),
            else_branch=helper.make_graph([node("Relu", "h", "e")], "e", [], [info("e")]))],
            [yes]),
        "condition of two": lambda _: _net([helper.make_node(
            "If", ["k"], ["y"], "if",
            then_branch=helper.make_graph([node("Relu", "h", "t")], "t", [], [info("t")]),
            else_branch=helper.make_graph([node("Relu", "h", "e")], "e", [], [info("e")]))],
            [numpy_helper.from_array(np.array([True, False]), "k")]),
    }  # fmt: skip


def _chained_levels(depth: int) -> onnx.ModelProto:
    """Each If only in the first branch of the next, so that the file stays small."""
    inner = [node("Relu", "h", "n0")]
    for k in range(1, depth):
        parts = {
            "then_branch": helper.make_graph(inner, f"t{k}", [], [info(f"n{k - 1}")]),
            "else_branch": helper.make_graph(
                [node("Relu", "h", f"e{k}")], f"e{k}", [], [info(f"e{k}")]
            ),
        }
        inner = [helper.make_node("If", ["c"], [f"n{k}"], f"if{k}", **parts)]
    yes = numpy_helper.from_array(np.array(True), "c")
    return _net([*inner, node("Identity", f"n{depth - 1}", "y")], [yes])


def _counts() -> dict[str, Made]:
    """Very many of something that is usually few."""

    def many(count: int, dims: list[int]) -> onnx.ModelProto:
        proto = _net()
        for k in range(count):
            proto.graph.initializer.add(
                name=f"i{k}", data_type=_FLOAT, dims=dims, raw_data=bytes(4)
            )
        return proto

    def summed(count: int) -> onnx.ModelProto:
        names = " ".join(f"i{k}" for k in range(count))
        proto = _net([node("Sum", f"h {names}", "y")])
        for k in range(count):
            proto.graph.initializer.add(name=f"i{k}", data_type=_FLOAT, dims=[1], raw_data=bytes(4))
        return proto

    def outputs(count: int) -> onnx.ModelProto:
        names = [f"y{k}" for k in range(count)]
        return _net([node("Relu", "h", n) for n in names], made=[info(n) for n in names])

    def inputs(count: int) -> onnx.ModelProto:
        names = [f"x{k}" for k in range(count)]
        return _net([node("Sum", " ".join(["h", *names]), "y")],
                    given=[info("x", *X), *(info(n, *X) for n in names)])  # fmt: skip

    long = "n" * 10**6
    return {
        "100,000 initializers": lambda _: many(100_000, [1]),
        "10,000 summands": lambda _: summed(10_000),
        "5,000 outputs": lambda _: outputs(5000),
        "3,000 inputs": lambda _: inputs(3000),
        "names of a million letters": lambda _: _net(
            [helper.make_node("Relu", ["h"], [long], long), node("Relu", long, "y", name="r")]
        ),
        "unknown op of a million letters": lambda _: _net(
            [helper.make_node("O" * 10**6, ["h"], ["y"], long)]
        ),
        "names of control characters": lambda _: _net(
            [helper.make_node("Relu", ["h"], ["\x1b[2J\n\0"], "a\r\nb"),
             node("Relu", "h", "y", name="\u202e")]
        ),
        "attribute of a million numbers": lambda _: _net(
            [helper.make_node("Transpose", ["h"], ["y"], perm=list(range(10**6)))]
        ),
        "100,000 attributes": lambda _: _net(
            [helper.make_node("Relu", ["h"], ["y"], **{f"a{k}": k for k in range(100_000)})]
        ),
        "names of ours": lambda _: _net(
            [node("Relu", "h", "ctl"), node("Relu", "ctl", "loss.target"),
             node("Relu", "loss.target", "y")]
        ),
    }  # fmt: skip


def _graphs() -> dict[str, Made]:
    """Invalid graphs."""
    relu = node("Relu", "h", "y")
    return {
        "cycle of one": lambda _: _net([node("Relu", "y", "y")]),
        "cycle of three": lambda _: _net(
            [node("Add", "h c", "a"), node("Relu", "a", "b"), node("Relu", "b", "c"),
             node("Relu", "c", "y")]),
        "against the order": lambda _: _net([node("Relu", "a", "y"), node("Relu", "h", "a")]),
        "made twice": lambda _: _net([relu, node("Tanh", "h", "y")]),
        "output twice": lambda _: _net([relu], made=[info("y"), info("y")]),
        "output is the input": lambda _: _net([relu], made=[info("x", *X)]),
        "output is a weight": lambda _: _net([relu], made=[info("w", 4, 4)]),
        "output of one node twice": lambda _: _net(
            [node("Split", "h", "y y", axis=1)]),
        "output of no name": lambda _: _net([relu], made=[info("")]),
        "input twice": lambda _: _net([relu], given=[info("x", *X), info("x", *X)]),
        "input of no name": lambda _: _net([relu], given=[info("x", *X), info("", *X)]),
        "node makes the input": lambda _: _net([node("Relu", "h", "x"), relu]),
        "node makes a weight": lambda _: _net([node("Relu", "h", "w"), relu]),
        "weight twice": lambda _: _net([relu], [tensor("w", 4, 4, value=1.0)]),
        "node of nothing": lambda _: _net([helper.make_node("", [], []), relu]),
        "no graph name": lambda _: _with(_net([relu]), lambda p: p.graph.ClearField("name")),
        "no opset": lambda _: _with(_net([relu]), lambda p: p.ClearField("opset_import")),
        "attribute twice": lambda _: _with(_net([node("Softmax", "h", "y", axis=1)]), lambda p:
            p.graph.node[1].attribute.add().CopyFrom(helper.make_attribute("axis", 0))),
        "attribute without a type": lambda _: _with(_net([node("Softmax", "h", "y", axis=1)]),
            lambda p: p.graph.node[1].attribute[0].ClearField("type")),
        "attribute of another type": lambda _: _net([node("Softmax", "h", "y", axis="one")]),
        "attribute that refers": lambda _: _with(_net([node("Softmax", "h", "y", axis=1)]),
            lambda p: setattr(p.graph.node[1].attribute[0], "ref_attr_name", "a")),
        "graph twice": lambda _: _net([relu]).SerializeToString() * 2,
    }  # fmt: skip


def _versions() -> dict[str, Made]:
    relu = node("Relu", "h", "y")
    out: dict[str, Made] = {
        f"opset {version}": lambda _, version=version: _net([relu], opset=version)
        for version in (-(2**63), -1, 0, 1, 6, 7, 9, 13, 22, 28, 30, 2**31, 2**63 - 1)
    }
    out |= {
        f"ir {version}": lambda _, version=version: _net([relu], ir=version)
        for version in (0, 1, 3, 99, 2**40)
    }
    return out | {
        "old reshape": lambda _: _net(
            [helper.make_node("Reshape", ["h"], ["y"], shape=[0, -1])], opset=7),
        "old broadcasting": lambda _: _net(
            [helper.make_node("Add", ["h", "b"], ["y"], axis=1, broadcast=1)],
            [tensor("b", 4)], opset=7),
        "old slice": lambda _: _net(
            [helper.make_node("Slice", ["h"], ["y"], starts=[0], ends=[2**63 - 1], axes=[-1])],
            opset=9),
        "domain of microsoft": lambda _: _with(_net([helper.make_node(
            "FusedMatMul", ["h", "w"], ["y"], domain="com.microsoft")]),
            lambda p: p.opset_import.add(domain="com.microsoft", version=1)),
        "domain of ml": lambda _: _with(_net([helper.make_node(
            "Scaler", ["h"], ["y"], domain="ai.onnx.ml")]),
            lambda p: p.opset_import.add(domain="ai.onnx.ml", version=3)),
    }  # fmt: skip


def _extras() -> dict[str, Made]:
    """Rarely read parts of a model."""
    relu = node("Relu", "h", "y")

    def sparse(values: TensorProto, indices: TensorProto, dims) -> onnx.ModelProto:
        proto = _net([node("MatMul", "h q", "y")])
        proto.graph.sparse_initializer.add().CopyFrom(
            helper.make_sparse_tensor(values, indices, dims)
        )
        return proto

    def function(change: Callable[[onnx.FunctionProto], None]) -> onnx.ModelProto:
        opsets = [helper.make_opsetid("", 17)]
        made = helper.make_function("local", "F", ["a"], ["b"], [node("Relu", "a", "b")], opsets)
        change(made)
        proto = _net([helper.make_node("F", ["h"], ["y"], domain="local")])
        proto.functions.add().CopyFrom(made)
        proto.opset_import.add(domain="local", version=1)
        return proto

    def training(proto: onnx.ModelProto) -> None:
        part = proto.training_info.add()
        part.algorithm.CopyFrom(proto.graph)
        part.update_binding.add(key="w", value="y")

    attributed = ["alpha"]
    return {
        "sparse weight": lambda _: sparse(
            tensor("q", 2), _ints("i", 0, 5), [4, 4]),
        "sparse indices beyond": lambda _: sparse(
            tensor("q", 2), _ints("i", 0, 2**40), [4, 4]),
        "sparse of 2^60": lambda _: sparse(
            tensor("q", 2), _ints("i", 0, 1), [2**30, 2**30]),
        "sparse attribute": lambda _: _net([helper.make_node(
            "Constant", [], ["k"], sparse_value=helper.make_sparse_tensor(
                tensor("v", 2), _ints("i", 0, 5), [4, 4])), node("MatMul", "h k", "y")]),
        "training info": lambda _: _with(_net([relu]), training),
        "quantization annotation": lambda _: _with(_net([relu]), lambda p:
            p.graph.quantization_annotation.add(tensor_name="w")),
        "metadata of ours that lies": lambda _: _net([relu], meta={
            "edgetrain.parameters": ["w", "w", "nowhere", 3], "edgetrain.tied": {"a": "nowhere"},
            "edgetrain.frozen": {"w": 1}, "edgetrain.buffers": "w"}),
        "metadata that is no JSON": lambda _: _net([relu], meta={
            "edgetrain.parameters": "[" * 10**5, "edgetrain.tied": "{", "edgetrain.frozen": "\0"}),
        "metadata of numbers": lambda _: _net([relu], meta={
            "edgetrain.parameters": "3", "edgetrain.tied": "[]", "edgetrain.buffers": "null"}),
        "function": lambda _: function(lambda f: None),
        "function of two inputs": lambda _: function(lambda f: f.input.append("c")),
        "function of no output": lambda _: function(lambda f: f.ClearField("output")),
        "function with an attribute": lambda _: function(
            lambda f: f.attribute.extend(attributed)),
        "function named as an op": lambda _: function(
            lambda f: (setattr(f, "name", "Relu"), setattr(f, "domain", ""))),
        "function of a node that is not there": lambda _: function(
            lambda f: f.node.extend([helper.make_node("G", ["b"], ["c"], domain="local")])),
        "function that makes its input": lambda _: function(
            lambda f: f.node.extend([node("Relu", "b", "a")])),
    }  # fmt: skip


def _outside() -> dict[str, Made]:
    """Data that claim to be in other files."""

    def external(entries: dict[str, str], dims=(4, 3), kind: int = _FLOAT) -> onnx.ModelProto:
        weight = _of("w", kind, dims)
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            weight.external_data.add(key=key, value=value)
        proto = linear()
        proto.graph.initializer[0].CopyFrom(weight)
        return proto

    def constant(entries: dict[str, str]) -> onnx.ModelProto:
        weight = external(entries).graph.initializer[0]
        return _net(
            [helper.make_node("Constant", [], ["k"], value=weight), node("MatMul", "h k", "y")]
        )

    def twice(_: Path) -> onnx.ModelProto:
        proto = external({"location": "m.onnx", "offset": "0", "length": "48"})
        proto.graph.initializer[0].raw_data = bytes(48)
        return proto

    places = {
        "itself": {"location": "m.onnx", "length": "48"},
        "itself by another way": {"location": "./././m.onnx", "offset": "0"},
        "here": {"location": "\0", "offset": "8", "length": "48"},
        "here and beyond": {"location": "\0", "offset": "9" * 30},
        "here, negative": {"location": "\0", "offset": "-48"},
        "nothing": {}, "a name of 5,000 letters": {"location": "n" * 5000},
        "a null": {"location": "a\0b"}, "a device": {"location": "../../../../dev/zero"},
        "a process": {"location": "/proc/self/mem"}, "a number in words": {"offset": "1e3"},
        "a long number": {"location": "m.onnx", "offset": "1" * 5000},
        "an underscore": {"location": "m.onnx", "offset": "1_0"},
    }  # fmt: skip
    out: dict[str, Made] = {
        f"data in {name}": lambda _, e=e: external(e) for name, e in places.items()
    }
    out |= {
        f"constant in {name}": lambda _, e=e: constant(e)
        for name, e in places.items()
        if name in ("itself", "here", "a device", "nothing")
    }
    return out | {
        "data here and there": twice,
        "text here": lambda _: external(places["here"], kind=TensorProto.STRING),
        "bfloat16 here": lambda _: external({"location": "\0", "offset": "8", "length": "24"},
                                            kind=TensorProto.BFLOAT16),
        "int4 here": lambda _: external({"location": "\0", "offset": "8", "length": "6"},
                                        kind=TensorProto.INT4),
        "sizes of 2^60 here": lambda _: external(places["here"], [2**30, 2**30]),
    }  # fmt: skip


def strange() -> Iterator[tuple[str, Made]]:
    """Yield (name, function from the output path to the model)."""
    for family in (
        _dimensions, _types, _control, _counts, _graphs, _versions, _extras, _outside,
    ):  # fmt: skip
        yield from family().items()
