"""Every operand of an ONNX op that may hold floats is declared: a weight, a setting, a state, ..

An operand that is not declared is listed as not trained if it is a constant of a file without
parameter names. For a new op that is seldom what its file means.
"""

import onnx
import pytest

from edgetrain.ops.model import Model  # noqa: F401 - brings the families of ops
from edgetrain.ops.onnx_ops import onnx_names, onnx_op

# Learnt queries, keys and pictures are rare, so they are listed, and trained on request.
LISTED = {("Attention", k) for k in (1, 2, 4, 5)} | {("GridSample", 1)}


def _floats(schema: onnx.defs.OpSchema, index: int) -> bool:
    kind = schema.inputs[index].type_str
    allowed = [c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == kind]
    return any("float" in name for name in (*allowed[0], kind)) if allowed else "float" in kind


@pytest.mark.parametrize("op_type", [name for name in onnx_names() if onnx.defs.has(name)])
def test_every_operand_is_declared(op_type):
    """After the first: that is data, or a weight if `weights` says so."""
    schema, op = onnx.defs.get_schema(op_type), onnx_op(op_type)
    count = len(schema.inputs)
    declared = {*op.weighted(count), *op.buffers, *op.states, *op.settings, *op.sizes}
    rest = {k for k in range(1, count) if _floats(schema, k)} - declared
    assert {(op_type, k) for k in rest} == {each for each in LISTED if each[0] == op_type}


def test_vectors_and_neutral_values_are_of_weights():
    for name in onnx_names():
        op = onnx_op(name)
        assert {*op.vectors, *op.neutral} <= {*op.weights}, name
