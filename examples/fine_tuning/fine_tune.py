"""A net that reads digits learns the digits of another camera, at three budgets.

    python -m examples.fine_tuning.fine_tune [OUT]

The net of examples/digits is trained on upright digits, dark on light. The other camera's pictures
are mirrored and light on dark, and there are 200 of them to learn from. What can be trained depends
on the available memory: `edgetrain advise` prints such a table for any model.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import edgetrain as et
from edgetrain.program import Program
from examples.showing import account_line, draw

MODEL = Path(__file__).resolve().parents[1] / "digits" / "model.onnx"
SAMPLES = 200
EPOCHS, LR = 20, 0.1


class Way(NamedTuple):
    """What is trained, and the budget.

    Attributes:
      train: patterns of parameters; () trains all.
    """

    name: str
    budget: int
    train: tuple[str, ...]


WAYS = (
    Way("head", 55_000, ("head.*",)),
    Way("biases and head", 95_000, ("*.bias", "head.*")),
    Way("last block", 120_000, ("conv3.*", "norm3.*", "head.*")),
)


class Result(NamedTuple):
    """Accuracy on the other camera's test digits, and what training took."""

    way: Way
    program: Program
    accuracy: float


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x and y for training, x and y for testing; x is float32 [n, 1, 8, 8] from 0 to 1."""
    source = et.open_data("digits")
    found = []
    for split in (source, source.for_split("test")):
        x = np.empty((split.n, 1, 8, 8), np.float32)
        y = np.empty(split.n, np.int64)
        split.fill(np.arange(split.n), {"x": x, "y": y})
        found += [x, y]
    return tuple(found)


def other_camera(x: np.ndarray) -> np.ndarray:
    """The same pictures mirrored, light on dark."""
    return np.ascontiguousarray(x.max() - x[..., ::-1])


def upright_net(path: Path) -> Path:
    """The net trained on upright digits, as ONNX."""
    program = et.compile(MODEL, minibatch=32, optimizer=et.SGD(lr=0.1, momentum=0.9))
    with et.Trainer(program, data="digits") as trainer:
        trainer.fit(epochs=5)
        return trainer.export_onnx(path)


def fine_tuned(model: Path) -> Iterator[Result]:
    """Fine-tune in every way within its budget."""
    x, y, x_test, y_test = digits()
    x, x_test = other_camera(x)[:SAMPLES], other_camera(x_test)
    for way in WAYS:
        optimizer = et.SGD(lr=LR, momentum=0.9)
        program = et.compile(
            model, minibatch=20, budget=way.budget, train=way.train, optimizer=optimizer
        )
        with et.Trainer(program, data=(x, y[:SAMPLES])) as trainer:
            trainer.fit(epochs=EPOCHS)
            yield Result(way, program, trainer.evaluate((x_test, y_test))["accuracy"])


def before(model: Path) -> float:
    """Accuracy on the other camera's digits before fine-tuning."""
    *_, x_test, y_test = digits()
    found = et.forward(model, {"x": other_camera(x_test)})
    return float((next(iter(found.values())).argmax(1) == y_test).mean())


def main(out: str = "runs/fine_tuning") -> int:
    """Run all; print each accuracy and memory account, and draw the arenas."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    model = upright_net(folder / "upright.onnx")
    print(f"before: {100 * before(model):.1f} % of the other camera's digits")
    for way, program, accuracy in fine_tuned(model):
        print(f"{way.name} in {way.budget:,} bytes: {100 * accuracy:.1f} %")
        print(f"  {account_line(program)}")
        draw(program, way.name, folder / f"{way.name.replace(' ', '-')}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
