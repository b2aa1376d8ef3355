"""LAMB, which torch doesn't have: algorithm 2 of You et al. 2020, line by line."""

from typing import Any

from torch import Tensor

from edgetrain.optim.lamb import Lamb

from .by_parameter import average, by_parameter

STATE = {"moment1": "m", "moment2": "v"}


def _update(o: Lamb, w: Tensor, g: Tensor, state: dict[str, Any], t: int) -> None:
    mean = average(state, "m", o.beta1, g) / (1 - o.beta1**t)
    square = average(state, "v", o.beta2, g * g) / (1 - o.beta2**t)
    step = mean / (square.sqrt() + o.eps) + o.weight_decay * w
    weight, length = float(w.norm()), float(step.norm())
    w -= o.lr * (weight / length if weight and length else 1.0) * step


optimizer = by_parameter(_update)
