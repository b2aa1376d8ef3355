"""A stream of a machine's vibrations: learn what is usual, report what is not.

    python -m examples.anomaly.stream [WINDOWS [OUT]]

Readings are simulated, so this runs anywhere: two rotating parts, and a bearing that sometimes
knocks. A window whose error is far above the usual one is called strange and not learned from.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import edgetrain as et
from edgetrain.program import Program
from examples.showing import account_line, draw

MODEL = Path(__file__).with_name("model.onnx")
READINGS, BUDGET = 64, "160KiB"
WARMING = 500  # windows that are learned from but not judged
FAR = 5.0  # standard deviations of usual errors


class Window(NamedTuple):
    """READINGS readings, float32, and whether the bearing knocked."""

    readings: np.ndarray
    knocks: bool


def windows(count: int, seed: int = 0) -> Iterator[Window]:
    """The stream: after a quiet start, one window in twenty knocks."""
    draw_from = np.random.default_rng(seed)
    t = np.arange(READINGS) / READINGS
    for number in range(count):
        phases = draw_from.uniform(0, 2 * np.pi, 2)
        wave = np.sin(2 * np.pi * 3 * t + phases[0]) + 0.5 * np.sin(2 * np.pi * 7 * t + phases[1])
        knocks = number >= WARMING and draw_from.random() < 0.05
        if knocks:
            at = draw_from.integers(0, READINGS - 8)
            wave[at : at + 8] += 2.5 * np.exp(-np.arange(8) / 3) * (-1) ** np.arange(8)
        noise = 0.05 * draw_from.standard_normal(READINGS)
        yield Window((0.5 * (wave + noise)).astype(np.float32), knocks)


class Usual:
    """Running mean and deviation of the errors of usual windows."""

    def __init__(self) -> None:
        self.mean, self.square = 0.0, 0.0
        self._seen = 0

    def add(self, error: float) -> None:
        """Add a usual error; old errors fade."""
        self._seen += 1
        share = max(1 / self._seen, 0.03)
        self.mean += share * (error - self.mean)
        self.square += share * (error**2 - self.square)

    def is_far(self, error: float) -> bool:
        """Whether an error is far above the usual ones."""
        deviation = max(self.square - self.mean**2, 0.0) ** 0.5
        return error > self.mean + FAR * deviation


class Found(NamedTuple):
    """Results of a stream: errors of each window, which were called strange, which knocked."""

    errors: np.ndarray
    strange: np.ndarray
    knocks: np.ndarray

    @property
    def recall(self) -> float:
        """Share of knocking windows that were called strange."""
        return float(self.strange[self.knocks].mean())

    @property
    def false_alarms(self) -> float:
        """Share of judged windows without knocks that were called strange."""
        quiet = ~self.knocks
        quiet[:WARMING] = False
        return float(self.strange[quiet].mean())


def compiled() -> Program:
    """A Program with one window per step."""
    return et.compile(
        MODEL, loss="mse", optimizer=et.Adam(lr=2e-3), minibatch=1, threads=1, budget=BUDGET
    )


def watch(trainer: et.Trainer, stream: Iterator[Window]) -> Found:
    """Learn from a stream, window by window."""
    usual, errors, strange, knocks = Usual(), [], [], []
    for number, window in enumerate(stream):
        error = float(np.mean((trainer.predict(window.readings) - window.readings) ** 2))
        judged = number >= WARMING and usual.is_far(error)
        if not judged:
            trainer.step(window.readings, window.readings)
            usual.add(error)
        errors.append(error)
        strange.append(judged)
        knocks.append(window.knocks)
    return Found(np.array(errors), np.array(strange), np.array(knocks))


def main(count: str = "3000", out: str = "runs/anomaly") -> int:
    """Print the results and the memory account; draw the arena."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    program = compiled()
    with et.Trainer(program) as trainer:
        found = watch(trainer, windows(int(count)))
    print(
        f"error of usual windows: {found.errors[:50].mean():.4f} at first, "
        f"{np.median(found.errors[-500:]):.4f} at last"
    )
    print(
        f"knocks called strange: {100 * found.recall:.0f} %; false alarms "
        f"{100 * found.false_alarms:.1f} %"
    )
    print(account_line(program))
    draw(program, "anomaly", folder / "arena.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
