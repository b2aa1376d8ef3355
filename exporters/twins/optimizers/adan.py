"""Adan in torch, which has none: the authors' update, line by line."""

import torch
from torch import Tensor

from edgetrain.optim.adan import Adan

STATE = {"moment1": "m", "change": "d", "moment2": "n", "before": "g"}


class _Adan(torch.optim.Optimizer):
    def __init__(self, parameters: list[Tensor], options: Adan) -> None:
        super().__init__(parameters, {})
        self._options = options

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        o = self._options
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.grad is None:
                continue
            state, g = self.state[parameter], parameter.grad
            t = state["step"] = state.get("step", 0) + 1
            change = g - state.get("g", g)
            for name, beta, value in (
                ("m", o.beta1, g),
                ("d", o.beta2, change),
                ("n", o.beta3, (g + o.beta2 * change) ** 2),
            ):
                state[name] = beta * state.get(name, torch.zeros_like(g)) + (1 - beta) * value
            divisor = (state["n"] / (1 - o.beta3**t)).sqrt() + o.eps
            step = state["m"] / (1 - o.beta1**t) + o.beta2 * state["d"] / (1 - o.beta2**t)
            parameter -= o.lr * step / divisor
            parameter /= 1 + o.lr * o.weight_decay
            state["g"] = g.clone()


def optimizer(optimizer: Adan, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return _Adan(parameters, optimizer)
