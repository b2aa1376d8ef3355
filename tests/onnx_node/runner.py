"""One node test of the onnx package through the evaluation graph: passed, failed or not applicable.

Inputs that share the first floating input's first dimension are the model's inputs, the others
initializers, as in a file. What is refused by name counts as not applicable, with the reason; a
wrong number, or an error that is not a ModelError, is a failure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import edgetrain as et
from edgetrain.compiler.bind.fold import FOLDS, fold
from edgetrain.errors import ModelError, UsageError
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.allowance import Allowance
from edgetrain.ops.registry import OnnxNode

# Where the test data depart from the standard's text.
DEVIATIONS = {
    "test_resize_downsample_scales_linear_align_corners": "length_resized is not rounded down",
    "test_resize_downsample_scales_cubic_align_corners": "length_resized is not rounded down",
}
PASSED, FAILED, SKIPPED = "passed", "failed", "not applicable"


@dataclass(frozen=True)
class Verdict:
    """What became of one case."""

    case: str
    op_type: str
    outcome: str
    reason: str = ""


def run_case(case) -> Verdict:
    """Run the first data set of a backend test case."""
    op_type = case.model.graph.node[0].op_type
    reason = _unfit(case)
    if reason:
        return Verdict(case.name, op_type, SKIPPED, reason)
    inputs, expected = ([_array(a) for a in part] for part in case.data_sets[0])
    try:
        found = _outputs(case.model, inputs)
    except (ModelError, UsageError) as error:
        return Verdict(case.name, op_type, SKIPPED, _short(error))
    except Exception as error:
        return Verdict(case.name, op_type, FAILED, repr(error)[:300])
    wrong = _compare(found, expected, case)
    return Verdict(case.name, op_type, FAILED if wrong else PASSED, wrong)


def _array(value) -> np.ndarray | None:
    """A test's value as an array; None where it is something else."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None


def _short(error: Exception) -> str:
    """The reason without names and numbers, so that equal ones are counted together."""
    text = re.sub(r"^node '[^']*' ", "", str(error))
    return re.sub(r"-?\d[\d.e+-]*", "#", text)[:90]


def _unfit(case) -> str:
    """Why the case is outside of what is compared; "" where it is not."""
    if case.name in DEVIATIONS:
        return f"test data, not the text, torch or onnxruntime: {DEVIATIONS[case.name]}"
    arrays = [_array(a) for part in case.data_sets[0] for a in part]
    if any(a is None for a in arrays):
        return "sequences or optional values"
    if any(a.dtype.kind not in "fiub" or "float8" in a.dtype.name for a in arrays):
        return "element types other than floats, integers, truth values"
    whole = [a for a in arrays if a.dtype.kind in "iu" and a.size]
    if any(max(abs(int(a.min())), int(a.max())) > 2**24 for a in whole):
        return "integers beyond 24 bits"
    node = case.model.graph.node[0]
    training = any(a.name == "training_mode" and a.i for a in node.attribute)
    if node.op_type == "BatchNormalization" and training:
        return "training mode: running statistics are torch's, compared elsewhere"
    if node.op_type == "Dropout" and "training" in case.name:
        return "training mode: the mask is edgetrain's own"
    return ""


def _outputs(proto: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    names = [value.name for value in proto.graph.input]
    arrays = dict(zip(names, inputs, strict=True))
    node = proto.graph.node[0]
    if len(proto.graph.node) == 1 and _is_folded(node, arrays):
        attrs = {a.name: _attribute(a) for a in node.attribute}
        plain = OnnxNode(node.name, node.op_type, tuple(node.input), tuple(node.output), attrs)
        return fold(plain, [arrays.get(name) for name in node.input], Allowance())
    runtime = _runtime(arrays)
    if not runtime:
        raise ModelError("node '' no input has a batch dimension")
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in list(copy.graph.input):
        if value.name not in runtime:
            copy.graph.input.remove(value)
            copy.graph.initializer.append(numpy_helper.from_array(arrays[value.name], value.name))
    model = decode(parse(copy.SerializeToString(), "case"), Path("case"))
    return list(et.forward(model, {name: arrays[name] for name in runtime}).values())


def _is_folded(node: onnx.NodeProto, arrays) -> bool:
    """Ops that exist at import alone, and whatever has integers alone."""
    kinds = {a.dtype.kind for a in arrays.values()}
    return node.op_type in FOLDS and "f" not in kinds


def _attribute(attribute):
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value


def _runtime(arrays) -> list[str]:
    """Names of the inputs that are fed: of one batch, floating where any is."""
    fit = [n for n, a in arrays.items() if a.ndim and a.size]
    floating = [n for n in fit if arrays[n].dtype.kind == "f"] or fit
    batch = arrays[floating[0]].shape[0] if floating else 0
    return [n for n in floating if arrays[n].shape[0] == batch]


def _compare(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], case) -> str:
    if len(found) < len(expected):
        return f"{len(found)} outputs, {len(expected)} expected"
    for ours, theirs in zip(found, expected, strict=False):
        half = theirs.dtype == np.float16
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
