"""Programs with several tape sets: for two arenas, and for two lengths."""

import functools

import numpy as np

import edgetrain as et
from edgetrain.program import Program

from ..compiler.nets import Net
from ..planner import hurried

OPTIONS = {
    "minibatch": 8, "microbatch": 4, "threads": 1, "seed": 3,
    "optimizer": et.SGD(lr=0.1, momentum=0.9),
}  # fmt: skip
LENGTHS = (5, 3)


def sequences(width: int = 6):
    """x [batch, T, 4]; positions, constants of length T, are added to each row."""
    net = Net("T", 4)  # type: ignore[arg-type]
    net.constants |= {"one": np.int64(1), "zero": np.int64(0), "ends": np.int64([1])}
    length = net.add("Gather", [net.add("Shape", ["x"], "shape"), "one"], "length")
    count = net.add("Cast", [net.add("Range", ["zero", length, "one"], "range")], "floats", to=1)
    place = net.add("Unsqueeze", [count, "ends"], "place")
    x = net.add("MatMul", ["x", net.weight("in.w", 4, width)], "wide")
    x = net.add("Tanh", [net.add("Add", [x, place], "placed")], "tanh")
    x = net.add("MatMul", [x, net.weight("deep.w", width, width)], "deep")
    x = net.add("Sigmoid", [x], "gate")
    x = net.add("ReduceMean", [x], "mean", axes=[1], keepdims=0)
    return net.model(net.add("Gemm", [x, net.weight("fc.w", width, 3)], "logits"))


def of_length(length: int, **options) -> Program:
    with hurried():
        return et.compile(sequences(), dims={"T": length}, **{**OPTIONS, **options})


@functools.cache
def lengths() -> Program:
    """Sets for LENGTHS, with the longest as default."""
    first, *others = [of_length(length) for length in LENGTHS]
    return first.joined(others)


@functools.cache
def arenas() -> Program:
    """The set of the fastest plan, and that of the smallest arena."""
    with hurried():
        least = et.plan(sequences(), dims={"T": 40}, **OPTIONS)["min_budget_nbytes"]
    large, small = of_length(40), of_length(40, budget=least)
    assert small.arena_nbytes < large.arena_nbytes
    return large.joined([small])
