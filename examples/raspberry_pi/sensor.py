"""A sensor loop: looks at each window as it comes in, and trains on the last ones.

    python -m examples.raspberry_pi.sensor net.edge [WINDOWS [DIR]]

Needs edgetrain-runtime, a wheel of kernels and numpy. `read` makes its readings up, so that this
runs anywhere and sensor.c sees the same; put the driver of your sensor there, and at `label` what
tells how it was (a button, another sensor, the next reading).
"""

import sys

import numpy as np

import edgetrain as et
from edgetrain.runtime.samples.check import digest_of

READINGS, AXES = 32, 3
KEPT = 64  # windows that are trained on
EVERY = 4  # windows between two minibatches


def label(window: int) -> int:
    """The activity of a window: four take turns, eight windows each."""
    return window // 8 % 4


def read(window: int) -> np.ndarray:
    """float32 [96]: a wave for each axis, as fast as the activity is, and noise."""
    out = np.empty((READINGS, AXES), np.float32)
    noise = (window * 2654435761 + 1) % 2**32
    for t in range(READINGS):
        for axis in range(AXES):
            noise = (noise * 1664525 + 1013904223) % 2**32
            wave = (t * (label(window) + 1) * (axis + 1) + window) % 32 - 16
            out[t, axis] = (wave * 4 + (noise >> 24) % 33 - 16) / 64
    return out.reshape(-1)


def main(path: str, windows: str = "512", directory: str = "") -> int:
    """Run the loop; says every 64 windows how many were told right before they were trained on."""
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
