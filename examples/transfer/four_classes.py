"""A net that knows ten spoken words learns one speaker's four commands; only its file is needed.

python -m examples.transfer.four_classes [OUT]
"""

import sys
from pathlib import Path

import numpy as np

import edgetrain as et
from examples.keywords.features import speaker
from examples.keywords.personalise import MODEL, SPEAKER

NAMES = np.array(["go", "left", "right", "stop"])  # for the words zero to three


def commands() -> list[tuple[np.ndarray, np.ndarray]]:
    """Features [n, 1, 24, 40] and names: five recordings per command, and fifteen others."""
    x, y, x_test, y_test = speaker(SPEAKER, 5)
    return [(a[b < 4], NAMES[b[b < 4]]) for a, b in ((x, y), (x_test, y_test))]


def compiled() -> "et.Program":
    """Replace the last layer by one with four outputs, the only layer that is trained."""
    optimizer = et.SGD(lr=0.05, momentum=0.9)
    return et.compile(MODEL, new_head=4, train=["head.*"], minibatch=10, optimizer=optimizer)


def main(out: str = "runs/transfer") -> float:
    """Print accuracy on the other recordings; the trained file keeps the names."""
    train, test = commands()
    with et.Trainer(compiled(), data=train, validation=test) as trainer:
        trainer.fit(epochs=20)
        trainer.export_onnx(Path(out, "commands.onnx"))
        return float(trainer.evaluate()["accuracy"])


if __name__ == "__main__":
    print(f"{100 * main(*sys.argv[1:]):.1f} % of the other recordings")
