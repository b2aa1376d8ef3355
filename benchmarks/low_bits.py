"""Accuracy of 8 bits beside fp16, in model memory and in saved values; nearest beside stochastic.

    python -m benchmarks.low_bits mnist mnist.npz [--seeds 3] [--net mnist] [--lr 0.005]
    python -m benchmarks.low_bits digits [--steps 10000] [--only 'fp16, saved int8']

MNIST: LeNet-300-100, or three convolutions with batch-norm (`--net mnist`), minibatches of 100 in
microbatches of 25, Nesterov, at two learning rates. Each seed gives the same weights and samples to
every storage. Digits: one long run per storage at a constant rate; its accuracy after each quarter
shows whether weights drift. One line per run. A storage may round saved values alone or together
with model memory.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

from edgetrain.api import compile as compile_program
from edgetrain.importer import load_onnx
from edgetrain.optim import SGD
from edgetrain.runtime.training.trainer import Trainer

from .accuracy import load, train_ours

# Name of a row -> storages of model memory and of saved values.
STORAGES: dict[str, tuple[str, str | None]] = {
    "fp16": ("fp16", None),
    "int8": ("int8", None),
    "int8-nearest": ("int8-nearest", None),
    "fp16, saved int8": ("fp16", "int8"),
    "int8, saved int8": ("int8", "int8"),
    "fp16, saved int8-nearest": ("fp16", "int8-nearest"),
}
RATES = (0.1, 0.005)
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "model.onnx"


def mnist(args, rates: Sequence[float], only: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table.

    Args:
      args: data, net, seeds, epochs, threads.
    """
    yield "| learning rate | storage | test accuracy, by seed | mean |"
    yield "|---|---|---|---|"
    for lr in rates:
        found: dict[str, list[float]] = {storage: [] for storage in only}
        for seed in range(args.seeds):
            for storage, (memory, saved) in ((name, STORAGES[name]) for name in only):
                run = SimpleNamespace(
                    task=args.net, data=args.data, seed=seed, budget=None, precision="fp32",
                    minibatch=100, microbatch=25, threads=args.threads, density=1.0, lr=lr,
                    rewiring=None, weight_decay=0.0, epochs=args.epochs, model_memory=memory,
                    saved=saved,
                )  # fmt: skip
                module, data, run.shape = load(run)
                found[storage].append(100 * train_ours(module, data, run)["accuracy"])
        for storage, each in found.items():
            listed = ", ".join(f"{a:.2f}" for a in each)
            yield f"| {lr} | {storage} | {listed} | {statistics.mean(each):.2f} |"


def digits(steps: int, only: Sequence[str]) -> Iterator[str]:
    """Yield the same table for the digits, with the accuracy after every quarter of a run."""
    yield "| storage | steps | test accuracy at each quarter | last loss |"
    yield "|---|---|---|---|"
    for storage, (memory, saved) in ((name, STORAGES[name]) for name in only):
        program = compile_program(
            load_onnx(DIGITS), minibatch=16, microbatch=8, model_memory=memory, saved=saved,
            optimizer=SGD(lr=0.01, momentum=0.9, weight_decay=1e-4), verbose=False,
        )  # fmt: skip
        trainer, quarters = Trainer(program, "digits", verbose=False), []
        for part in range(1, 5):
            last = trainer.fit(steps=steps * part // 4 - trainer.steps)
            quarters.append(100 * trainer.evaluate()["accuracy"])
        trainer.close()
        each = ", ".join(f"{a:.2f}" for a in quarters)
        yield f"| {storage} | {steps} | {each} | {last['loss'][-1]:.5f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["mnist", "digits"])
    parser.add_argument("data", nargs="?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--net", choices=["mnist-mlp", "mnist"], default="mnist-mlp")
    parser.add_argument("--lr", type=float, action="append", help="of MNIST (0.1 and 0.005)")
    parser.add_argument("--threads", type=int, default=2, help="of MNIST (2)")
    parser.add_argument("--only", choices=[*STORAGES], action="append")
    args = parser.parse_args()
    only = args.only or [*STORAGES]
    lines = (
        digits(args.steps, only) if args.task == "digits" else mnist(args, args.lr or RATES, only)
    )
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
