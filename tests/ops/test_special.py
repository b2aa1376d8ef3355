"""Gradients at zeros of both signs, kinks, ties, ends of domains, padding and masks equal torch's
wherever torch's are finite; norms of small and large numbers in fp16."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.onnx_ops import onnx_names

INSIDE = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5])
POINTS = np.array([*INSIDE, 3, -3, 2.5, -2.5, 6, 1e-30, -1e-30, 1e-20, 20, -20, 30, -30, 100, -100])
ROWS = np.array(
    [[0, 0, 0], [0, -0.0, 0], [-0.0] * 3, [2, 2, 2], [-2, -2, -2], [0, 1, 0], [0, 3, -4],
     [1, 0, 1], [-1, 2, 2], [-1, -1, 2], [1e-25, 0, 0], [1e-25, 1e-25, -1e-25]], float,
)  # fmt: skip
ALONE = np.array([[0.0], [-0.0], [2.0], [-3.0]])
MASK = np.where(np.array([[0, 1, 0], [1, 0, 1], [1, 1, 0], [0, 0, 0]]), -np.inf, 0.0)
PAIRS = np.array([(a, b) for a in (0.0, -0.0, 1, -1, 2, -2) for b in (0.0, -0.0, 1, -1, 2, -2)]).T
IMAGE = np.zeros((2, 3, 5, 5))
IMAGE[0, 0, 1, 1], IMAGE[0, 1], IMAGE[0, 2], IMAGE[1, 0], IMAGE[1, 1, ::2] = 1, 2, -0.0, -1, 3
IMAGE[1, 2, :2, :2] = [[1, -1], [2, 0]]


@dataclass(frozen=True, eq=False)
class Special:
    """One node on one or two parameters and constants; `meaning` takes only the parameters."""

    op: str
    meaning: Callable
    values: Any
    attrs: Mapping[str, Any] = field(default_factory=dict)
    second: Any = None
    constants: Sequence = ()
    name: str = ""
    opset: int = 18

    @property
    def id(self) -> str:
        return f"{self.op} {self.name}".strip()


def _pointwise() -> list[Special]:
    rows = [
        ("Relu", F.relu), ("Sigmoid", torch.sigmoid), ("Tanh", torch.tanh), ("Exp", torch.exp),
        ("Log", torch.log), ("Sqrt", torch.sqrt), ("Neg", torch.neg), ("Abs", torch.abs),
        ("Reciprocal", torch.reciprocal), ("Erf", torch.erf), ("Elu", F.elu), ("Selu", F.selu),
        ("Softplus", F.softplus), ("Mish", F.mish), ("Softsign", F.softsign), ("Sin", torch.sin),
        ("Sign", torch.sign), ("Floor", torch.floor), ("Ceil", torch.ceil), ("Round", torch.round),
        ("Cos", torch.cos), ("Atan", torch.atan), ("Asinh", torch.asinh), ("Celu", F.celu),
        ("HardSwish", F.hardswish),
    ]  # fmt: skip
    inside = ("Tan", "Cosh", "Sinh", "Acos", "Asin", "Atanh")
    return [
        *(Special(op, f, POINTS) for op, f in rows),
        *(Special(op, getattr(torch, op.lower()), INSIDE) for op in inside),
        Special("Acosh", torch.acosh, np.array([1.0, 2.0, 1e6])),
        Special("LeakyRelu", lambda x: F.leaky_relu(x, 0.1), POINTS, {"alpha": 0.1}),
        Special("LeakyRelu", lambda x: F.leaky_relu(x, 0.0), POINTS, {"alpha": 0.0}, name="flat"),
        Special("HardSigmoid", F.hardsigmoid, POINTS, {"alpha": 1 / 6}),
        Special("ThresholdedRelu", lambda x: F.threshold(x, 1, 0), POINTS),
        Special("Gelu", F.gelu, POINTS, opset=20),
        Special("Gelu", lambda x: F.gelu(x, approximate="tanh"), POINTS, {"approximate": "tanh"},
                name="tanh", opset=20),
        *_bounds(),
    ]  # fmt: skip


def _bounds() -> list[Special]:
    """torch.clamp has slope 1 at its bounds, relu6 and hardtanh have 0. A file that does not name
    the function means torch.clamp, except between 0 and 6."""
    low, high = np.float32(-1), np.float32(1)
    clamped = {"function": "clamp"}
    return [
        *(Special("Clip", lambda x, a=a, b=b: x.clamp(a, b), POINTS, name=f"{a} {b}",
                  constants=(np.float32(a), np.float32(b)))
          for a, b in ((-1, 1), (0, 1), (0, 3), (1, -1), (2.5, 2.5), (-np.inf, 3))),
        Special("Clip", F.relu6, POINTS, name="0 6", constants=(np.float32(0), np.float32(6))),
        Special("Clip", lambda x: x.clamp(-1), POINTS, name="low", constants=(low,)),
        Special("Clip", lambda x: x.clamp(-1, 1), POINTS, {"min": -1.0, "max": 1.0},
                name="attributes", opset=8),
        *(Special("Clip", f, POINTS, {"function": f.__name__}, name=f.__name__,
                  constants=(low, high)) for f in (F.hardtanh,)),
        Special("Clip", lambda x: x.clamp(0, 6), POINTS, clamped, name="clamp to 0 6",
                constants=(np.float32(0), np.float32(6))),
        Special("Clip", lambda x, low: x.clamp(min=low), POINTS, second=np.array(-1.0),
                name="trained low"),
        Special("Clip", lambda x, low: x.clamp(low, torch.tensor(1.0, dtype=torch.float64)), POINTS,
                second=np.array(-1.0), constants=(high,), name="trained low, constant high"),
        Special("Max", lambda x: x.clamp(min=0), POINTS, clamped, None, (0 * high,), "clamp"),
        Special("Min", lambda x, b: x.clamp(max=b), PAIRS[0], clamped, PAIRS[1], name="clamp"),
    ]  # fmt: skip


def _pairs() -> list[Special]:
    a, b = PAIRS
    exponents = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, -0.5, -1.0, -2.0)
    named = {"Div": torch.div, "Mul": torch.mul, "Max": torch.maximum, "Min": torch.minimum,
             "Pow": torch.pow, "Add": torch.add, "Sub": torch.sub}  # fmt: skip
    return [
        *(Special(op, f, a, second=b) for op, f in named.items()),
        Special("PRelu", lambda x, s: torch.where(x > 0, x, x * s), a, second=b),
        Special("Mod", torch.fmod, a[b != 0], {"fmod": 1}, b[b != 0]),
        *(Special("Pow", lambda x, e=e: x**e, POINTS, constants=(np.float32(e),), name=str(e))
          for e in exponents),
        *(Special("Pow", torch.pow, POINTS, second=np.full(POINTS.shape, e), name=f"trained {e}")
          for e in exponents),
    ]  # fmt: skip


_REDUCTIONS = {
    "ReduceL1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
    "ReduceL2": lambda x: torch.linalg.vector_norm(x, 2, dim=1),
    "ReduceSumSquare": lambda x: x.square().sum(1),
    "ReduceLogSum": lambda x: x.sum(1).log(),
    "ReduceLogSumExp": lambda x: torch.logsumexp(x, 1),
    "ReduceMax": lambda x: x.amax(1),
    "ReduceMin": lambda x: x.amin(1),
    "ReduceProd": lambda x: x.prod(1),
    "ReduceMean": lambda x: x.mean(1),
    "ReduceSum": lambda x: x.sum(1),
}


def _rows() -> list[Special]:
    masked = np.ones(MASK.shape)
    hidden = torch.tensor(MASK)
    out = [
        Special(op, f, values, {"keepdims": 0}, None, (np.array([1]),), name)
        for op, f in _REDUCTIONS.items()
        for name, values in (("rows", ROWS), ("of one", ALONE))
    ]
    for op, f in {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}.items():
        parts = {"rows": ROWS, "of one": ALONE}
        out += [Special(op, lambda x, f=f: f(x, -1), v, name=n) for n, v in parts.items()]
        out.append(Special(op, lambda x, f=f: f(x + hidden, -1), masked, name="masked"))
    for op in ("ReduceLogSumExp", "ReduceMax"):
        mean = _REDUCTIONS[op]
        out.append(
            Special(op, lambda x, f=mean: f(x + hidden), masked, {"keepdims": 0}, None,
                    (np.array([1]),), "masked")
        )  # fmt: skip
    eps, one = {"epsilon": 1e-5}, np.ones(3, np.float32)
    return [
        *out,
        Special("LayerNormalization", lambda x, g: F.layer_norm(x, (3,), g), ROWS, eps, np.ones(3)),
        Special("LayerNormalization", lambda x, g: F.layer_norm(x, (1,), g), ALONE, eps,
                np.ones(1), name="of one"),
        Special("RMSNormalization", lambda x, g: F.rms_norm(x, (3,), g, 1e-5), ROWS, eps,
                np.ones(3), opset=23),
        Special("InstanceNormalization", lambda x: F.instance_norm(x, eps=1e-5), IMAGE, eps,
                constants=(one, 0 * one)),
        Special("LRN", lambda x: F.local_response_norm(x, 3), IMAGE, {"size": 3}),
        Special("CumSum", lambda x: x.cumsum(1), ROWS, constants=(np.array(1),)),
        Special("TopK", lambda x: x.topk(2, 1)[0], ROWS, {"axis": 1}, None, (np.array([2]),)),
    ]  # fmt: skip


def _window_norm(x, p: int, size: int, step: int, pad: int):
    taps = F.unfold(F.pad(x, (pad,) * 4).flatten(0, 1)[:, None], size, stride=step)
    return torch.linalg.vector_norm(taps, p, dim=1).reshape(*x.shape[:2], -1)


def _pools() -> list[Special]:
    out = [Special("GlobalMaxPool", lambda x: x.amax((2, 3)), IMAGE)]
    for p in (1, 2, 3, 5):
        out.append(
            Special("GlobalLpPool", lambda x, p=p: torch.linalg.vector_norm(x, p, dim=(2, 3)),
                    IMAGE, {"p": p}, name=f"{p}")
        )  # fmt: skip
    for size, step, pad in ((2, 2, 0), (3, 1, 1), (1, 1, 0), (3, 2, 1)):
        attrs = {"kernel_shape": [size] * 2, "strides": [step] * 2, "pads": [pad] * 4}
        window, name = (size, step, pad), f"{size} by {step}, {pad}"
        out += [
            Special("MaxPool", lambda x, w=window: F.max_pool2d(x, *w), IMAGE, attrs, name=name),
            Special("AveragePool", lambda x, w=window: F.avg_pool2d(x, *w, False, False), IMAGE,
                    attrs, name=name),
            *(Special("LpPool", lambda x, p=p, w=window: _window_norm(x, p, *w), IMAGE,
                      attrs | {"p": p}, name=f"{name}, of {p}") for p in (1, 2, 3, 5)),
        ]  # fmt: skip
    return out


SPECIAL = [*_pointwise(), *_pairs(), *_rows(), *_pools()]


def _model(row: Special, count: int):
    """A net with the node between its parameters and an output [batch, count]."""
    values = {"w": row.values} | ({} if row.second is None else {"v": row.second})
    arrays = {name: np.asarray(array, np.float32) for name, array in values.items()}
    arrays |= {f"c{k}": np.asarray(array) for k, array in enumerate(row.constants)}
    shift = MASK if row.name == "masked" else -0.0
    arrays |= {"shift": np.asarray(shift, np.float32), "flat": np.array([1, -1])}
    outputs = ["y", "places"] if row.op == "TopK" else ["y"]
    inputs = ["a", *[name for name in arrays if name not in ("w", "shift", "flat")]]
    attrs = dict(row.attrs)
    function = attrs.pop("function", "")
    nodes = [
        helper.make_node("Add", ["w", "shift"], ["a"]),
        helper.make_node(row.op, inputs, outputs, "case", **attrs),
        helper.make_node("Reshape", ["y", "flat"], ["row"]),
        helper.make_node("Add", ["row", "x"], ["out"]),
    ]
    if function:
        nodes[1].metadata_props.add(key="edgetrain.function", value=function)
    ends = [helper.make_tensor_value_info(n, 1, ["N", k]) for n, k in (("x", 1), ("out", count))]
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "case", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", row.opset)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    meta = {"edgetrain.parameters": json.dumps([*values]), "edgetrain.buffers": "[]"}
    helper.set_model_props(proto, meta)
    return decode(parse(proto.SerializeToString(), row.id), Path(row.id))


def _compared(row: Special, scale: float = 1.0, **options):
    """Return [(our gradient, torch's)] and both losses; torch computes in float64."""
    given = [row.values] if row.second is None else [row.values, row.second]
    made = [np.asarray(scale * np.asarray(v), np.float32).astype(np.float64) for v in given]
    if options:  # avoid values that fp16 cannot represent
        made = [np.where(np.abs(v) < 1e-7, 0 * v, v) for v in made]
    leaves = [torch.tensor(v, requires_grad=True) for v in made]
    y = row.meaning(*leaves).reshape(1, -1)
    target = (scale * np.linspace(0.1, 1, y.numel())[None]).astype(np.float32)
    loss = F.mse_loss(y, torch.tensor(target, dtype=torch.float64))
    loss.backward()
    scaled = Special(row.op, row.meaning, made[0], row.attrs, made[1] if made[1:] else None,
                     row.constants, row.name, row.opset)  # fmt: skip
    found, grads = et.loss_and_gradients(
        _model(scaled, y.numel()), {"x": np.full((1, 1), -0.0, np.float32)}, target, loss="mse",
        **options,
    )  # fmt: skip
    names = ("w", "v")[: len(leaves)]
    pairs = [(grads[n], leaf.grad.numpy()) for n, leaf in zip(names, leaves, strict=True)]
    return found, loss.item(), pairs


@pytest.mark.parametrize("row", SPECIAL, ids=[row.id for row in SPECIAL])
def test_gradient_is_torchs_wherever_that_is_finite(row):
    _, _, pairs = _compared(row)
    for found, expected in pairs:
        known = np.isfinite(expected) & (np.abs(expected) < np.finfo(np.float32).max)
        # One op in float32 against float64; cancellation in norms leaves about 1e-6.
        np.testing.assert_allclose(found[known], expected[known], 1e-4, 2e-6)


def test_every_reduction_and_pool_has_special_values():
    mine = {row.op for row in SPECIAL}
    kinds = ("Reduce", "MaxPool", "AveragePool", "LpPool")
    assert {n for n in onnx_names() if n.startswith(kinds)} <= mine


@pytest.mark.parametrize("size", [0.003, 200.0])
@pytest.mark.parametrize(
    "row",
    [r for r in SPECIAL if "Lp" in r.op or r.id in ("ReduceL2 rows", "ReduceL1 rows")],
    ids=lambda row: row.id,
)
def test_norms_in_fp16_neither_vanish_nor_overflow(row, size):
    found, loss, pairs = _compared(row, size, precision="fp16", loss_scale=1.0)
    # Outputs are stored with 11 bits; the loss squares them.
    assert found == pytest.approx(loss, rel=2e-2)
    ((grads, expected),) = pairs
    np.testing.assert_allclose(grads, expected, 2e-2, 5e-3 * np.abs(expected).max())


SPELLED = {
    "deviation": (
        [("ReduceMean", "w axis", "m"), ("Sub", "w m", "d"), ("Mul", "d d", "q"),
         ("ReduceMean", "q axis", "v"), ("Sqrt", "v", "y")],
        lambda x: x.std(1, unbiased=False, keepdim=True),
    ),
    "norm": (
        [("Mul", "w w", "q"), ("ReduceSum", "q axis", "v"), ("Sqrt", "v", "y")],
        lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
    ),
    "norm of squares": (
        [("ReduceSumSquare", "w axis", "v"), ("Sqrt", "v", "y")],
        lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
    ),
    "norm by powers": (
        [("Pow", "w two", "q"), ("ReduceSum", "q axis", "v"), ("Pow", "v half", "y")],
        lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPELLED)
def test_deviations_and_norms_written_as_arithmetic_have_torchs_gradient_at_zero(kind):
    """torch's exporters write x.std() this way; torch itself gives it a gradient of 0 there."""
    parts, meaning = SPELLED[kind]
    rows = ROWS[:9]
    nodes = [helper.make_node(op, reads.split(), [name]) for op, reads, name in parts]
    nodes.append(helper.make_node("Add", ["y", "x"], ["out"]))
    arrays = {"w": rows, "two": np.array(2.0), "half": np.array(0.5)}
    held = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    held.append(numpy_helper.from_array(np.array([1]), "axis"))
    ends = [helper.make_tensor_value_info(n, 1, ["N", 1]) for n in ("x", "out")]
    graph = helper.make_graph(nodes, "case", ends[:1], ends[1:], held)
    opsets = [helper.make_opsetid("", 18)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    helper.set_model_props(proto, {"edgetrain.parameters": '["w"]', "edgetrain.buffers": "[]"})
    model = decode(parse(proto.SerializeToString(), kind), Path(kind))
    given = np.zeros((len(rows), 1), np.float32)
    leaf = torch.tensor(rows, requires_grad=True)
    target = np.linspace(0.1, 1, len(rows), dtype=np.float32)[:, None]
    loss = F.mse_loss(meaning(leaf), torch.tensor(target, dtype=torch.float64))
    loss.backward()
    found, grads = et.loss_and_gradients(model, {"x": given}, target, loss="mse")
    assert found == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(grads["w"], leaf.grad, 1e-4, 2e-6)  # float32 against float64


SHORT = {
    "fp16": {"precision": "fp16", "loss_scale": 1.0},
    "int8": {"saved": "int8"},
}


@pytest.mark.parametrize("kind", SHORT)
@pytest.mark.parametrize(
    "row", [r for r in _bounds() if r.op == "Clip" and r.second is None], ids=lambda row: row.id
)
def test_slopes_at_bounds_are_kept_by_short_formats(row, kind):
    """A value saved in 8 bits stays on its side of the bounds; fp16 represents POINTS exactly."""
    near = np.array([-1 - 2**-10, -1 + 2**-10, 1 - 2**-10, 1 + 2**-10, *POINTS])
    row = replace(row, values=np.tile(near[np.abs(near) < 30], (5, 1)))
    _, _, pairs = _compared(row, **SHORT[kind])
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, 2e-3, 1e-4)  # dy has 11 bits
