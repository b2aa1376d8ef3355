"""Whole training steps: edgetrain against torch in one process, interleaved.

    python -m benchmarks.step [--threads 1 2] [--rounds N] [CASE ...]

A step is loss, backward, rounding, optimizer and, for sparse weights, whatever the format needs.
torch runs fp32 on the same microbatches, in its better memory format. In a round every contender
has its turn: a pause, in which the others' threads stop spinning, a step that is not timed and one
that is. Times are medians (and the 20th percentile) over rounds; ratios are torch's time over ours.
"""

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from edgetrain.api import compile as compile_program
from edgetrain.optim import SGD
from edgetrain.runtime.session import Session
from examples.zoo import ZOO
from examples.zoo.resnet import ResNet

from .nets import exported

LR, MOMENTUM = 0.01, 0.9
PAUSE = 0.02  # seconds


@dataclass(frozen=True)
class Case:
    """A net, a microbatch and the options of our side."""

    build: Callable[[], nn.Module]
    size: int
    classes: int
    microbatch: int = 10
    options: dict[str, Any] = field(default_factory=dict)


def _wrn() -> nn.Module:
    return ZOO["wrn28_2"].build("full")


def _resnet18() -> nn.Module:
    return ResNet((2, 2, 2, 2), False, 64, 10)


def _mobilenet() -> nn.Module:
    return ZOO["mobilenet_v2"].build("full")


CASES = {
    "WRN-28-2 fp32": Case(_wrn, 32, 10, options={"precision": "fp32"}),
    "WRN-28-2 fp16": Case(_wrn, 32, 10, options={"precision": "fp16"}),
    "WRN-28-2 fp16, 12.2 MB": Case(_wrn, 32, 10, options={"precision": "fp16", "budget": "12.2MB"}),
    "WRN-28-2 fp16, density 0.3": Case(_wrn, 32, 10, options={"precision": "fp16", "density": 0.3}),
    "WRN-28-2 fp16, density 0.2": Case(_wrn, 32, 10, options={"precision": "fp16", "density": 0.2}),
    "WRN-28-2 fp16, density 0.1": Case(_wrn, 32, 10, options={"precision": "fp16", "density": 0.1}),
    "WRN-28-2 fp16, density 0.3, 6.7 MB": Case(
        _wrn, 32, 10, options={"precision": "fp16", "density": 0.3, "budget": "6.7MB"}
    ),
    "ResNet-18 at 64, fp16": Case(_resnet18, 64, 10, 8, {"precision": "fp16"}),
    "MobileNetV2 at 64, fp16": Case(_mobilenet, 64, 1000, 8, {"precision": "fp16"}),
}


def ours(case: Case, module: nn.Module, x: np.ndarray, y: np.ndarray, threads: int):
    """One training step of a compiled Program, as a function."""
    model = exported(copy.deepcopy(module), (torch.from_numpy(x[:2]),))
    program = compile_program(
        model, minibatch=len(x), microbatch=case.microbatch, threads=threads,
        optimizer=SGD(LR, momentum=MOMENTUM, nesterov=True), **case.options,
    )  # fmt: skip
    session = Session(program)
    images, targets = program.inputs["micro"][0], program.targets["micro"]

    def fill(indices: np.ndarray) -> None:
        session.arena.view(images)[...] = x[indices]
        session.arena.view(targets)[...] = y[indices]

    def step() -> None:
        session.minibatch(len(x), fill)

    return step, program


def theirs(case: Case, module: nn.Module, x: np.ndarray, y: np.ndarray, memory_format):
    """The same step in torch, fp32."""
    net = copy.deepcopy(module).to(memory_format=memory_format).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, nesterov=True)
    images = torch.from_numpy(x).contiguous(memory_format=memory_format)
    targets = torch.from_numpy(y)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        for k in range(0, len(x), case.microbatch):
            part = slice(k, k + case.microbatch)
            loss = nn.functional.cross_entropy(net(images[part]), targets[part])
            (loss * case.microbatch / len(x)).backward()
        optimizer.step()

    return step


def measure(name: str, threads: int, rounds: int) -> str:
    """A row of the table."""
    case = CASES[name]
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    random = np.random.default_rng(0)
    count = 2 * case.microbatch
    x = random.standard_normal((count, 3, case.size, case.size)).astype(np.float32)
    y = random.integers(0, case.classes, count)
    module = case.build()
    step, program = ours(case, module, x, y, threads)
    contenders = [
        step,
        theirs(case, module, x, y, torch.contiguous_format),
        theirs(case, module, x, y, torch.channels_last),
    ]
    seconds = np.zeros((rounds, len(contenders)))
    for run in contenders:
        run()
        run()
    for row in range(rounds):
        for column, run in enumerate(contenders):
            time.sleep(PAUSE)
            run()
            start = time.perf_counter()
            run()
            seconds[row, column] = time.perf_counter() - start
    median, fast = np.median(seconds, axis=0), np.percentile(seconds, 20, axis=0)
    return (
        f"| {name} | {threads} | {program.arena_nbytes:,} | {median[0] * 1e3:.1f} | "
        f"{median[1] * 1e3:.1f} | {median[2] * 1e3:.1f} | {median[1:].min() / median[0]:.2f} | "
        f"{fast[1:].min() / fast[0]:.2f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; expected of: {', '.join(CASES)}")
    print(
        "| case | threads | arena, bytes | ours, ms a step of 2 microbatches | torch NCHW | "
        "torch channels_last | ratio of medians | of p20 |\n|---|---|---|---|---|---|---|---|"
    )
    for name in args.cases or CASES:
        for threads in args.threads:
            print(measure(name, threads, args.rounds), flush=True)


if __name__ == "__main__":
    main()
