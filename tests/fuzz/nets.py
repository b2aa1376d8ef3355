"""The nets whose Programs are mutated; together they cover every family and mode.

ALL: the nets of this file, and a run of every kind that later versions can resume. `parts`:
Programs with one operator, loss or optimizer each, whose kernels are tried one by one.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

import edgetrain as et
from edgetrain.ops.model import Model
from edgetrain.program import Program

from ..cases import CASES
from ..compiler.nets import Net, residual
from ..compiler.test_segments import every_step, last_step, lengths
from ..losses.cases import LOSS_CASES
from ..ops import harness
from ..optim.cases import OPTIMIZER_CASES
from ..planner import hurried
from ..program import sets
from ..upgrades import kinds
from ..upgrades.nets import write_net


def _mlp() -> Model:
    net = Net(12)
    x = net.add("Gemm", ["x", net.weight("one.w", 12, 16), net.weight("one.b", 16)], "one")
    x = net.add("Tanh", [x], "act")
    return net.model(net.add("Gemm", [x, net.weight("two.w", 16, 3)], "logits"))


def _channels() -> Model:
    """Enough channels and pixels for Winograd convolutions."""
    net = Net(3, 12, 12)
    x = net.norm(net.conv("x", "stem", 32, 3), "norm", 32)
    return net.model(net.head(net.conv(net.add("Relu", [x], "act"), "wide", 32, 32), 32))


def _depthwise() -> Model:
    net = Net(4, 8, 8)
    x = net.norm(net.conv("x", "stem", 8, 4, 1), "norm", 8)
    attrs = {"group": 8, "pads": [1] * 4, "strides": [2, 2]}
    x = net.add("Conv", [x, net.weight("deep.w", 8, 1, 3, 3)], "deep", **attrs)
    x = net.add("HardSwish", [x], "act")
    x = net.add("AveragePool", [x], "average", kernel_shape=[2, 2], strides=[2, 2])
    return net.model(net.head(net.conv(x, "project", 6, 8, 1), 6))


def _transposed() -> Model:
    net = Net(3, 6, 6)
    x = net.conv("x", "down", 6, 3)
    x = net.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("ConvTranspose", [x, net.weight("up.w", 6, 4, 2, 2)], "up", strides=[2, 2])
    net.constants["scales"] = np.float32([1, 1, 1.5, 2])
    x = net.add("Resize", [x, "", "scales"], "resized", mode="linear")
    return net.model(net.head(net.add("LRN", [x], "lrn", size=3), 4))


def _lstm() -> Model:
    net, hidden = Net(7, 5), 6
    x = net.add("Transpose", ["x"], "turned", perm=[1, 0, 2])
    weights = [net.weight("w", 2, 4 * hidden, 5), net.weight("r", 2, 4 * hidden, hidden)]
    attrs = {"hidden_size": hidden, "direction": "bidirectional"}
    x = net.add("LSTM", [x, *weights, net.weight("b", 2, 8 * hidden)], "states", **attrs)
    x = net.add("ReduceMean", [x], "mean", axes=[0, 1], keepdims=0)
    return net.model(net.add("Gemm", [x, net.weight("fc.w", hidden, 3)], "logits"))


def _attention(tokens: int = 6) -> Model:
    net, wide = Net(tokens, dtype=TensorProto.INT64), 8
    x = net.add("Gather", [net.weight("tokens", 11, wide), "x"], "embedded")
    q, k, v = (net.add("MatMul", [x, net.weight(f"{n}.w", wide, wide)], n) for n in "qkv")
    turned = net.add("Transpose", [k], "turned", perm=[0, 2, 1])
    scores = net.add("Softmax", [net.add("MatMul", [q, turned], "scores")], "shares", axis=-1)
    x = net.add("Add", [net.add("MatMul", [scores, v], "mixed"), x], "sum")
    parameters = [net.weight("norm.gamma", wide), net.weight("norm.beta", wide)]
    x = net.add("LayerNormalization", [x, *parameters], "normed")
    x = net.add("ReduceMean", [x], "mean", axes=[1], keepdims=0)
    return net.model(net.add("Gemm", [x, net.weight("fc.w", wide, 3)], "logits"))


def _pools() -> Model:
    net = Net(2, 9, 9)
    x = net.add("MaxPool", [net.conv("x", "stem", 4, 2)], "most", kernel_shape=[3, 3], pads=[1] * 4)
    x = net.add("AveragePool", [x], "average", kernel_shape=[3, 3], strides=[2, 2])
    parts = [net.add("Relu", [x], "relu"), net.add("Sigmoid", [x], "gate")]
    return net.model(net.head(net.add("Concat", parts, "joined", axis=1), 8))


def _norms() -> Model:
    net = Net(2, 9, 9)
    x = net.add("LpPool", [net.conv("x", "stem", 4, 2)], "window", kernel_shape=[3, 3], p=3)
    parts = [
        net.add(op, [x], op.lower(), axes=[2, 3])
        for op in ("ReduceL1", "ReduceL2", "ReduceLogSumExp")
    ]
    squares = net.add("ReduceSumSquare", [x], "squares", axes=[2, 3])
    logs = net.add("ReduceLogSum", [net.add("Abs", [x], "size")], "logs", axes=[2, 3])
    return net.model(net.head(net.add("Concat", [*parts, squares, logs], "joined", axis=1), 20))


def quantised() -> Model:
    """Activations with a scale; a weight with a scale and a zero point per column."""
    net = Net(12)

    def rounded(x: str, scale, zero, dtype, **attrs) -> str:
        net.constants |= {f"{x}.scale": np.float32(scale), f"{x}.zero": np.array(zero, dtype)}
        grid = [f"{x}.scale", f"{x}.zero"]
        whole = net.add("QuantizeLinear", [x, *grid], f"{x}.whole", **attrs)
        return net.add("DequantizeLinear", [whole, *grid], f"{x}.rounded", **attrs)

    weight = rounded(net.weight("one.w", 12, 3), [2**-6, 2**-7, 2**-8], [3, 128, 9], np.uint8)
    x = net.add("MatMul", [rounded("x", 2**-5, -7, np.int8), weight], "one")
    x = rounded(net.add("Relu", [x], "act"), 2**-4, 0, np.uint8)
    return net.model(net.add("MatMul", [x, net.weight("two.w", 3, 3)], "logits"))


def _heads() -> Model:
    """Two outputs with one matrix each, after a shared layer."""
    net = Net(6)
    h = net.add("Tanh", [net.add("MatMul", ["x", net.weight("w", 6, 6)], "h")], "t")
    return net.model(*(net.add("MatMul", [h, net.weight(f"w{n}", 6, 3)], n) for n in "ab"))


def _words() -> Model:
    """Token ids [batch, 6] -> scores of 600 words; a minibatch touches few rows."""
    net, words, wide = Net(6, dtype=TensorProto.INT64), 600, 4
    x = net.add("Gather", [net.weight("tokens", words, wide), "x"], "embedded")
    x = net.add("Tanh", [net.add("MatMul", [x, net.weight("fc1.w", wide, wide)], "mixed")], "bent")
    return net.model(net.add("MatMul", [x, net.weight("fc.w", wide, words)], "logits"))


_SPARSE: dict[str, Any] = {"density": 0.4, "rewiring": "dsr", "minibatch": 8, "microbatch": 4}
_UNCLIPPED: dict[str, Any] = {"max_grad_norm": 0.0}
_FUSED: dict[str, Any] = {**_SPARSE, "microbatch": 8, "fused_update": True, **_UNCLIPPED}
_HEAD: dict[str, Any] = {"train": ("fc.*",)}
_TIME: dict[str, Any] = {"minibatch": 6, "microbatch": 3}
NETS: dict[str, tuple[Callable[[], Model], dict]] = {
    "mlp": (_mlp, {"optimizer": "adamw"}),
    "residual": (residual, {}),
    "groups": (_mlp, {"groups": [et.Group("two.*", lr=0.3)], "minibatch": 4}),
    "depthwise": (_depthwise, {}),
    "channels": (_channels, {"minibatch": 8, "microbatch": 8}),
    "sparse channels": (_channels, {**_SPARSE, "density": 0.5, "microbatch": 8}),
    "transposed": (_transposed, {}),
    "quantised": (quantised, {}),
    "lstm": (_lstm, {}),
    "attention": (_attention, {"optimizer": "adam"}),
    "sparse": (residual, _SPARSE),
    "fused sparse": (residual, _FUSED),
    "sparse int8 memory": (residual, {**_SPARSE, "model_memory": "int8"}),
    "attention by blocks": (lambda: _attention(96), {"allow": ("attention",)}),
    "sparse attention": (_attention, _SPARSE),
    "frozen int8": (_attention, {**_HEAD, "frozen": "int8"}),
    "frozen int4": (_attention, {**_HEAD, "frozen": "int4"}),
    "frozen int8 convolutions": (residual, {"train": ("*bn*",), "frozen": "int8"}),
    "frozen int4 convolutions": (residual, {"train": ("*bn*",), "frozen": "int4"}),
    "frozen norms": (residual, {"freeze_bn": True}),
    "pools": (_pools, {"minibatch": 4}),
    "norms": (_norms, {"minibatch": 4}),
    "fp16": (lambda: residual(0.25), {"precision": "fp16", "optimizer": et.SGD(momentum=0.9)}),
    "int8 memory": (residual, {"precision": "fp16", "model_memory": "int8", "optimizer": "adam"}),
    "saved int8": (lambda: residual(0.25), {"saved": "int8"}),
    "adafactor": (_mlp, {"optimizer": "adafactor"}),
    "fused": (_mlp, {"optimizer": "lion", "microbatch": 8, "fused_update": True, **_UNCLIPPED}),
    "slices": (_words, {"allow": ("slices",)}),
    "rows": (_words, {"allow": ("rows",), "optimizer": "sgd", **_UNCLIPPED}),
    "adapters": (_attention, {"lora": "r=2,targets=q.w,v.w", "frozen": "int8"}),
    "two losses": (_heads, {"losses": {"a": "cross_entropy", "b": et.Loss("huber", weight=0.5)}}),
    "segments": (every_step, {**_TIME, "segments": 3}),
    "segments of lengths": (lengths, {"minibatch": 3, "microbatch": 3, "segments": 3}),
    "truncated time": (last_step, {**_TIME, "bptt": 20}),
}


# Kernels on no tape of these nets: schedules and counters, which the runtime calls, and kernels
# that no model uses. They are called by hand.
BY_HAND = (
    "bgrad_mod_b", "counters_reset", "rate_constant", "rate_cosine", "rate_drop",
    "rate_exponential", "rate_inverse_sqrt", "rate_one_cycle", "rate_plateau", "rate_plateau_all",
    "rate_polynomial", "rate_step",
)  # fmt: skip
RUNS = tuple(f"run {name}" for name in kinds.KINDS)
# Programs with several sets of tapes.
SETS: dict[str, Callable[[], Program]] = {"two lengths": sets.lengths, "two arenas": sets.arenas}
ALL = (*NETS, *SETS, *RUNS)


def compiled(name: str, **others) -> Program:
    """Compile one of ALL; `others` add to or replace the options of one of NETS."""
    if name in SETS:
        return SETS[name]()
    if name in RUNS:
        kind = kinds.KINDS[name.removeprefix("run ")]
        with tempfile.TemporaryDirectory() as folder, hurried():
            return kinds.compiled(kind, write_net(kind.net, Path(folder, "model.onnx")))
    build, options = NETS[name]
    return _compiled(build(), **options | others)


def _compiled(model: Model, **options) -> Program:
    settings = {"minibatch": 8, "microbatch": 4, "threads": 2, "max_grad_norm": 1.0} | options
    with hurried():
        return et.compile(model, **settings)


def _linear(*shape: int) -> Model:
    """A matrix applied to the last axis of x [batch, shape]."""
    net = Net(*shape)
    return net.model(net.add("MatMul", ["x", net.weight("w", shape[-1], shape[-1])], "y"))


def parts() -> Iterator[tuple[str, Program]]:
    """Yield Programs with one operator, loss or optimizer each, by name."""
    for case in CASES:
        yield f"op {case.id}", harness.program(harness.build(case))
    for name, (loss, shape) in LOSS_CASES.items():
        whole = {"microbatch": None} if loss.joins_samples else {}
        yield f"loss {name}", _compiled(_linear(*shape), loss=loss, **whole)
    for name, optimizer in OPTIMIZER_CASES.items():
        yield f"optimizer {name}", _compiled(_mlp(), optimizer=optimizer)
        if optimizer.fusable:
            fused = _compiled(residual(), **{**_FUSED, "optimizer": optimizer})
            yield f"sparse {name} fused", fused
