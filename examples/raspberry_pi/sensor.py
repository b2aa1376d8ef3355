"""A sensor loop: classifies each window as it arrives, and trains on the latest ones.

    python -m examples.raspberry_pi.sensor net.edge [WINDOWS [DIR]]

Needs edgetrain-runtime, a wheel of kernels and numpy. `read` simulates its readings, so this runs
anywhere and sensor.c sees the same ones. Put your sensor's driver there, and in `label` the source
of the truth (a button, another sensor, the next reading).
"""

import sys

import numpy as np

import edgetrain as et
from edgetrain.runtime.samples.check import digest_of

READINGS, AXES = 32, 3
KEPT = 64  # windows to train on
EVERY = 4  # windows between two minibatches


def label(window: int) -> int:
    """The activity of a window: four in turn, eight windows each."""
    return window // 8 % 4


def read(window: int) -> np.ndarray:
    """float32 [96]: a wave on each axis, at the activity's speed, and noise."""
    out = np.empty((READINGS, AXES), np.float32)
    noise = (window * 2654435761 + 1) % 2**32
    for t in range(READINGS):
        for axis in range(AXES):
            noise = (noise * 1664525 + 1013904223) % 2**32
            wave = (t * (label(window) + 1) * (axis + 1) + window) % 32 - 16
            out[t, axis] = (wave * 4 + (noise >> 24) % 33 - 16) / 64
    return out.reshape(-1)


def main(path: str, windows: str = "512", directory: str = "") -> int:
    """Run the loop; every 64 windows, print how many were right before they were trained on."""
    program = et.load_program(path)
    x, y = np.stack([read(k) for k in range(KEPT)]), np.array([label(k) for k in range(KEPT)])
    trainer = et.Trainer(program, (x, y), directory or None)
    right = 0
    for window in range(KEPT, int(windows)):
        found = read(window)
        right += int(trainer.session.predict({"x": found[None]}).argmax()) == label(window)
        x[window % KEPT], y[window % KEPT] = found, label(window)
        if window % EVERY == EVERY - 1:
            trainer.fit(steps=1, verbose=False)
        if window % 64 == 63:
            print(f"window {window + 1}: {right} of 64 right")
            right = 0
    print(f"digest {digest_of(trainer.session):08x}")
    trainer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
