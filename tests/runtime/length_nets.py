"""Taggers for sequences of any length T, and samples of several lengths."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper, parser
from torch.nn.functional import ctc_loss, one_hot

import edgetrain as et
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.model import Model
from edgetrain.program import Program

from ..planner import hurried

FEATURES, WIDTH, CLASSES = 4, 6, 3
LENGTHS = (4, 7, 12)
OPTIONS = {"microbatch": 4, "minibatch": 8, "threads": 1, "seed": 3,
           "optimizer": et.SGD(lr=0.1, momentum=0.9)}  # fmt: skip
_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
# Positions see the mean of all unmasked positions, or only themselves.
_MASKED = """net (float[batch, T, 4] x, float[batch, T] mask) => (float[batch, T, 3] logits) {
  axis2 = Constant<value_ints=[2]>() axis1 = Constant<value_ints=[1]>()
  wide = MatMul(x, w1) column = Unsqueeze(mask, axis2) seen = Mul(wide, column)
  sum = ReduceSum<keepdims=1>(seen, axis1) count = ReduceSum<keepdims=1>(column, axis1)
  mean = Div(sum, count) both = Add(wide, mean) tanh = Tanh(both) logits = MatMul(tanh, w2) }"""
_ALONE = """net (float[batch, T, 4] x) => (float[batch, T, 3] logits) {
  wide = MatMul(x, w1) tanh = Tanh(wide) logits = MatMul(tanh, w2) }"""
# One class per sequence; its length is another input.
_COUNTED = """net (float[batch, T, 4] x, float[batch, 1] lengths) => (float[batch, 3] logits) {
  axis1 = Constant<value_ints=[1]>() wide = MatMul(x, w1)
  sum = ReduceSum<keepdims=0>(wide, axis1) mean = Div(sum, lengths)
  tanh = Tanh(mean) logits = MatMul(tanh, w2) }"""
# Positions are numbered by a constant for each length.
_PLACED = """net (float[batch, T, 4] x) => (float[batch, T, 3] logits) {
  shape = Shape(x) one = Constant<value_ints=[1]>() zero = Constant<value = int64 {0}>()
  step = Constant<value = int64 {1}>() length = Gather(shape, step)
  places = Range(zero, length, step) numbers = Cast<to=1>(places) waves = Cos(numbers)
  column = Unsqueeze(waves, one) wide = MatMul(x, w1) both = Mul(wide, column) tanh = Tanh(both)
  logits = MatMul(tanh, w2) }"""
_TWO = """net (float[batch, T, 4] x) => (float[batch, T, 3] logits, float[batch, T, 6] wide) {
  wide = MatMul(x, w1) tanh = Tanh(wide) logits = MatMul(tanh, w2) }"""
NETS = {
    "masked": _MASKED,
    "alone": _ALONE,
    "many": _ALONE.replace("3] logits", "16] logits"),
    "counted": _COUNTED,
    "placed": _PLACED,
    "two": _TWO,
}


def proto(kind: str) -> onnx.ModelProto:
    made = parser.parse_model(_HEAD + NETS[kind])
    rng = np.random.default_rng(1)
    classes = 16 if kind == "many" else CLASSES
    for name, shape in (("w1", (FEATURES, WIDTH)), ("w2", (WIDTH, classes))):
        weight = (rng.standard_normal(shape) / 2).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(weight, name))
    return made


def decoded(made: onnx.ModelProto) -> Model:
    return decode(parse(made.SerializeToString(), "net"), Path("net"))


def model(kind: str = "masked") -> Model:
    return decoded(proto(kind))


@functools.cache
def compiled(
    kind: str = "masked", loss: str | et.Loss = "cross_entropy", lengths: tuple[int, ...] = LENGTHS
) -> Program:
    with hurried():
        return et.compile(model(kind), lengths=lengths, loss=loss, verbose=False, **OPTIONS)


def alone(length: int, kind: str = "masked", **options) -> Program:
    with hurried():
        return et.compile(model(kind), dims={"T": length}, verbose=False, **OPTIONS | options)


def sequences(n: int = 60, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """(x [T, 4], classes [T]) for sequences of 2 to 12 positions."""
    rng = np.random.default_rng(seed)
    found = []
    for length in rng.integers(2, 13, n):
        x = rng.standard_normal((length, FEATURES)).astype(np.float32)
        found.append((x, x[:, :CLASSES].argmax(axis=1)))
    return found


# Losses that are a mean over samples, whatever the length of each, and nets for them.
LOSSES = {
    "dice": ("alone", "dice"),
    "ctc": ("alone", "ctc"),
    "ctc of counted steps": ("many", et.Loss("ctc", input_lengths=True)),
}


def samples_of(loss: str, n: int = 22, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Samples for one of LOSSES; those of plain CTC have lengths of LENGTHS."""
    if loss == "dice":
        return sequences(n, seed)
    result = []
    for k, (x, _) in enumerate(sequences(n, seed)):
        if loss == "ctc":
            x = np.resize(x, (LENGTHS[k % 3], FEATURES))
        counted = [] if loss == "ctc" else [len(x)]
        result.append((x, np.array([*counted, 1, 2, *[-100] * (len(x) - 2)])))
    return result


def weighted(loss: str) -> Program:
    """A Program with one of LOSSES and sample weights."""
    kind, one = LOSSES[loss]
    own = et.Loss.of(one) if isinstance(one, str) else one
    return compiled(kind, dataclasses.replace(own, sample_weights=True))


def mean_loss(
    loss: str,
    samples: list[tuple[np.ndarray, np.ndarray]],
    sample_weights: list[float] | None = None,
) -> float:
    """The mean of one of LOSSES, by torch in float64, each sample without padding."""
    weights = model(LOSSES[loss][0]).initializers
    w1, w2 = (torch.tensor(weights[name]).double() for name in ("w1", "w2"))
    losses = []
    for x, y in samples:
        logits = torch.tanh(torch.tensor(x).double() @ w1) @ w2
        if loss == "dice":
            p, t = logits.softmax(1), one_hot(torch.tensor(y), CLASSES)
            losses.append(1 - ((2 * (p * t).sum(0) + 1) / (p.sum(0) + t.sum(0) + 1)).mean())
        else:
            sizes = torch.tensor([len(x)]), torch.tensor([2])
            losses.append(ctc_loss(logits.log_softmax(1)[:, None], torch.tensor([[1, 2]]), *sizes))
    each = torch.tensor(sample_weights or [1.0] * len(losses)).double()
    return ((torch.stack(losses) * each).sum() / each.sum()).item()


def padded(samples: list[tuple[np.ndarray, np.ndarray]], width: int = 14) -> dict[str, np.ndarray]:
    """The samples as arrays; after the end of a sample, y has values that must not count."""
    x = np.zeros((len(samples), width, FEATURES), np.float32)
    y = np.ones((len(samples), width), np.int64)
    for row, (own, classes) in enumerate(samples):
        x[row, : len(own)], y[row, : len(own)] = own, classes
    return {"x": x, "y": y, "lengths": np.array([len(own) for own, _ in samples])}
