"""Whole training steps: edgetrain against torch in one process, interleaved.

    python -m benchmarks.step [--threads 1 2] [--clock cpu] [--rounds N] [CASE ...]

A step is loss, backward, rounding, optimizer and, for sparse weights, whatever the format needs.
torch runs fp32 on the same microbatches, and image nets in its better memory format. In each round,
every contender pauses until the others' threads stop spinning, then runs one untimed and one timed
step. Times are medians (and 20th percentiles) over rounds; ratios are torch's time over ours. On a
busy machine, use `--clock cpu --threads 1`: CPU time excludes other processes' time slices, though
not their effect on caches.
"""

import argparse
import copy
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from edgetrain.api import compile as compile_program
from edgetrain.losses import Loss
from edgetrain.optim import SGD
from edgetrain.runtime.session import Session
from examples.zoo import ZOO
from examples.zoo.resnet import ResNet
from examples.zoo.spec import ZooModel

from .nets import exported

LR, MOMENTUM = 0.01, 0.9
PAUSE = 0.02  # seconds
LEAST_ROUNDS = 3
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Case:
    """A net of the zoo, the microbatch size, microbatches per step, and options of our side.

    Attributes:
      size: of images, if not the zoo's.
    """

    zoo: str
    microbatch: int = 10
    options: dict[str, Any] = field(default_factory=dict)
    microbatches: int = 2
    size: int = 0

    @property
    def entry(self) -> ZooModel:
        return ZOO[self.zoo]

    def module(self) -> nn.Module:
        """Create the module, initialized from torch's generator."""
        if self.zoo == "resnet18":
            return ResNet((2, 2, 2, 2), False, self.size, 10)
        return self.entry.build("full")

    def samples(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of a step."""
        count = self.microbatches * self.microbatch
        x, y = self.entry.example_inputs(count, "full")[0], self.entry.target(count, "full")
        if self.size:
            x = torch.randn(count, 3, self.size, self.size)
        return x, y % 10 if self.zoo == "resnet18" else y


def _wrn(**options: Any) -> Case:
    return Case("wrn28_2", 10, options)


_FP16 = {"precision": "fp16"}
CASES = {
    "WRN-28-2 fp32": _wrn(precision="fp32"),
    "WRN-28-2 fp16": _wrn(**_FP16),
    "WRN-28-2 fp16, 12.2 MB": _wrn(**_FP16, budget="12.2MB"),
    "WRN-28-2 fp16, density 0.3": _wrn(**_FP16, density=0.3),
    "WRN-28-2 fp16, density 0.2": _wrn(**_FP16, density=0.2),
    "WRN-28-2 fp16, density 0.1": _wrn(**_FP16, density=0.1),
    "WRN-28-2 fp16, density 0.3, 6.7 MB": _wrn(**_FP16, density=0.3, budget="6.7MB"),
    "ResNet-18 at 64, fp16": Case("resnet18", 8, _FP16, size=64),
    "ResNet-18 at 128, fp16": Case("resnet18", 4, _FP16, size=128),
    "MobileNetV2 at 64, fp16": Case("mobilenet_v2", 8, _FP16, size=64),
    "ViT-tiny": Case("vit_tiny", 4),
    "GPT-2, one sequence": Case("gpt", 1, microbatches=1),
    "LSTM language model": Case("lstm_language_model", 8),
    "MLP, minibatch 32": Case("mlp", 32, microbatches=1),
    "MLP, minibatch 1": Case("mlp", 1, microbatches=1),
}


def ours(case: Case, module: nn.Module, x: torch.Tensor, y: torch.Tensor, threads: int):
    """Return one training step of a compiled Program as a function, and the Program."""
    model = exported(copy.deepcopy(module), (x[:2] if len(x) > 1 else x.repeat_interleave(2, 0),))
    program = compile_program(
        model, loss=Loss(case.entry.loss), minibatch=len(x), microbatch=case.microbatch,
        threads=threads, optimizer=SGD(LR, momentum=MOMENTUM, nesterov=True), verbose=False,
        **case.options,
    )  # fmt: skip
    session = Session(program)
    views = [session.arena.view(slot) for slot in program.staged("micro").values()]
    arrays = x.numpy(), y.numpy()

    def fill(indices: np.ndarray) -> None:
        for view, array in zip(views, arrays, strict=True):
            view[...] = array[indices].reshape(view.shape)

    def step() -> None:
        session.minibatch(len(x), fill)

    return step, program


def theirs(case: Case, module: nn.Module, x: torch.Tensor, y: torch.Tensor, memory_format):
    """Return the same step in torch, in fp32."""
    net = copy.deepcopy(module).to(memory_format=memory_format).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, nesterov=True)
    inputs = x.contiguous(memory_format=memory_format)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        for k in range(0, len(x), case.microbatch):
            part = slice(k, k + case.microbatch)
            loss = case.entry.loss_value(net(inputs[part]), y[part])
            (loss * case.microbatch / len(x)).backward()
        optimizer.step()

    return step


def measure(name: str, threads: int, rounds: int, seconds: float, clock: str) -> str:
    """Return a row of the table."""
    case, now = CASES[name], CLOCKS[clock]
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    module, (x, y) = case.module(), case.samples()
    step, program = ours(case, module, x, y, threads)
    formats = [torch.contiguous_format, torch.channels_last][: 2 if x.dim() == 4 else 1]
    contenders = [step, *(theirs(case, module, x, y, how) for how in formats)]
    found: list[list[float]] = []
    for run in contenders:
        run()
    end = time.perf_counter() + seconds
    while len(found) < rounds and (len(found) < LEAST_ROUNDS or time.perf_counter() < end):
        found.append([])
        for run in contenders:
            time.sleep(PAUSE)
            run()
            start = now()
            run()
            found[-1].append(now() - start)
    median, fast = np.median(found, axis=0), np.percentile(found, 20, axis=0)
    last = f"{median[2] * 1e3:.4g}" if len(median) > 2 else "-"
    return (
        f"| {name} | {threads} | {program.arena_nbytes:,} | {median[0] * 1e3:.4g} | "
        f"{median[1] * 1e3:.4g} | {last} | {median[1:].min() / median[0]:.2f} | "
        f"{fast[1:].min() / fast[0]:.2f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120, help="of a row, about, at most")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; expected of: {', '.join(CASES)}")
    print(
        "| case | threads | arena, bytes | ours, ms a step | torch NCHW | torch channels_last | "
        "ratio of medians | of p20 |\n|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name in args.cases or CASES:
        for threads in args.threads:
            row = measure(name, threads, args.rounds, args.seconds, args.clock)
            print(row, flush=True)


if __name__ == "__main__":
    main()
