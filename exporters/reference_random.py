"""Random numbers in torch: the same as the engine's, from its documented counter.

Instead of inputs, these rules get the moment of the draw: (seed, step, microbatch).
"""

import numpy as np
import torch

from edgetrain.exporters.reference_ops import rule

DRAWN = ("random_uniform", "random_normal")
_MASK = 0xFFFFFFFF


def _hash(key: int, index: np.ndarray) -> np.ndarray:
    x = (np.asarray(index, np.uint64) * 0x9E3779B9 + key) & _MASK
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _MASK
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _MASK
    return x ^ (x >> 15)


def _fractions(node, moment, places: np.ndarray) -> np.ndarray:
    """24 random bits for each element, as numbers in [0, 1)."""
    seed, step, microbatch = moment
    key = int(_hash(seed & _MASK, np.array(seed >> 32)))
    for word in (node.attrs["key"], step, microbatch):
        key = int(_hash(key, np.array(word)))
    return (_hash(key, places) >> 8) / 2.0**24


@rule("random_uniform")
def _uniform(node, inputs, outs):
    result = _fractions(node, inputs[0], np.arange(outs[0].size))
    return _as_drawn(node.attrs["low"] + node.attrs["span"] * result, outs)


@rule("random_normal")
def _normal(node, inputs, outs):
    """Source: Box and Muller 1958."""
    places = 2 * np.arange(outs[0].size)
    radius = np.sqrt(-2 * np.log(1 - _fractions(node, inputs[0], places)))
    result = radius * np.cos(2 * np.pi * _fractions(node, inputs[0], places + 1))
    return _as_drawn(node.attrs["mean"] + node.attrs["scale"] * result, outs)


def _as_drawn(numbers: np.ndarray, outs) -> torch.Tensor:
    """Round to float32: comparing with a probability must not depend on the reference's dtype."""
    return torch.tensor(numbers.astype(np.float32).reshape(outs[0].shape), dtype=torch.float64)
