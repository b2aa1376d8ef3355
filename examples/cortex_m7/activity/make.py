"""The host's part of the activity example: a net that knows many people, and a new one's recording.

    python examples/cortex_m7/activity/make.py FOLDER

Three axes of an accelerometer, 50 readings a second, in windows of 64: resting, walking, running,
climbing stairs. People differ in pace, strength and how they wear the device; the simulation below
replaces a data set. The net is trained here on twelve people and bundled for a Cortex-M7 with the
trained weights. `recording.bin` has a thirteenth person, who wears the device another way up: the
readings of a sensor, for a board without one.
"""

import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import edgetrain as et
from edgetrain.errors import BudgetError
from edgetrain.exporters import export_torch

CLASSES, AXES, LENGTH, RATE = 4, 3, 64, 50
PEOPLE, EACH, NEW, GAIN = 12, 160, 240, 4096  # GAIN: counts of the sensor for 1 g


def windows(person: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a person: int16 [count, 3, 64] sensor counts, int32 [count] activities."""
    own = np.random.default_rng(person)
    pace, strength = own.uniform(0.85, 1.15), own.uniform(0.8, 1.25)
    turn = own.uniform(-0.35, 0.35) + (2.2 if person >= PEOPLE else 0.0)
    tilt = own.uniform(-0.3, 0.3) + (1.3 if person >= PEOPLE else 0.0)
    labels = rng.integers(0, CLASSES, count).astype(np.int32)
    hertz = np.array([0.3, 1.8, 2.8, 1.5])[labels] * pace * rng.uniform(0.93, 1.07, count)
    up = np.array([0.01, 0.28, 0.8, 0.22])[labels] * strength * rng.uniform(0.85, 1.15, count)
    ahead = np.array([0.01, 0.12, 0.3, 0.25])[labels] * strength
    t = np.arange(LENGTH) / RATE
    phase = 2 * np.pi * (hertz[:, None] * t + rng.uniform(0, 1, (count, 1)))
    z = 1 + up[:, None] * (np.sin(phase) + 0.4 * np.sin(2 * phase + 0.6))
    x = ahead[:, None] * np.sin(phase + 1.1)
    y = 0.5 * ahead[:, None] * np.sin(phase / 2)
    g = np.stack([x, y, z], 1) + rng.normal(0, 0.05, (count, AXES, LENGTH))
    c, s = np.cos(turn), np.sin(turn)
    about_z = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    c, s = np.cos(tilt), np.sin(tilt)
    about_x = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    counts = np.einsum("ij,njt->nit", about_x @ about_z, g) * GAIN
    return np.clip(np.round(counts), -32768, 32767).astype(np.int16), labels


def as_input(counts: np.ndarray) -> np.ndarray:
    """Convert counts to float32 [n, 3, 1, 64] in g, like main.c."""
    return (counts.astype(np.float32) * np.float32(1 / GAIN))[:, :, None]


def net() -> nn.Module:
    """Three convolutions over time, 4,300 weights."""

    def layer(before: int, after: int) -> list[nn.Module]:
        convolution = nn.Conv2d(before, after, (1, 5), padding=(0, 2), bias=False)
        return [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d((1, 2))]

    layers = [*layer(AXES, 12), *layer(12, 16), *layer(16, 32)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))


def compiled(path: Path, **options) -> et.Program:
    """Compile for the least memory."""
    model = et.load_onnx(path)
    try:
        return et.compile(model, budget=1000, **options)
    except BudgetError as least:
        return et.compile(model, budget=least.min_budget_nbytes, **options)


def main(folder: Path) -> None:
    """Write trained.onnx, the bundle and recording.bin."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    parts = [windows(person, EACH, rng) for person in range(PEOPLE)]
    x = as_input(np.concatenate([counts for counts, _ in parts]))
    y = np.concatenate([labels for _, labels in parts])
    torch.manual_seed(0)
    export_torch(net(), torch.from_numpy(x[:2]), folder / "untrained.onnx")
    host = et.compile(
        et.load_onnx(folder / "untrained.onnx"), optimizer=et.Adam(lr=3e-3), minibatch=32
    )
    trainer = et.Trainer(host, data=(x, y), out=folder / "run")
    trainer.fit(epochs=8)
    trainer.export_onnx(folder / "trained.onnx")
    print("people it was trained on:", trainer.evaluate((x, y)))
    counts, labels = windows(PEOPLE, NEW, rng)
    print("the new one, before:", trainer.evaluate((as_input(counts), labels)))
    board = compiled(
        folder / "trained.onnx",
        optimizer=et.SGD(lr=0.02, momentum=0.9),
        minibatch=16,
        precision="fp16",
        target="cortex-m7",
    )
    et.bundle(board, folder, name="activity", target="cortex-m7", size=True)
    rows = b"".join(
        struct.pack("<i", label) + window.tobytes()
        for window, label in zip(counts, labels.tolist(), strict=True)
    )
    (folder / "recording.bin").write_bytes(struct.pack("<I", NEW) + rows)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "activity"))
