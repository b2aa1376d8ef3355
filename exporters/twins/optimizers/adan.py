"""Adan, which torch doesn't have: the authors' update, line by line."""

from typing import Any

from torch import Tensor

from edgetrain.optim.adan import Adan

from .by_parameter import average, by_parameter

STATE = {"moment1": "m", "change": "d", "moment2": "n", "before": "g"}


def _update(o: Adan, w: Tensor, g: Tensor, state: dict[str, Any], t: int) -> None:
    change = g - state.get("g", g)
    m = average(state, "m", o.beta1, g)
    d = average(state, "d", o.beta2, change)
    n = average(state, "n", o.beta3, (g + o.beta2 * change) ** 2)
    divisor = (n / (1 - o.beta3**t)).sqrt() + o.eps
    w -= o.lr * (m / (1 - o.beta1**t) + o.beta2 * d / (1 - o.beta2**t)) / divisor
    w /= 1 + o.lr * o.weight_decay
    state["g"] = g.clone()


optimizer = by_parameter(_update)
