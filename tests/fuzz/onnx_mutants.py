"""Structured damage to a ModelProto; every mutant still parses as protobuf."""

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

_STRANGE = [-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 5, 8, 255, 65536, 2**31, 2**40, 2**63 - 1]
_REALS = [float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e-40, 1e38, 3.5]
_OPS = (
    "Relu", "Conv", "ConvTranspose", "Add", "Mul", "Div", "MatMul", "Gemm", "Squeeze", "Unsqueeze",
    "Tile", "Einsum", "LSTM", "GRU", "If", "Loop", "TopK", "Pad", "Softmax", "Concat", "Split",
    "Gather", "Reshape", "Expand", "Transpose", "Resize", "BatchNormalization", "MaxPool", "Slice",
    "LayerNormalization", "ReduceSum", "CumSum", "Where", "Cast", "Shape", "Identity", "Attention",
    "ConstantOfShape", "Range", "Dropout", "Clip", "Pow", "LRN", "PRelu", "Trilu", "Not", "Equal",
    "DepthToSpace", "GlobalAveragePool", "Flatten", "Max", "Mean", "Nonsense", "Mod",
)  # fmt: skip


def _attribute(proto, rng) -> None:
    chosen = rng.choice([a for n in proto.graph.node for a in n.attribute])
    what = rng.randrange(6)
    if what == 0:
        value = rng.choice([rng.choice(_STRANGE), rng.choice(_REALS), "text", [1, -1], [2.5]])
        chosen.CopyFrom(helper.make_attribute(chosen.name, value))
    elif chosen.type == AttributeProto.INT:
        chosen.i = rng.choice(_STRANGE)
    elif chosen.type == AttributeProto.FLOAT:
        chosen.f = rng.choice(_REALS)
    elif chosen.type == AttributeProto.INTS:
        values = list(chosen.ints) or [0]
        values[rng.randrange(len(values))] = rng.choice(_STRANGE)
        del chosen.ints[:]
        chosen.ints.extend(rng.choice([values, values[:-1], [*values, 1], values[::-1]]))
    elif chosen.type == AttributeProto.STRING:
        chosen.s = rng.choice([b"", b"reverse", b"\xff\xfe", b"bi,bj->", b"linear", b"a" * 5000])
    else:
        chosen.name = rng.choice(["axis", "value", "to", ""])


def _add_attribute(proto, rng) -> None:
    names = "axis group strides pads keepdims dilations axes auto_pad to mode hidden_size layout"
    name = rng.choice([*names.split(), "clip", "epsilon"])
    value = rng.choice([rng.choice(_STRANGE), rng.choice(_REALS), "SAME_UPPER", [1, 2], [0.5]])
    rng.choice(proto.graph.node).attribute.append(helper.make_attribute(name, value))


def _edge(proto, rng) -> None:
    graph = proto.graph
    changed = rng.choice([n for n in graph.node if n.input])
    names = [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output]
    name = rng.choice(["x", "x", "", "nowhere", *names])
    changed.input[rng.randrange(len(changed.input))] = name


def _inputs(proto, rng) -> None:
    changed = rng.choice([n for n in proto.graph.node if n.input])
    names = list(changed.input)
    place = rng.randrange(len(names))
    names = rng.choice([
        names[:place] + names[place + 1 :], names + names[place : place + 1], names[::-1],
        names * 2, [],
    ])  # fmt: skip
    del changed.input[:]
    changed.input.extend(names)


def _op(proto, rng) -> None:
    changed = rng.choice(proto.graph.node)
    changed.op_type = rng.choice(_OPS)
    if rng.random() < 0.1:
        changed.domain = rng.choice(["ai.onnx", "com.microsoft", "ai.onnx.ml", ""])


def _insert(proto, rng) -> None:
    graph = proto.graph
    at = rng.randrange(len(graph.node))
    changed = graph.node[at]
    if not changed.input:
        return
    place = rng.randrange(len(changed.input))
    known = [t.name for t in graph.initializer] + ["x"]
    before = [changed.input[place], *rng.choices(known, k=rng.randrange(3))]
    extra = helper.make_node(rng.choice(_OPS), before, [f"extra{at}"], f"extra{at}")
    changed.input[place] = f"extra{at}"
    nodes = list(graph.node)
    nodes.insert(at, extra)
    del graph.node[:]
    graph.node.extend(nodes)


def _values(proto, rng) -> None:
    chosen = rng.choice(proto.graph.initializer)
    array = numpy_helper.to_array(chosen).copy().reshape(-1)
    if array.dtype.kind == "f":
        array[rng.randrange(array.size) if rng.random() < 0.5 else slice(None)] = rng.choice(_REALS)
    elif array.dtype.kind == "i":
        array[rng.randrange(array.size)] = rng.choice(_STRANGE)
    made = numpy_helper.from_array(array.reshape(tuple(chosen.dims)), chosen.name)
    chosen.CopyFrom(made)


