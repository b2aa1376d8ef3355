#!/usr/bin/env python3
"""Writes edgetrain/data/sources/digits.bin from scikit-learn's copy of the digits.

usage: make_digits.py        (needs scikit-learn; the same bytes every time)

The file contains x_train u8 [1437, 1, 8, 8] of 0..16, y_train u8 [1437], and x_test and y_test
likewise with 360, one after the other. The test split is a fifth of each class, drawn with a fixed
seed.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

OUT = Path(__file__).resolve().parents[1] / "edgetrain" / "data" / "sources" / "digits.bin"
TEST_SAMPLES = 360


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(labels))
    rank = np.empty(len(labels))  # of a sample within its class, as a fraction of the class
    for label in range(10):
        members = shuffled[labels[shuffled] == label]
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    by_rank = np.argsort(rank, kind="stable")
    test, train = np.sort(by_rank[:TEST_SAMPLES]), np.sort(by_rank[TEST_SAMPLES:])
    pixels = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    classes = labels.astype(np.uint8)
    parts = [part[rows].tobytes() for rows in (train, test) for part in (pixels, classes)]
    OUT.write_bytes(b"".join(parts))
    scaled = pixels[train] / 16
    print(f"{OUT}: {OUT.stat().st_size} bytes; mean {scaled.mean():.4f}, std {scaled.std():.4f}")


if __name__ == "__main__":
    main()
