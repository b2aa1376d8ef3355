"""Plans executed: step time against the prediction, and the same weights over all of them.

    python -m benchmarks.executed [--steps N] [NET ...]

Each net has five budgets, from no recomputation down to the minimum. Times are medians; steps of
the budgets alternate round by round, so that drift of the machine affects all of them equally.
"""

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from edgetrain.api import make_options
from edgetrain.compiler import Options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan.candidates import Plan
from edgetrain.compiler.plan.frontier import find_frontier
from edgetrain.compiler.tapes.assemble import assemble
from edgetrain.ops.model import Model
from edgetrain.optim import SGD, Schedule
from edgetrain.program import Program
from edgetrain.runtime.session import Session

from .nets import TARGET, exported, wrn28_2

STEPS = 9
HEAD = (
    "| net | arena, bytes | extra forward | step time, predicted | measured | weights |",
    "|---|---|---|---|---|---|",
)


def _torch_nets() -> dict[str, Callable[[], tuple[Model, int]]]:
    """Name -> function that returns (model, classes)."""
    import torch

    from examples.zoo import ZOO
    from examples.zoo.densenet import DenseNet
    from examples.zoo.resnet import ResNet

    def image(size: int):
        return (torch.randn(2, 3, size, size),)

    def resnet50():
        return exported(ResNet((3, 4, 6, 3), True, 16, 10), image(64)), 10

    def densenet121():
        return exported(DenseNet(8, (6, 12, 24, 16), 16, 10), image(64)), 10

    def encoder():
        zoo = ZOO["transformer_encoder"]
        return exported(zoo.build("small"), zoo.example_inputs(2, "small")), 4

    def seeded(build):
        def make():
            torch.manual_seed(0)
            return build()

        return make

    return {
        "WRN-28-2": seeded(lambda: (wrn28_2(), 10)),
        "ResNet-50, width/4": seeded(resnet50),
        "DenseNet-121, growth 8": seeded(densenet121),
        "Transformer encoder": seeded(encoder),
    }


def _picked(front: list[Plan], count: int) -> list[Plan]:
    """Pick plans evenly spread over the frontier, both ends included, largest memory first."""
    places = np.linspace(0, len(front) - 1, min(count, len(front))).round().astype(int)
    return [front[k] for k in dict.fromkeys(places[::-1].tolist())]


class _Run:
    """One plan in memory; all plans step over the same samples."""

    def __init__(self, model: Model, options: Options, plan: Plan) -> None:
        self.plan = plan
        self.program: Program = assemble(plan, {})
        self.session = Session(self.program)
        self.session.lr = 0.01
        self.session.set_schedule(Schedule(), 0)
        self.seconds: list[float] = []

    def step(self, data: dict[str, np.ndarray]) -> None:
        start = time.perf_counter()
        self.session.minibatch(self.program.minibatch, partial(self._fill, data))
        self.seconds.append(time.perf_counter() - start)

    def _fill(self, data: dict[str, np.ndarray], indices: np.ndarray) -> None:
        for slot in (*self.program.inputs["micro"], self.program.targets["micro"]):
            self.session.arena.view(slot)[...] = data[slot.name][indices]

    def digest(self) -> str:
        parts = hashlib.sha256()
        for _, array in sorted(self.session.state().items()):
            parts.update(array.tobytes())
        return parts.hexdigest()[:12]


def _data(program: Program, classes: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    out = {}
    for slot in program.inputs["micro"]:
        shape = (program.minibatch, *slot.shape[1:])
        limit = program.limits.get(slot.name, 2)
        floats = slot.dtype in ("f16", "f32")
        out[slot.name] = (
            random.standard_normal(shape) if floats else random.integers(0, limit, shape)
        )
    target = program.targets["micro"]
    out[target.name] = random.integers(0, classes, (program.minibatch, *target.shape[1:]))
    return out


def measure(name: str, model: Model, classes: int, steps: int, budgets: int = 5) -> list[dict]:
    """Return the table rows of one net."""
    options = make_options(
        minibatch=16, microbatch=8, optimizer=SGD(0.01, momentum=0.9), target=TARGET
    )
    front = find_frontier(Compilation(model, options))
    runs = [_Run(model, options, plan) for plan in _picked(front, budgets)]
    data = _data(runs[0].program, classes)
    for _ in range(steps):
        for run in runs:
            run.step(data)
    base = runs[0]
    rows = []
    for run in runs:
        took = statistics.median(run.seconds[1:] or run.seconds)
        first = statistics.median(base.seconds[1:] or base.seconds)
        rows.append({
            "net": name, "arena_nbytes": run.plan.arena_nbytes,
            "extra_forward": run.plan.extra_forward, "predicted": run.plan.cost / base.plan.cost,
            "measured": took / first, "seconds": took, "weights": run.digest(),
        })  # fmt: skip
        run.session.close()
    return rows


def lines(names: Sequence[str] = (), steps: int = STEPS) -> Iterator[str]:
    """Yield the table of the named nets, or of all."""
    yield from HEAD
    nets = _torch_nets()
    for name in names or nets:
        model, classes = nets[name]()
        for row in measure(name, model, classes, steps):
            duration = row["seconds"] * 1e3
            shown = f"{duration:.0f}" if duration > 10 else f"{duration:.2g}"
            yield (
                f"| {row['net']} | {row['arena_nbytes']:,} | {row['extra_forward']:.2f} | "
                f"{row['predicted']:.2f} | {row['measured']:.2f} ({shown} ms) | "
                f"{row['weights']} |"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*")
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    for line in lines(args.nets, args.steps):
        print(line, flush=True)


if __name__ == "__main__":
    main()