def _shape(proto, rng) -> None:
    """Change a shape, with or without resizing the data."""
    chosen = rng.choice(proto.graph.initializer)
    dims = list(chosen.dims)
    if dims and rng.random() < 0.7:
        dims[rng.randrange(len(dims))] = rng.choice(_STRANGE)
    else:
        dims = rng.choice([[], dims[::-1], [*dims, 1], [1, *dims], dims[:-1]])
    if rng.random() < 0.7 and all(0 <= d < 300 for d in dims):
        array = numpy_helper.to_array(chosen)
        chosen.CopyFrom(numpy_helper.from_array(np.resize(array, dims), chosen.name))
        return
    del chosen.dims[:]
    chosen.dims.extend(dims)


def _kind(proto, rng) -> None:
    chosen = rng.choice(proto.graph.initializer)
    if rng.random() < 0.3:
        chosen.data_type = rng.randrange(25)
        return
    kind = rng.choice([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_])
    array = numpy_helper.to_array(chosen).astype(kind)
    chosen.CopyFrom(numpy_helper.from_array(array, chosen.name))


def _external(proto, rng) -> None:
    chosen = rng.choice(proto.graph.initializer)
    chosen.data_location = TensorProto.EXTERNAL
    place = rng.choice(["../../etc/passwd", "/dev/zero", "", ".", "model.onnx", "a\0b", "n" * 5000])
    for key, value in (("location", place), ("offset", rng.choice(["-1", "0", "9" * 30, "x"]))):
        chosen.external_data.add(key=key, value=value)


def _dims(proto, rng) -> None:
    tensor = proto.graph.input[0].type.tensor_type
    if rng.random() < 0.2:
        tensor.elem_type = rng.choice([0, 1, 6, 7, 8, 9, 10, 11, 14, 16, 99])
        return
    dims = tensor.shape.dim
    what = rng.randrange(4)
    if what == 0 and len(dims):
        del dims[rng.randrange(len(dims))]
    elif what == 1:
        dims.add().dim_value = rng.choice(_STRANGE)
    else:
        chosen = dims[rng.randrange(len(dims))]
        chosen.Clear()
        if rng.random() < 0.8:
            chosen.dim_value = rng.choice(_STRANGE)
        else:
            chosen.dim_param = rng.choice(["batch", "n", ""])


def _opset(proto, rng) -> None:
    if rng.random() < 0.7:
        proto.opset_import[0].version = rng.choice([-1, 0, 6, 7, 9, 10, 11, 13, 18, 22, 25, 99])
    elif rng.random() < 0.5:
        proto.ir_version = rng.choice([0, 1, 3, 4, 13, 2**40])
    else:
        proto.opset_import.add(domain=rng.choice(["", "ai.onnx", "com.microsoft"]), version=9)


def _outputs(proto, rng) -> None:
    graph = proto.graph
    what = rng.randrange(4)
    if what == 0:
        changed = rng.choice(graph.node)
        changed.output[rng.randrange(len(changed.output))] = rng.choice(["", "y", "x", "h", "w"])
    elif what == 1:
        graph.output[0].name = rng.choice([o for n in graph.node for o in n.output] + ["x", ""])
    elif what == 2:
        rng.choice(graph.node).output.append(rng.choice(["", "more", "y"]))
    else:
        del graph.output[0].type.tensor_type.shape.dim[:]
        graph.output.add().CopyFrom(graph.output[0])


def _nodes(proto, rng) -> None:
    graph = proto.graph
    nodes = list(graph.node)
    at = rng.randrange(len(nodes))
    what = rng.randrange(3)
    if what == 0:
        del nodes[at]
    elif what == 1:
        nodes.insert(rng.randrange(len(nodes)), nodes.pop(at))
    else:
        nodes[at].name = rng.choice(["", "ctl", "two\nlines", nodes[0].name])
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(nodes)


def _parts(proto, rng) -> None:
    part = rng.choice([proto.graph.initializer, proto.graph.input, proto.graph.output])
    if rng.random() < 0.5:
        del part[rng.randrange(len(part))]
    else:
        part.add().CopyFrom(part[rng.randrange(len(part))])


def _metadata(proto, rng) -> None:
    names = [t.name for t in proto.graph.initializer]
    key = rng.choice(["edgetrain.parameters", "edgetrain.tied", "edgetrain.frozen"])
    value = rng.choice(
        ["[", "[1, null]", '{"a": 3}', "[" * 2000, f'["{rng.choice(names)}", "gone"]']
    )
    proto.metadata_props.add(key=key, value=value)


CHANGES: tuple[Callable, ...] = (
    _attribute, _attribute, _add_attribute, _edge, _edge, _inputs, _op, _op, _insert, _insert,
    _values, _values, _shape, _shape, _kind, _external, _dims, _dims, _opset, _outputs, _nodes,
    _parts, _metadata,
)  # fmt: skip


def mutant(proto: onnx.ModelProto, seed: int) -> bytes:
    """Return the model with one to three changes."""
    rng = random.Random(seed)
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        try:
            rng.choice(CHANGES)(copy, rng)
        except Exception:  # nothing left to change, or unreadable
            continue
    return copy.SerializeToString()
