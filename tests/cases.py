"""The table of op cases: an ONNX node, its inputs, and its meaning in torch.

Every registered ONNX op type has at least one row. tests/ops runs each row forward, backward, with
several threads, at the minimum budget and in fp16. A new op needs a new row.
"""

from collections.abc import Callable

import numpy as np
import onnx
import torch
import torch.nn.functional as F

from . import (
    cases_composed,
    cases_fourier,
    cases_images,
    cases_losses,
    cases_masks,
    cases_movement,
    cases_quantised,
    cases_random,
    cases_sampling,
    cases_sequences,
)
from .op_case import BATCH, A, C, Case, P, X, floats

_IMAGE = X((BATCH, 4, 5, 6))


def _unary(op: str, meaning: Callable, attrs=None, opset=17, positive=False, name="plain"):
    return Case(op, name, [X((BATCH, 3, 5), positive)], meaning, attrs or {}, opset)


def _unary_cases() -> list[Case]:
    rows = [
        _unary("Relu", torch.relu),
        _unary("LeakyRelu", lambda x: F.leaky_relu(x, 0.2), {"alpha": 0.2}),
        _unary("LeakyRelu", lambda x: F.leaky_relu(x, 0.01), name="default"),
        _unary("HardSwish", F.hardswish),
        _unary("HardSigmoid", lambda x: (0.2 * x + 0.5).clamp(0, 1)),
        _unary(
            "HardSigmoid", lambda x: (0.3 * x + 0.4).clamp(0, 1), {"alpha": 0.3, "beta": 0.4},
            name="attributes",
        ),
        _unary("Sigmoid", torch.sigmoid),
        _unary("Tanh", torch.tanh),
        _unary("Exp", torch.exp),
        _unary("Log", torch.log, positive=True),
        _unary("Sqrt", torch.sqrt, positive=True),
        _unary("Neg", torch.neg),
        _unary("Abs", torch.abs),
        _unary("Reciprocal", torch.reciprocal, positive=True),
        _unary("Erf", torch.erf),
        _unary("Elu", lambda x: F.elu(x, 0.7), {"alpha": 0.7}),
        _unary("Selu", F.selu),
        _unary("Softplus", F.softplus),
        _unary("Softsign", F.softsign),
        _unary("Mish", F.mish, opset=18),
        _unary("Swish", F.silu, opset=24),
        _unary("Sin", torch.sin),
        _unary("Cos", torch.cos),
        _unary("Atan", torch.atan),
        _unary("Asin", torch.asin, positive=(-0.9, 0.9)),
        _unary("Acos", torch.acos, positive=(-0.9, 0.9)),
        _unary("Sinh", torch.sinh),
        _unary("Cosh", torch.cosh),
        _unary("Tan", torch.tan, positive=(-1.4, 1.4)),
        _unary("Asinh", torch.asinh),
        _unary("Acosh", torch.acosh, positive=(1.2, 4.0)),
        _unary("Atanh", torch.atanh, positive=(-0.9, 0.9)),
        _unary("Celu", lambda x: F.celu(x, 0.7), {"alpha": 0.7}),
        _unary("ThresholdedRelu", lambda x: F.threshold(x, 0.3, 0.0), {"alpha": 0.3}),
        _unary("Gelu", F.gelu, opset=20),
        _unary(
            "Gelu", lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}, 20,
            name="tanh",
        ),
        _unary("Identity", lambda x: x),
        Case("Cast", "half", [X((BATCH, 3, 5))], lambda x: x, {"to": 10}, reference=False),
        Case("CastLike", "float", [X((BATCH, 3)), floats([1.0])], lambda x, _: x, opset=19),
        Case("Clip", "attributes", [X((BATCH, 5))], lambda x: x.clamp(-0.5, 0.6),
             {"min": -0.5, "max": 0.6}, 9),
        Case("Clip", "inputs", [X((BATCH, 5)), floats(0.0), floats(0.7)],
             lambda x, a, b: x.clamp(0, 0.7), opset=13),
        Case("Clip", "high", [X((BATCH, 5)), None, floats(0.3)],
             lambda x, a, b: x.clamp(max=0.3), opset=13),
        Case("Clip", "low", [X((BATCH, 5)), floats(-0.1)], lambda x, a: x.clamp(min=-0.1)),
        Case("Clip", "relu6", [X((BATCH, 5)), floats(0.0), floats(6.0)],
             lambda x, a, b: torch.nn.functional.relu6(x)),
    ]  # fmt: skip
    return rows


