"""Folds shape arithmetic when only the batch is unknown.

onnxscript folds a shape once every dimension is known; with a symbolic batch, chains such as Shape,
Slice, Concat, Reshape remain. Here integer vectors are tracked element by element: a number, or the
name of a symbolic dimension. A Reshape with one symbolic element gets -1 there.
"""

import numpy as np
import onnx_ir as ir

# Longer integer constants are tables, not shapes.
_MAX_ELEMENTS = 16

Vector = list[int | str]


def fold_shapes(graph: ir.Graph) -> None:
    """Replace shape arithmetic that doesn't depend on a symbolic dimension by constants.

    Args:
      graph: after shape inference; nodes in topological order. Dead nodes are left in the graph.
    """
    known: dict[ir.Value, Vector] = {}
    constants: dict[tuple[int, ...], ir.Value] = {}
    for node in list(graph):
        if node.op_type == "Reshape" and len(node.inputs) == 2:
            target = _vector(node.inputs[1], known)
            shape = None if target is None else _with_one_unknown(target)
            if shape is not None and node.inputs[1].const_value is None:  # type: ignore[union-attr]
                node.replace_input_with(1, _constant(graph, shape, constants))
        if len(node.outputs) != 1:
            continue
        output = node.outputs[0]
        vector = _evaluate(node, known)
        if vector is None:
            continue
        known[output] = vector
        if (
            output.shape is not None
            and output.shape.rank() == 1
            and all(isinstance(element, int) for element in vector)
        ):
            numbers = tuple(int(element) for element in vector)
            output.replace_all_uses_with(_constant(graph, numbers, constants))


def _vector(value: ir.Value | None, known: dict[ir.Value, Vector]) -> Vector | None:
    if value is None:
        return None
    if value in known:
        return known[value]
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or tensor.dtype != ir.DataType.INT64:
        return None
    if tensor.size > _MAX_ELEMENTS or len(tensor.shape) > 1:
        return None
    return [int(element) for element in tensor.numpy().reshape(-1)]


def _with_one_unknown(target: Vector) -> tuple[int, ...] | None:
    """`target` with -1 for its only symbolic element; None if that is ambiguous."""
    numbers = tuple(element if isinstance(element, int) else -1 for element in target)
    named = any(isinstance(element, str) for element in target)
    return None if numbers.count(-1) > 1 or (named and 0 in numbers) else numbers


def _constant(
    graph: ir.Graph, numbers: tuple[int, ...], made: dict[tuple[int, ...], ir.Value]
) -> ir.Value:
    if numbers not in made:
        name = "shape_" + "_".join(str(number).replace("-", "m") for number in numbers)
        while name in graph.initializers:
            name += "_"
        array = np.array(numbers, np.int64)
        made[numbers] = ir.Value(
            name=name,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.INT64),
            const_value=ir.Tensor(array, name=name),
        )
        graph.register_initializer(made[numbers])
    return made[numbers]


def _evaluate(node: ir.Node, known: dict[ir.Value, Vector]) -> Vector | None:
    if node.op_type == "Shape":
        return _shape_of(node)
    if node.op_type == "Concat":
        parts = [_vector(value, known) for value in node.inputs]
        if any(part is None for part in parts):
            return None
        return [element for part in parts for element in part or ()]
    first = _vector(node.inputs[0], known) if node.inputs else None
    if first is None:
        return None
    if node.op_type in ("Squeeze", "Unsqueeze", "Identity") or (
        node.op_type == "Reshape" and len(first) == 1
    ):
        return first
    second = _vector(node.inputs[1], known) if len(node.inputs) > 1 else None
    if second is None:
        return None
    if node.op_type == "Gather":
        return _gather(first, second)
    if node.op_type == "Slice":
        return _slice(node, first, known)
    return _arithmetic(node.op_type, first, second)


def _shape_of(node: ir.Node) -> Vector | None:
    value = node.inputs[0]
    if value is None or value.shape is None:
        return None
    dims: Vector = []
    for dim in value.shape:
        if isinstance(dim, int):
            dims.append(dim)
        elif dim.value is not None:
            dims.append(str(dim.value))
        else:
            return None
    start = node.attributes.get_int("start", 0)
    end = node.attributes.get_int("end", len(dims))
    return dims[start:end]


def _gather(data: Vector, indices: Vector) -> Vector | None:
    if not all(isinstance(i, int) and -len(data) <= i < len(data) for i in indices):
        return None
    return [data[int(index)] for index in indices]


def _slice(node: ir.Node, data: Vector, known: dict[ir.Value, Vector]) -> Vector | None:
    bounds = [_vector(value, known) for value in node.inputs[1:]]
    if any(bound is None or len(bound) != 1 or isinstance(bound[0], str) for bound in bounds):
        return None
    start, end, *rest = (int(bound[0]) for bound in bounds if bound)
    step = rest[1] if len(rest) > 1 else 1
    return data[start:end:step] if step > 0 else None


def _arithmetic(op: str, first: Vector, second: Vector) -> Vector | None:
    if len(first) != len(second) and 1 not in (len(first), len(second)):
        return None
    size = max(len(first), len(second))
    left, right = (v * size if len(v) == 1 else v for v in (first, second))
    result: Vector = []
    for a, b in zip(left, right, strict=True):
        element = _combine(op, a, b)
        if element is None:
            return None
        result.append(element)
    return result


def _combine(op: str, a: int | str, b: int | str) -> int | str | None:
    if op in ("Mul", "Div") and b == 1:
        return a
    if op == "Mul" and a == 1:
        return b
    if isinstance(a, str) or isinstance(b, str):
        return None
    if op == "Div":
        return a // b if a >= 0 and b > 0 else None
    numbers = {"Add": a + b, "Sub": a - b, "Mul": a * b}
    return numbers.get(op)
