"""Runs a node test of the onnx package on the evaluation graph: passed, refused, left out, wrong.

Inputs with the same first dimension as the first floating input become the model's inputs, the
others initializers, as in a file. A refusal names the node and the reason. A wrong number, or an
error other than EdgetrainError, is `wrong`. Cases that their data cannot decide are left out.
"""

import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import edgetrain as et
from edgetrain.compiler.bind.fold import fold
from edgetrain.errors import EdgetrainError, ModelError
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.allowance import Allowance
from edgetrain.ops.onnx_ops import OnnxNode, onnx_op

# Tests whose data differ from the standard's text.
DEVIATIONS = {
    "test_resize_downsample_scales_linear_align_corners": "length_resized is not rounded down",
    "test_resize_downsample_scales_cubic_align_corners": "length_resized is not rounded down",
}
PASSED, REFUSED, LEFT_OUT, WRONG = "passed", "refused", "left out", "wrong"

# Ops with unpredictable outputs.
RANDOM = {
    "Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip
# Ops that files put between a weight and its readers.
OF_WEIGHTS = {"DequantizeLinear"}
_ZERO = "zero"


@dataclass(frozen=True)
class Verdict:
    """The result of one case."""

    case: str
    op_type: str
    outcome: str
    reason: str = ""


def run_case(case) -> Verdict:
    """Run the first data set of a backend test case."""
    op_type = op_of(case)
    reason = _unfit(case)
    if reason:
        return Verdict(case.name, op_type, LEFT_OUT, reason)
    inputs, expected = ([_array(a) for a in part] for part in case.data_sets[0])
    try:
        found = _outputs(case.model, inputs, expected[0])
    except EdgetrainError as error:
        return Verdict(case.name, op_type, REFUSED, _short(error))
    except Exception as error:
        return Verdict(case.name, op_type, WRONG, repr(error)[:300])
    wrong = _compare(found, expected, case)
    return Verdict(case.name, op_type, WRONG if wrong else PASSED, wrong)


def op_of(case) -> str:
    """Return the op that a case tests; an expanded function has it in its value names."""
    nodes = case.model.graph.node
    if "_expanded" not in case.name:
        return nodes[0].op_type
    names = next((n for node in nodes for n in node.output if "_expanded_function_" in n), "")
    return names.partition("_test_")[0] or nodes[0].op_type


def _array(value) -> np.ndarray | None:
    """Return a test value as an array, or None if it is something else."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None


def _short(error: Exception) -> str:
    """Remove names and numbers, so that equal reasons are counted together."""
    text = re.sub(r"^node '[^']*' ", "", str(error))
    return re.sub(r"-?\d[\d.e+-]*", "#", text)[:90]


def _unfit(case) -> str:
    """Return why the case cannot be compared, or ""."""
    if case.name in DEVIATIONS:
        return f"test data, not the text, torch or onnxruntime: {DEVIATIONS[case.name]}"
    arrays = [_array(a) for part in case.data_sets[0] for a in part]
    if any(a is None for a in arrays):
        return "sequences or optional values"
    if any(a.dtype.kind in "OSUc" for a in arrays):
        return "strings or complex numbers"
    if any(n.op_type in RANDOM for n in case.model.graph.node):
        return "random numbers"
    node = case.model.graph.node[0]
    training = any(a.name == "training_mode" and a.i for a in node.attribute)
    if node.op_type == "BatchNormalization" and training:
        return "training mode: running statistics are torch's, compared elsewhere"
    if node.op_type == "Dropout" and "training" in case.name:
        return "training mode: the mask is edgetrain's own"
    return ""


def _add_zero(graph: onnx.GraphProto, shape: Sequence[int]) -> list[str]:
    """Add a zero input to a graph of weights only, so that it reads an input."""
    (result,) = graph.output
    graph.input.append(helper.make_tensor_value_info(_ZERO, onnx.TensorProto.FLOAT, shape))
    graph.node.append(helper.make_node("Add", [result.name, _ZERO], ["sum"]))
    result.name = "sum"
    return [_ZERO]


def _outputs(
    proto: onnx.ModelProto, inputs: Sequence[np.ndarray], expected: np.ndarray
) -> list[np.ndarray]:
    names = [value.name for value in proto.graph.input]
    arrays = dict(zip(names, inputs, strict=True))
    node = proto.graph.node[0]
    if len(proto.graph.node) == 1 and _is_folded(node, arrays):
        return _folded(node, arrays)
    runtime = [] if node.op_type in OF_WEIGHTS else _runtime(arrays)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if node.op_type in OF_WEIGHTS:
        arrays[_ZERO] = np.zeros(expected.shape, np.float32)
        runtime = _add_zero(copy.graph, expected.shape)
    if not runtime:
        raise ModelError("no input has a batch dimension")
    for value in list(copy.graph.input):
        if value.name not in runtime:
            copy.graph.input.remove(value)
            copy.graph.initializer.append(numpy_helper.from_array(arrays[value.name], value.name))
    model = decode(parse(copy.SerializeToString(), "case"), Path("case"))
    return list(et.forward(model, {name: arrays[name] for name in runtime}).values())


def _folded(node: onnx.NodeProto, arrays) -> list[np.ndarray]:
    attrs = {a.name: _attribute(a) for a in node.attribute}
    plain = OnnxNode(node.name, node.op_type, tuple(node.input), tuple(node.output), attrs)
    return fold(plain, [arrays.get(name) for name in node.input], Allowance())


def run_fold(case) -> Verdict | None:
    """Like `run_case`, with all inputs as constants; None if its op or their type is not folded."""
    graph = case.model.graph
    op_type = graph.node[0].op_type
    if len(graph.node) > 1 or onnx_op(op_type).fold is None or _unfit(case):
        return None
    inputs, expected = ([_array(a) for a in part] for part in case.data_sets[0])
    arrays = dict(zip((value.name for value in graph.input), inputs, strict=True))
    if any(array.dtype.isbuiltin != 1 for array in arrays.values()):  # such as floats of 8 bits
        return None
    try:
        found = _folded(graph.node[0], arrays)
    except EdgetrainError as error:
        return Verdict(case.name, op_type, REFUSED, _short(error))
    wrong = _compare(found, expected, case)
    return Verdict(case.name, op_type, WRONG if wrong else PASSED, wrong)


def _is_folded(node: onnx.NodeProto, arrays) -> bool:
    """Whether the node is folded: an op that exists only at import, with integer operands."""
    kinds = {a.dtype.kind for a in arrays.values()}
    return onnx_op(node.op_type).fold is not None and "f" not in kinds


def _attribute(attribute):
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value


def _runtime(arrays) -> list[str]:
    """Names of inputs with the first one's batch size; floating-point ones only, if any exist."""
    fit = [n for n, a in arrays.items() if a.ndim and a.size]
    floating = [n for n in fit if arrays[n].dtype.kind == "f"] or fit
    batch = arrays[floating[0]].shape[0] if floating else 0
    return [n for n in floating if arrays[n].shape[0] == batch]


def _compare(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], case) -> str:
    if len(found) < len(expected):
        return f"{len(found)} outputs, {len(expected)} expected"
    for ours, theirs in zip(found, expected, strict=False):
        half = theirs.dtype.name in ("float16", "bfloat16")
        if ours.shape != theirs.shape:
            return f"shape {ours.shape}, expected {theirs.shape}"
        close = np.allclose(
            ours.astype(np.float64), theirs.astype(np.float64), max(case.rtol, 1e-2 if half else 0),
            max(case.atol, 1e-3 if half else 1e-6), equal_nan=True,
        )  # fmt: skip
        if not close:
            with np.errstate(all="ignore"):
                gap = np.nanmax(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)))
            return f"values differ by up to {gap:.3g}"
    return ""


def every_case(listed: Collection[str]) -> list:
    """Return the onnx package's node tests of these ops."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # numpy's, while the package computes expected values
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    return [c for c in cases if not {n.op_type for n in c.model.graph.node}.isdisjoint(listed)]