def _binary_cases() -> list[Case]:
    full, rows = (BATCH, 3, 4), []
    meanings = {
        "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Pow": torch.pow,
        "Min": torch.minimum, "Max": torch.maximum,
    }  # fmt: skip
    for op, meaning in meanings.items():
        positive = op in ("Div", "Pow")
        for name, a, b in (
            ("same", X(full, positive), A(full, positive)),
            ("vector", X(full, positive), P((4,), positive)),
        ):
            rows.append(Case(op, name, [a, b], meaning))
    rows += [
        Case("Add", "left", [A((3, 1)), X(full)], torch.add),
        Case("Mul", "outer", [X((BATCH, 1, 4)), A((3, 1))], torch.mul),
        Case("Mul", "scalar", [X(full), P(())], torch.mul),
        Case("Mul", "channels", [X((BATCH, 3, 2, 4)), A((1, 3, 1, 1))], torch.mul),
        Case("Div", "constant", [X(full), floats([2.0])], lambda a, b: a / 2),
        Case("Pow", "square", [X(full), floats(2.0)], lambda a, b: a**2),
        Case("Pow", "root", [X(full, True), floats(0.5)], lambda a, b: a**0.5),
        Case("Div", "by rows", [X(full), A((BATCH, 1, 1), True)], torch.div),
        Case("Max", "three", [X(full), A(full), P((4,))],
             lambda a, b, c: torch.maximum(torch.maximum(a, b), c)),
        Case("Sum", "three", [X(full), A(full), P((4,))], lambda a, b, c: a + b + c),
        Case("Sum", "one", [X(full)], lambda a: a),
        Case("Add", "six", [X((BATCH, 1, 2, 1, 2, 1)), A((2, 1, 2, 1, 2))], torch.add),
    ]  # fmt: skip
    return rows


def _conv(name, x, w, bias=None, opset=17, **attrs) -> Case:
    function = (F.conv1d, F.conv2d, F.conv3d)[len(w) - 3]
    pads = attrs.get("pads", [0, 0] * (len(w) - 2))
    auto = attrs.get("auto_pad", "NOTSET")

    def meaning(x, w, b=None):
        stride, dilation = attrs.get("strides", 1), attrs.get("dilations", 1)
        around = list(pads)
        if auto.startswith("SAME"):
            around = _same(x.shape[2:], w.shape[2:], attrs, auto)
        rank = len(w.shape) - 2
        pairs = [v for k in reversed(range(rank)) for v in (around[k], around[k + rank])]
        return function(F.pad(x, pairs), w, b, stride, 0, dilation, attrs.get("group", 1))

    args = [X((BATCH, *x)), P(w), *([P((w[0],))] if bias else [])]
    return Case("Conv", name, args, meaning, attrs, opset)


