"""Checks declared element types against types inferred from ONNX's schemas.

Types are inferred node by node, as far as schemas define them; unknown types are accepted. The onnx
package's inference is not used, because it also infers values and shapes.
"""

from collections.abc import Mapping
from functools import cache

import onnx
from onnx import AttributeProto, TensorProto

from ..errors import ModelError

FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
_INTEGERS = {
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
}
_ACCEPTED = FLOATS | _INTEGERS | {TensorProto.BOOL}
_BY_TEXT = {f"tensor({name.lower()})": number for name, number in TensorProto.DataType.items()}


def check_types(proto: onnx.ModelProto) -> None:
    """Refuse unsupported input types and contradicting types.

    Raises:
      ModelError: names the input, node or output.
    """
    types: dict[str, int] = {t.name: t.data_type for t in proto.graph.initializer}
    for value in proto.graph.input:
        kind = value.type.tensor_type.elem_type
        if not value.type.HasField("tensor_type"):
            raise ModelError(f"input {value.name!r}: not a tensor; expected one.")
        if value.name in types and types[value.name] != kind:
            raise ModelError(
                f"input {value.name!r}: declared as {_text(kind)}, but its initializer is "
                f"{_text(types[value.name])}; expected the same type."
            )
        if kind not in _ACCEPTED:
            raise ModelError(
                f"input {value.name!r}: declared as {_text(kind)}; expected floats, integers "
                "or booleans."
            )
        types[value.name] = kind
    opsets = {e.domain if e.domain != "ai.onnx" else "": e.version for e in proto.opset_import}
    opset = opsets.get("", 0)
    for index, node in enumerate(proto.graph.node):
        _follow(node, index, types, opset)
    for value in proto.graph.output:
        known, declared = types.get(value.name), value.type.tensor_type.elem_type
        alike = any({known, declared} <= kinds for kinds in (FLOATS, _INTEGERS))
        if known and declared and known != declared and not alike:
            raise ModelError(
                f"output {value.name!r}: declared as {_text(declared)}, but its node returns "
                f"{_text(known)}; expected the same type. Export the model again."
            )


def _follow(node: onnx.NodeProto, position: int, types: dict[str, int], opset: int) -> None:
    schema = _schema(node.op_type, opset) if node.domain in ("", "ai.onnx") else None
    if schema is None:
        return
    formals, outputs, variadic = schema
    bound: dict[str, tuple[str, int]] = {}
    for index, name in enumerate(node.input if formals else ()):
        known = types.get(name) if name else None
        if known is None:
            continue
        if index >= len(formals) and not variadic:
            break
        variable, allowed = formals[min(index, len(formals) - 1)]
        if allowed and known not in allowed:
            raise ModelError(
                f"{_called(node, position)}: input {name!r} is {_text(known)}; expected "
                f"{_texts(allowed)}."
            )
        first = bound.setdefault(variable, (name, known))
        if first[1] != known:
            raise ModelError(
                f"{_called(node, position)}: inputs {first[0]!r} and {name!r} are "
                f"{_text(first[1])} and {_text(known)}; expected the same type."
            )
    for index, name in enumerate(node.output if outputs else ()):
        made = _made(node, outputs[min(index, len(outputs) - 1)], bound) if name else 0
        if made:
            types[name] = made


def _called(node: onnx.NodeProto, position: int) -> str:
    return f"node {node.name or f'{node.op_type}_{position}'!r} ({node.op_type})"


def _made(
    node: onnx.NodeProto, formal: tuple[str, frozenset[int]], bound: Mapping[str, tuple[str, int]]
) -> int:
    """Element type of an output; 0 if unknown."""
    if node.op_type in ("Cast", "ConstantOfShape", "Constant"):
        given = {a.name: a for a in node.attribute}
        if "to" in given:
            return given["to"].i
        value = given.get("value")
        if value is not None and value.type == AttributeProto.TENSOR:
            return value.t.data_type
        return TensorProto.FLOAT if node.op_type == "ConstantOfShape" else 0
    variable, allowed = formal
    if variable in bound:
        return bound[variable][1]
    return next(iter(allowed)) if len(allowed) == 1 else 0


_Formal = tuple[str, frozenset[int]]


@cache
def _schema(op_type: str, opset: int) -> tuple[list[_Formal], list[_Formal], bool] | None:
    """(inputs, outputs, whether the last input repeats with one type); None if unknown.

    Each input or output is its type variable ("" if repeats may differ) and the allowed types
    (empty: any).
    """
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    repeated = onnx.defs.OpSchema.FormalParameterOption.Variadic

    def formal(parameter, place: str) -> _Formal:
        kinds = frozenset(_BY_TEXT.get(text, -1) for text in parameter.types)
        mixed = parameter.option == repeated and not parameter.is_homogeneous
        return "" if mixed else parameter.type_str or place, kinds

    inputs = [formal(p, f"in {k}") for k, p in enumerate(schema.inputs)]
    outputs = [formal(p, f"out {k}") for k, p in enumerate(schema.outputs)]
    variadic = bool(schema.inputs) and schema.inputs[-1].option == repeated
    if any(name == "" for name, _ in inputs):
        return None
    return inputs, outputs, variadic


def _text(kind: int) -> str:
    if kind in TensorProto.DataType.values():
        return TensorProto.DataType.Name(kind).lower()
    return f"type {kind}"


def _texts(kinds: frozenset[int]) -> str:
    names = sorted(_text(kind) for kind in kinds if kind > 0)
    return " or ".join(names) if len(names) < 4 else f"one of {', '.join(names)}"
