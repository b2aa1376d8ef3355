"""Short runs on real data: edgetrain inside its bytes, beside torch in fp32 on the same samples.

    python -m benchmarks.accuracy mnist mnist.npz --epochs 4 --budget 1MB
    python -m benchmarks.accuracy cifar10 DIR --epochs 1 --budget 12.2MB --precision fp16 --torch
    python -m benchmarks.accuracy cifar10 DIR --budget 6.7MB --precision fp16 --density 0.3

Both sides start from the same weights and use the same schedule and the same samples, in the same
order and with the same augmentation. Writes the loss of every step and the accuracies as JSON.
"""

import argparse
import copy
import json
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import edgetrain as et
from edgetrain.data.registry import open_data
from edgetrain.data.source import Source
from edgetrain.exporters import export_torch
from edgetrain.optim import SGD, Schedule
from edgetrain.units.convolutions import AUTO, CONVOLUTIONS
from examples.zoo import ZOO
from tests.twins import Batches, evaluation_batches, factor


def mnist_net() -> nn.Module:
    """A small convolutional net with batch-norm for 28 x 28 digits."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    features = [*block(1, 16), *block(16, 32), *block(32, 64)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(64 * 9, 10))


def mnist_mlp() -> nn.Module:
    """LeNet-300-100 of LeCun et al. 1998, with ReLU."""
    widths = (784, 300, 100, 10)
    layers = [m for i, o in pairwise(widths) for m in (nn.ReLU(), nn.Linear(i, o))]
    return nn.Sequential(nn.Flatten(), *layers[1:])


def load(args) -> tuple[nn.Module, Any, tuple[int, ...]]:
    """Return (module, data for `open_data`, shape of a sample)."""
    torch.manual_seed(args.seed)
    if args.task.startswith("mnist"):
        stored = np.load(args.data)
        names = {"x_train": "train_images", "y_train": "train_labels",
                 "x_test": "test_images", "y_test": "test_labels"}  # fmt: skip
        arrays = {name: stored[key] for name, key in names.items()}
        arrays["x_train"], arrays["x_test"] = (arrays[k][:, None] for k in ("x_train", "x_test"))
        return (mnist_net if args.task == "mnist" else mnist_mlp)(), arrays, (1, 28, 28)
    return ZOO["wrn28_2"].build("full"), f"cifar10:{args.data}", (3, 32, 32)


def train_ours(module: nn.Module, data: Any, args) -> dict[str, Any]:
    """Train within the budget; return losses, accuracy and the memory account."""
    example = (torch.zeros(2, *args.shape),)
    with tempfile.TemporaryDirectory() as folder:
        model = et.load_onnx(export_torch(module, example, Path(folder, "model.onnx")))
    optimizer = SGD(lr=args.lr, momentum=0.9, nesterov=True, weight_decay=args.weight_decay)
    sparse = {"density": args.density, "rewiring": args.rewiring} if args.density < 1 else {}
    program = et.compile(
        model, budget=args.budget, precision=args.precision, minibatch=args.minibatch,
        microbatch=args.microbatch, optimizer=optimizer, seed=args.seed, threads=args.threads,
        model_memory=args.model_memory, saved=args.saved, convolutions=args.convolutions,
        verbose=False, **sparse,
    )  # fmt: skip
    losses: list[float] = []

    def note(event: dict) -> None:
        if event["event"] == "step":
            losses.append(event["loss"])
            if event["step"] % 50 == 0:
                print(f"ours {event['step']} {np.mean(losses[-50:]):.4f}", flush=True)

    trainer = et.Trainer(program, data, schedule=Schedule("cosine"), on_event=note, verbose=False)
    start = time.perf_counter()
    trainer.fit(epochs=args.epochs)
    seconds = time.perf_counter() - start
    result = {"losses": losses, "seconds": seconds, **trainer.evaluate()}
    result["account"] = dict(program.account)
    trainer.close()
    return result


def _tensors(source: Source, indices: np.ndarray, args, **options):
    x = np.empty((len(indices), *args.shape), np.float32)
    y = np.empty(len(indices), np.int64)
    source.fill(indices, {"x": x, "y": y}, **options)
    return tuple(torch.from_numpy(array).to(args.torch_device) for array in (x, y))


def train_torch(module: nn.Module, data: Any, args) -> dict[str, Any]:
    """Train the same model in torch, in fp32, with batch-norm over the same microbatches."""
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.allow_tf32 = False  # a reference in fp32
    source = open_data(data, split="train")
    batches = Batches(source.n, args.minibatch, args.microbatch, args.seed)
    steps = max(1, round(args.epochs * batches.steps_per_epoch))
    schedule = Schedule("cosine", total_steps=steps)
    optimizer = torch.optim.SGD(
        module.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=args.weight_decay
    )
    module.train().to(args.torch_device, memory_format=torch.channels_last)  # the faster layout
    losses, start = [], time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * factor(schedule, step)
        optimizer.zero_grad()
        cursor, total = batches.cursor_at(step), 0.0
        for indices in batches.microbatches(cursor):
            key = (args.seed, cursor.epoch)
            x, y = _tensors(source, indices, args, key=key, train=True)
            loss = nn.functional.cross_entropy(module(x), y) * len(indices) / args.minibatch
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
        if (step + 1) % 50 == 0:
            print(f"torch {step + 1} {np.mean(losses[-50:]):.4f}", flush=True)
    seconds = time.perf_counter() - start
    return {"losses": losses, "seconds": seconds, "accuracy": _accuracy(module, source, args)}


def _accuracy(module: nn.Module, source: Source, args) -> float:
    module.eval()
    test, right = source.for_split("test"), 0
    with torch.no_grad():
        for indices, valid in evaluation_batches(test.n, 100):
            x, y = _tensors(test, indices, args)
            right += int((module(x).argmax(1) == y)[:valid].sum())
    return right / test.n


def main() -> None:
    """Run one comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("mnist", "mnist-mlp", "cifar10"))
    parser.add_argument("data")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--budget")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--model-memory")
    parser.add_argument("--saved")
    parser.add_argument("--convolutions", default=AUTO, choices=CONVOLUTIONS)
    parser.add_argument("--density", type=float, default=1.0)
    parser.add_argument("--rewiring", default="dsr", help="dsr, set or none (dsr)")
    parser.add_argument("--minibatch", type=int, default=100)
    parser.add_argument("--microbatch", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", action="store_true", help="also train in torch")
    parser.add_argument("--only-torch", action="store_true")
    parser.add_argument("--torch-device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--out", default="accuracy.json")
    args = parser.parse_args()
    module, data, args.shape = load(args)
    result: dict[str, Any] = {"arguments": {k: v for k, v in vars(args).items() if k != "data"}}
    if not args.only_torch:
        result["edgetrain"] = train_ours(copy.deepcopy(module), data, args)
        print({k: v for k, v in result["edgetrain"].items() if k != "losses"}, flush=True)
    if args.torch or args.only_torch:
        result["torch"] = train_torch(copy.deepcopy(module), data, args)
        print({k: v for k, v in result["torch"].items() if k != "losses"}, flush=True)
    Path(args.out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
