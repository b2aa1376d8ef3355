"""Accuracy of model memory in 8 bits beside fp16, and of rounding to nearest beside stochastic.

    python -m benchmarks.low_bits mnist mnist.npz [--seeds 3] [--epochs 2]
    python -m benchmarks.low_bits digits [--steps 10000]

MNIST: LeNet-300-100, minibatches of 100 in microbatches of 25, Nesterov, at two learning rates; the
seeds are paired: the same weights and samples for every storage. Digits: one long run at a constant
rate of each storage; the accuracy at its quarters shows whether weights drift. One line a run.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from edgetrain.api import compile as compile_program
from edgetrain.importer import load_onnx
from edgetrain.optim import SGD
from edgetrain.runtime.trainer import Trainer

from .accuracy import load, train_ours

STORAGES = ("fp16", "int8", "int8-nearest")
RATES = (0.1, 0.005)
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "model.onnx"


def mnist(path: str, seeds: int, epochs: float) -> Iterator[str]:
    """Lines of the table, and of the runs as they end."""
    yield "| learning rate | model memory | test accuracy, by seed | mean |"
    yield "|---|---|---|---|"
    for lr in RATES:
        found: dict[str, list[float]] = {storage: [] for storage in STORAGES}
        for seed in range(seeds):
            for storage in STORAGES:
                args = SimpleNamespace(
                    task="mnist-mlp", data=path, seed=seed, budget=None, precision="fp32",
                    minibatch=100, microbatch=25, threads=2, density=1.0, rewiring=None, lr=lr,
                    weight_decay=0.0, epochs=epochs, model_memory=storage,
                )  # fmt: skip
                module, data, args.shape = load(args)
                found[storage].append(100 * train_ours(module, data, args)["accuracy"])
        for storage, runs in found.items():
            each = ", ".join(f"{a:.2f}" for a in runs)
            yield f"| {lr} | {storage} | {each} | {statistics.mean(runs):.2f} |"


def digits(steps: int) -> Iterator[str]:
    """The same of the digits, whose accuracy is taken at every quarter of a run."""
    yield "| model memory | steps | test accuracy at each quarter | last loss |"
    yield "|---|---|---|---|"
    for storage in STORAGES:
        program = compile_program(
            load_onnx(DIGITS), minibatch=16, microbatch=8, model_memory=storage,
            optimizer=SGD(lr=0.01, momentum=0.9, weight_decay=1e-4),
        )  # fmt: skip
        trainer, quarters = Trainer(program, "digits"), []
        for part in range(1, 5):
            last = trainer.fit(steps=steps * part // 4)
            quarters.append(100 * trainer.evaluate()["accuracy"])
        trainer.close()
        each = ", ".join(f"{a:.2f}" for a in quarters)
        yield f"| {storage} | {steps} | {each} | {last['loss']:.5f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["mnist", "digits"])
    parser.add_argument("data", nargs="?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--steps", type=int, default=10_000)
    args = parser.parse_args()
    for line in (
        digits(args.steps) if args.task == "digits" else mnist(args.data, args.seeds, args.epochs)
    ):
        print(line, flush=True)


if __name__ == "__main__":
    main()
