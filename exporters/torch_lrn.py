"""Restores local response normalisation as a single ONNX op.

torch computes it with a pool over channels: a 3-D average pool of the padded squares, which takes
ten nodes and five saved maps. LRN is equivalent if the window is odd.
"""

import numpy as np
import onnx_ir as ir

_VIEWS = ("Reshape", "Squeeze", "Unsqueeze")


def fuse_local_response_norm(graph: ir.Graph) -> None:
    """Replace x / (k + alpha * pool(x * x)) ** beta by LRN; dead nodes are left in the graph.

    Args:
      graph: after shape inference; maps are [batch, channels, height, width].
    """
    for node in list(graph):
        result = _match(node) if node.op_type == "Div" else None
        if result is None:
            continue
        x, size, alpha, beta, bias = result
        attributes = [
            ir.AttrInt64("size", size),
            ir.AttrFloat32("alpha", alpha),
            ir.AttrFloat32("beta", beta),
            ir.AttrFloat32("bias", bias),
        ]
        norm = ir.Node("", "LRN", [x], attributes, metadata_props=dict(node.metadata_props))
        graph.insert_before(node, norm)
        old, new = node.outputs[0], norm.outputs[0]
        new.shape, new.type = old.shape, old.type
        new.name, old.name = old.name, f"{old.name}.divided"
        old.replace_all_uses_with(new, replace_graph_outputs=True)


def _match(divide: ir.Node) -> tuple[ir.Value, int, float, float, float] | None:
    x = divide.inputs[0]
    power, beta = _with_scalar(divide.inputs[1], "Pow")
    add, bias = _with_scalar(power, "Add")
    scaled, alpha = _with_scalar(add, "Mul")
    pool = _producer(_through_views(scaled), "AveragePool")
    pad = _producer(pool.inputs[0], "Pad") if pool else None
    square = _producer(_through_views(pad.inputs[0]), "Mul") if pad else None
    if x is None or beta is None or bias is None or alpha is None:
        return None
    if pool is None or pad is None or square is None or list(square.inputs) != [x, x]:
        return None
    size = pool.attributes.get_ints("kernel_shape")[0]
    padding = pad.inputs[1].const_value if pad.inputs[1] is not None else None
    around = [0, 0, size // 2, 0, 0, 0, 0, size // 2, 0, 0]
    if (
        not _channels_are_depth(x, pad.inputs[0])
        or list(pool.attributes.get_ints("kernel_shape")) != [size, 1, 1]
        or any(stride != 1 for stride in pool.attributes.get_ints("strides", [1]))
        or any(pool.attributes.get_ints("pads", [0]))
        or size % 2 == 0
        or padding is None
        or padding.numpy().tolist() != around
    ):
        return None
    return x, size, alpha, beta, bias


def _channels_are_depth(x: ir.Value, view: ir.Value | None) -> bool:
    """Whether `view` is x [batch, channels, height, width] with an axis of 1 before the
    channels."""
    if x.shape is None or x.shape.rank() != 4 or view is None or view.shape is None:
        return False
    return view.shape.rank() == 5 and view.shape[1] == 1 and view.shape[2:] == x.shape[1:]


def _producer(value: ir.Value | None, op: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op else None


def _with_scalar(value: ir.Value | None, op: str) -> tuple[ir.Value | None, float | None]:
    """(first operand, second operand as a number) of the `op` that computes `value`; (None, None)
    if it doesn't match."""
    node = _producer(value, op)
    if node is None or node.inputs[1] is None or node.inputs[1].const_value is None:
        return None, None
    number = node.inputs[1].const_value.numpy()
    return (node.inputs[0], float(np.ravel(number)[0])) if number.size == 1 else (None, None)


def _through_views(value: ir.Value | None) -> ir.Value | None:
    while value is not None and (node := value.producer()) and node.op_type in _VIEWS:
        value = node.inputs[0]
    return value
