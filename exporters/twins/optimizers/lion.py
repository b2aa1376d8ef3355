"""Lion, which torch doesn't have: algorithm 2 of Chen et al. 2023, line by line."""

from typing import Any

import torch
from torch import Tensor

from edgetrain.optim.lion import Lion

from .by_parameter import average, by_parameter

STATE = {"momentum": "momentum"}


def _update(o: Lion, w: Tensor, g: Tensor, state: dict[str, Any], t: int) -> None:
    momentum = state.get("momentum", torch.zeros_like(g))
    update = o.beta1 * momentum + (1 - o.beta1) * g
    w -= o.lr * (update.sign() + o.weight_decay * w)
    average(state, "momentum", o.beta2, g)


optimizer = by_parameter(_update)
