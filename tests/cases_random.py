"""Op cases: random numbers. torch gets the numbers that the counter gives at the first step."""

import numpy as np
import torch

from edgetrain.ir.keys import key_of

from .kernels.naive_rng import hash32, stream
from .op_case import BATCH, Case, X, floats

_FULL = (BATCH, 3, 4)
_LIKE = floats(np.zeros(_FULL))


def fractions(name: str, places, seed: int = 0, step: int = 0, microbatch: int = 0) -> np.ndarray:
    """The numbers in [0, 1) that a node with output `name` draws at these places."""
    return (hash32(stream(seed, key_of(name), step, microbatch), places) >> 8) / 2.0**24


def normal(shape, name: str, *when: int) -> np.ndarray:
    """Its standard normal numbers; `when`: seed, step and microbatch."""
    places = 2 * np.arange(np.prod(shape))
    radius = np.sqrt(-2 * np.log(1 - fractions(name, places, *when)))
    found = radius * np.cos(2 * np.pi * fractions(name, places + 1, *when))
    return np.asarray(found).reshape(shape)


def _uniform(shape, low: float, high: float, seed: str = "") -> torch.Tensor:
    found = fractions(f"y0{seed}", np.arange(np.prod(shape))).reshape(shape)
    return torch.tensor(low + (high - low) * found)


def _normal(shape, mean: float, scale: float) -> torch.Tensor:
    return torch.tensor(mean + scale * normal(shape, "y0"))


def _bernoulli(p: torch.Tensor) -> torch.Tensor:
    return _uniform(p.shape, 0.0, 1.0) < p.detach()


_DRAWN = {"mask": True, "reference": False}  # onnx.reference draws other numbers
CASES: list[Case] = [
    Case("RandomUniformLike", "unit", [_LIKE], lambda x: _uniform(x.shape, 0.0, 1.0), **_DRAWN),
    Case("RandomUniformLike", "seeded", [_LIKE], lambda x: _uniform(x.shape, -2.0, 0.5, " 3.0"),
         {"low": -2.0, "high": 0.5, "seed": 3.0}, **_DRAWN),
    Case("RandomNormalLike", "standard", [_LIKE], lambda x: _normal(x.shape, 0.0, 1.0), **_DRAWN),
    Case("RandomUniform", "fixed", [], lambda: _uniform((BATCH, 5), -1.0, 1.0),
         {"shape": [BATCH, 5], "low": -1.0}, **_DRAWN),
    Case("RandomNormal", "fixed", [], lambda: _normal((BATCH, 5), 0.5, 2.0),
         {"shape": [BATCH, 5], "mean": 0.5, "scale": 2.0}, **_DRAWN),
    Case("Bernoulli", "computed", [X(_FULL, (0.1, 0.9))], _bernoulli, **_DRAWN),
    Case("Bernoulli", "truth", [X(_FULL, (0.1, 0.9))], _bernoulli, {"dtype": 9}, **_DRAWN),
]  # fmt: skip
