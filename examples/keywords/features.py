"""Spoken digits as input of the net: log-mel features, stored as bytes."""

from pathlib import Path

import numpy as np

MELS, FRAMES, RATE = 24, 40, 8000
SHAPE = (1, MELS, FRAMES)
# A byte is a twelfth above the floor; the net's input has about mean 0 and variance 1.
_FLOOR, _UNIT, _MEAN, _DEVIATION = -14.0, 12.0, -5.2, 4.5


def as_bytes(features: np.ndarray) -> np.ndarray:
    """Log-mel features as uint8."""
    return np.clip(np.rint((features - _FLOOR) * _UNIT), 0, 255).astype(np.uint8)


def as_input(stored: np.ndarray) -> np.ndarray:
    """uint8 [n, ...] as float32 [n, 1, MELS, FRAMES]."""
    features = stored.astype(np.float32) / np.float32(_UNIT) + np.float32(_FLOOR)
    return ((features - np.float32(_MEAN)) / np.float32(_DEVIATION)).reshape(-1, *SHAPE)


def speaker(path: Path, learned: int) -> tuple[np.ndarray, ...]:
    """Return x and y to learn from (the first recordings of each digit) and to test on (the rest).

    Args:
      learned: recordings of each digit to learn from.
    """
    with np.load(path) as file:
        x, y, recording = as_input(file["x"]), file["y"].astype(np.int64), file["recording"]
    first = recording < learned
    return x[first], y[first], x[~first], y[~first]
