"""Naive codec of groups: 64 integers and an fp16 scale, one number at a time."""

import math

import numpy as np


def group(values, most: int) -> tuple[list[int], float]:
    """Encode up to 64 float32 values as 64 integers and a scale."""
    values = [float(v) for v in values]
    if not all(map(math.isfinite, values)):
        return [1] * 64, math.inf
    largest = np.float32(max(map(abs, values)))
    scale = float(np.float16(largest / np.float32(most)))
    if scale == 0:
        return [0] * 64, 0.0
    out = [
        int(np.clip(round(float(np.float32(v) / np.float32(scale))), -most, most)) for v in values
    ]
    return out + [0] * (64 - len(out)), scale


def grouped(values, bits: int) -> np.ndarray:
    """Encode a row of values in groups."""
    rows = []
    for first in range(0, len(values), 64):
        whole, scale = group(values[first : first + 64], 2 ** (bits - 1) - 1)
        if bits == 8:
            row = [number & 255 for number in whole]
        else:
            row = [(whole[j] + 8) | (whole[j + 32] + 8) << 4 for j in range(32)]
        rows.append(np.array([*row, *np.array([scale], np.float16).view(np.uint8)], np.uint8))
    return np.concatenate(rows).view(f"V{8 * bits + 2}")


def numbers(stored: np.ndarray, bits: int) -> np.ndarray:
    """Decode every number to float32, including the padding of the last group."""
    out = []
    for row in stored.view(np.uint8).reshape(-1, 8 * bits + 2):
        scale = np.float32(row[-2:].view(np.float16)[0])
        for j in range(64):
            if bits == 8:
                whole = int(row[j]) - 256 * (row[j] > 127)
            else:
                whole = (int(row[j % 32]) >> 4 * (j // 32)) % 16 - 8
            out.append(np.float32(whole) * scale)
    return np.array(out, np.float32)