def _same(sizes, kernel, attrs, auto) -> list[int]:
    before, after = [], []
    for k, size in enumerate(sizes):
        stride = attrs.get("strides", [1] * len(kernel))[k]
        span = attrs.get("dilations", [1] * len(kernel))[k] * (kernel[k] - 1) + 1
        total = max(0, (-(-size // stride) - 1) * stride + span - size)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return before + after


def _conv_cases() -> list[Case]:
    return [
        _conv("3x3", (4, 6, 7), (5, 4, 3, 3), True, pads=[1, 1, 1, 1]),
        _conv("1x1 no bias", (4, 3, 3), (6, 4, 1, 1)),
        _conv("strided", (3, 7, 8), (4, 3, 3, 3), True, strides=[2, 2], pads=[1, 1, 1, 1]),
        _conv("5x3 uneven", (2, 9, 8), (3, 2, 5, 3), True, strides=[2, 1], pads=[2, 0, 1, 1]),
        _conv("dilated", (2, 9, 9), (3, 2, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3]),
        _conv("groups", (4, 5, 5), (6, 2, 3, 3), True, group=2),
        _conv("depthwise", (4, 6, 6), (4, 1, 3, 3), True, group=4, pads=[1, 1, 1, 1]),
        _conv("depthwise 2", (3, 6, 6), (6, 1, 3, 3), group=3, strides=[2, 2]),
        _conv("same upper", (2, 6, 7), (3, 2, 4, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
        _conv("same lower", (2, 6, 7), (3, 2, 4, 2), auto_pad="SAME_LOWER"),
        _conv("valid", (2, 6, 7), (3, 2, 3, 3), auto_pad="VALID"),
        _conv("1-D", (3, 9), (4, 3, 3), True, pads=[1, 1]),
        _conv("padding alone", (2, 1, 1), (3, 2, 1, 1), True, strides=[2, 2], pads=[1] * 4),
        _conv(
            "3-D padding alone",
            (2, 1, 4, 4),
            (3, 2, 1, 1, 1),
            True,
            strides=[2, 1, 1],
            pads=[1] * 6,
        ),
        _conv(
            "3-D depth of padding alone",
            (2, 1, 4, 4),
            (3, 2, 2, 1, 1),
            True,
            strides=[3, 1, 1],
            dilations=[2, 1, 1],
            pads=[1, 0, 0] * 2,
        ),
        _conv("1-D groups", (4, 9), (4, 2, 3), strides=[2], dilations=[2], group=2, opset=11),
        _conv("3-D", (3, 4, 5, 6), (4, 3, 3, 3, 3), True, pads=[1] * 6),
        _conv(
            "3-D strided",
            (4, 6, 7, 5),
            (4, 2, 2, 3, 2),
            True,
            group=2,
            strides=[2, 1, 2],
            pads=[1, 0, 1, 0, 2, 1],
        ),
        _conv(
            "3-D dilated", (2, 7, 5, 4), (3, 2, 3, 1, 2), dilations=[2, 1, 1], pads=[2, 0, 0] * 2
        ),
        _conv(
            "3-D depth alone",
            (2, 6, 3, 4),
            (3, 2, 3, 1, 1),
            True,
            strides=[2, 1, 1],
            pads=[1, 0, 0] * 2,
        ),
        _conv("3-D pictures", (2, 3, 5, 4), (4, 2, 1, 3, 3), True, pads=[0, 1, 1] * 2),
        _conv("3-D patches", (2, 4, 6, 4), (5, 2, 2, 3, 2), strides=[2, 3, 2]),
        _conv("3-D depthwise", (3, 3, 4, 4), (3, 1, 3, 3, 3), group=3, pads=[1] * 6),
        _conv("3-D wide pads", (1, 2, 3, 3), (2, 1, 2, 2, 2), pads=[3, 1, 1, 4, 1, 1]),
        _conv("3-D same", (2, 5, 4, 4), (2, 2, 3, 2, 3), auto_pad="SAME_UPPER", strides=[2, 1, 2]),
        Case("Conv", "computed weight", [X((BATCH, 2, 4, 4)), A((3, 2, 3, 3))], F.conv2d),
        Case("Conv", "computed bias", [X((BATCH, 2, 4, 4)), P((3, 2, 3, 3)), A((3,))], F.conv2d),
    ]


def _pool(op, name, x, kernel, opset=17, **attrs) -> Case:
    rank, mode = len(kernel), attrs.get("ceil_mode", 0)
    stride = attrs.get("strides", [1] * rank)
    pads = attrs.get("pads", [0] * 2 * rank)
    if op == "MaxPool":
        function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]

        def meaning(x):
            around = (
                _same(x.shape[2:], kernel, attrs, attrs.get("auto_pad", ""))
                if (attrs.get("auto_pad"))
                else pads
            )
            pairs = [v for k in reversed(range(rank)) for v in (around[k], around[k + rank])]
            padded = F.pad(x, pairs, value=-1e30)
            return function(padded, kernel, stride, 0, attrs.get("dilations", 1), bool(mode))
    else:
        function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]

        def meaning(x):
            include = bool(attrs.get("count_include_pad", 0))
            if pads[:rank] == pads[rank:]:
                return function(x, kernel, stride, pads[:rank], bool(mode), include)
            pairs = [v for k in reversed(range(rank)) for v in (pads[k], pads[k + rank])]
            total = function(F.pad(x, pairs), kernel, stride)
            share = function(F.pad(torch.ones_like(x), pairs), kernel, stride)
            return total if include else total / share

    attrs = {"kernel_shape": list(kernel), **attrs}
    return Case(op, name, [X((BATCH, *x))], meaning, attrs, opset)


def _pool_cases() -> list[Case]:
    return [
        _pool("MaxPool", "2x2", (3, 6, 6), [2, 2], strides=[2, 2]),
        _pool("MaxPool", "overlapping", (2, 7, 7), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        _pool("MaxPool", "ceil", (2, 6, 7), [3, 2], strides=[2, 2], ceil_mode=1),
        _pool("MaxPool", "dilated", (2, 7, 7), [2, 2], dilations=[2, 2], strides=[1, 2]),
        _pool("MaxPool", "uneven pads", (2, 5, 6), [3, 3], strides=[2, 2], pads=[0, 1, 1, 2]),
        _pool("MaxPool", "same", (2, 5, 6), [2, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
        _pool("MaxPool", "1-D", (3, 8), [3], strides=[2], pads=[1, 1], opset=9),
        _pool("AveragePool", "2x2", (3, 6, 6), [2, 2], strides=[2, 2]),
        _pool("AveragePool", "padded", (2, 5, 5), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        _pool("AveragePool", "include pad", (2, 5, 5), [3, 3], pads=[1, 1, 1, 1],
              count_include_pad=1),
        _pool("AveragePool", "ceil", (2, 6, 6), [3, 3], strides=[2, 2], ceil_mode=1, opset=19),
        _pool("AveragePool", "uneven pads", (2, 5, 6), [3, 2], pads=[1, 0, 0, 1]),
        _pool("AveragePool", "1-D", (3, 8), [2], strides=[2]),
        _pool("MaxPool", "3-D", (2, 4, 5, 5), [2, 3, 2], strides=[2, 1, 2],
              pads=[1, 1, 0, 1, 1, 0]),
        _pool("AveragePool", "3-D", (2, 4, 5, 5), [2, 3, 2], strides=[1, 2, 2],
              pads=[1, 1, 0, 1, 1, 0]),
        _pool("AveragePool", "3-D include pad", (2, 4, 5, 5), [3, 3, 2], count_include_pad=1,
              pads=[1, 1, 0, 1, 1, 0]),
        _pool("AveragePool", "depth alone", (1, 7, 3, 3), [5, 1, 1]),
        Case("GlobalAveragePool", "2-D", [_IMAGE], lambda x: x.mean((2, 3), keepdim=True)),
        Case("GlobalAveragePool", "1-D", [X((BATCH, 3, 7))], lambda x: x.mean(2, keepdim=True)),
        Case("GlobalMaxPool", "2-D", [_IMAGE], lambda x: x.amax((2, 3), keepdim=True)),
    ]  # fmt: skip


def _norm_cases() -> list[Case]:
    def batch_norm(eps):
        def meaning(x, gamma, beta, mean, variance):
            return F.batch_norm(x, None, None, gamma, beta, True, 0.0, eps)

        return meaning

    def batch_norm_alone(x, gamma, beta, mean, variance):
        return F.batch_norm(x, None, None, gamma, None, True, 0.0, 1e-5)

    def stats(c):
        return [P((c,), True), P((c,)), P((c,), buffer=True), P((c,), True, True)]

    def layer_norm(x, gamma, beta=None):
        return F.layer_norm(x, gamma.shape, gamma, beta, 1e-5)

    batch = {"predicts": False, "reference": False}
    return [
        Case("BatchNormalization", "opset 9", [X((4, 3, 2, 3)), *stats(3)], batch_norm(1e-5),
             {"momentum": 0.9}, 9, **batch),
        Case("BatchNormalization", "opset 14", [X((4, 3, 5)), *stats(3)], batch_norm(1e-3),
             {"epsilon": 1e-3, "training_mode": 0}, 14, **batch),
        Case("BatchNormalization", "opset 15", [X((8, 3)), *stats(3)], batch_norm(1e-5), {}, 15,
             **batch),
        Case("BatchNormalization", "training mode", [X((4, 3, 2, 3)), *stats(3)],
             lambda *a: (batch_norm(1e-5)(*a),), {"training_mode": 1}, 15, 3, **batch),
        Case("BatchNormalization", "computed scale",
             [X((4, 3, 2, 3)), A((3,)), P((3,)), *stats(3)[2:]], batch_norm(1e-5), {}, 15, **batch),
        Case("BatchNormalization", "computed shift",
             [X((4, 3, 5)), P((3,)), A((3,)), *stats(3)[2:]], batch_norm(1e-5), {}, 15, **batch),
        Case("BatchNormalization", "computed scale, no shift",
             [X((4, 3, 5)), A((3,)), floats([0.0] * 3), *stats(3)[2:]], batch_norm_alone,
             {}, 15, **batch),
        Case("LayerNormalization", "last", [X((BATCH, 3, 8)), P((8,)), P((8,))], layer_norm),
        Case("LayerNormalization", "no bias", [X((BATCH, 3, 8)), P((8,))], layer_norm,
             {"axis": -1}),
        Case("LayerNormalization", "two axes", [X((BATCH, 3, 8)), P((3, 8)), P((3, 8))],
             layer_norm, {"axis": 1, "epsilon": 1e-5}),
    ]  # fmt: skip


def _linear_cases() -> list[Case]:
    def gemm(alpha=1.0, beta=1.0, ta=False, tb=False):
        def meaning(a, b, c=None):
            y = alpha * ((a.T if ta else a) @ (b.T if tb else b))
            return y if c is None else y + beta * c

        return meaning

    x = X((BATCH, 5))
    return [
        Case("Gemm", "linear", [x, P((3, 5)), P((3,))], gemm(tb=True), {"transB": 1}),
        Case("Gemm", "plain", [x, P((5, 3)), P((3,))], gemm()),
        Case("Gemm", "no C", [x, P((5, 3))], gemm(), opset=11),
        Case("Gemm", "alpha beta", [x, P((3, 5)), P((3,))], gemm(0.5, 2.0, tb=True),
             {"alpha": 0.5, "beta": 2.0, "transB": 1}),
        Case("Gemm", "C matrix", [x, P((5, 3)), P((BATCH, 3))], gemm()),
        Case("Gemm", "C row", [x, P((5, 3)), P((1, 3))], gemm()),
        Case("Gemm", "C column", [x, P((5, 3)), A((BATCH, 1))], gemm()),
        Case("Gemm", "C scalar", [x, P((5, 3)), P(())], gemm()),
        Case("Gemm", "C scalar scaled", [x, P((5, 3)), P(())], gemm(2.0, 0.5),
             {"alpha": 2.0, "beta": 0.5}),
        Case("Gemm", "C row scaled", [x, P((5, 3)), A((1, 3))], gemm(1.0, 0.5), {"beta": 0.5}),
        Case("Gemm", "C computed", [x, P((5, 3)), A((3,))], gemm()),
        Case("Gemm", "C one", [x, P((5, 1)), P((1,))], gemm()),
        Case("Gemm", "transA", [A((5, 4)), P((5, 3)), P((3,))], gemm(ta=True), {"transA": 1}),
        Case("Gemm", "both", [A((5, 4)), P((3, 5)), P((3,))], gemm(2.0, ta=True, tb=True),
             {"transA": 1, "transB": 1, "alpha": 2.0}),
        Case("MatMul", "matrix", [x, P((5, 3))], torch.matmul),
        Case("MatMul", "shared right", [X((BATCH, 3, 5)), P((5, 4))], torch.matmul),
        Case("MatMul", "batched", [X((BATCH, 3, 5)), A((BATCH, 5, 4))], torch.matmul),
        Case("MatMul", "heads", [X((BATCH, 3, 4, 5)), A((BATCH, 3, 5, 4))], torch.matmul),
        Case("MatMul", "shared left", [A((4, 3)), X((BATCH, 3, 5))], torch.matmul),
        Case("MatMul", "broadcast", [X((BATCH, 1, 3, 5)), A((3, 5, 4))], torch.matmul),
        Case("MatMul", "outer batch", [X((BATCH, 3, 2, 5)), A((1, 3, 5, 4))], torch.matmul),
        Case("MatMul", "vector right", [X((BATCH, 3, 5)), P((5,))], torch.matmul),
        Case("MatMul", "vector left", [P((3,)), X((BATCH, 3, 5))], torch.matmul),
        Case("MatMul", "vectors", [P((5,)), P((5,))], torch.matmul),
    ]  # fmt: skip


def _softmax_cases() -> list[Case]:
    x, rows = X((BATCH, 3, 4)), []
    for op, f in {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}.items():
        rows += [
            Case(op, "last", [x], lambda x, f=f: f(x, -1)),
            Case(op, "middle", [x], lambda x, f=f: f(x, 1), {"axis": 1}, 13),
            Case(op, "flattened", [x], lambda x, f=f: f(x.flatten(1), 1).reshape(x.shape), {},
                 11, reference=False),
            Case(op, "old last", [x], lambda x, f=f: f(x, 2), {"axis": 2}, 9),
        ]  # fmt: skip
    return rows


def _dropout_cases() -> list[Case]:
    """Evaluation and `without_dropout` pass everything through; the mask has its own test."""
    x = X((BATCH, 3, 4))
    return [
        Case("Dropout", "attribute", [x], lambda x: x, {"ratio": 0.4}, 7, reference=False),
        Case("Dropout", "input", [x, floats(0.4), C(True, np.bool_)], lambda x, *_: x, {}, 12,
             reference=False),
        Case("Dropout", "none", [x, floats(0.0)], lambda x, _: x, {}, 13),
    ]  # fmt: skip


def _branch(op: str):
    """A subgraph whose output is `op` of the case's second argument."""
    node = onnx.helper.make_node(op, ["a1"], [op])
    output = onnx.helper.make_tensor_value_info(op, onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_graph([node], op, [], [output])


def _control_cases() -> list[Case]:
    x, branches = X((BATCH, 3)), {"then_branch": _branch("Tanh"), "else_branch": _branch("Neg")}
    return [
        Case("If", "then", [C(True, np.bool_), x], lambda _, x: x.tanh(), branches, captured=1),
        Case("If", "else", [C(False, np.bool_), x], lambda _, x: -x, branches, captured=1),
    ]


CASES: list[Case] = [
    *_unary_cases(), *_binary_cases(), *_conv_cases(), *_pool_cases(), *_norm_cases(),
    *_linear_cases(), *_softmax_cases(), *_dropout_cases(),
    *_control_cases(),
    *cases_composed.CASES, *cases_fourier.CASES, *cases_images.CASES,
    *cases_losses.CASES, *cases_movement.CASES,
    *cases_masks.CASES,
    *cases_random.CASES, *cases_sampling.CASES, *cases_sequences.CASES, *cases_quantised.CASES,
]  # fmt: skip
