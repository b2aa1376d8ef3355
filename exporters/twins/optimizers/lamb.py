"""LAMB in torch, which has none: algorithm 2 of You et al. 2020, line by line."""

import torch
from torch import Tensor

from edgetrain.optim.lamb import Lamb

STATE = {"moment1": "m", "moment2": "v"}


class _Lamb(torch.optim.Optimizer):
    def __init__(self, parameters: list[Tensor], options: Lamb) -> None:
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
            for name, beta, value in (("m", o.beta1, g), ("v", o.beta2, g * g)):
                state[name] = beta * state.get(name, torch.zeros_like(g)) + (1 - beta) * value
            mean, square = state["m"] / (1 - o.beta1**t), state["v"] / (1 - o.beta2**t)
            step = mean / (square.sqrt() + o.eps) + o.weight_decay * parameter
            weight, length = float(parameter.norm()), float(step.norm())
            parameter -= o.lr * (weight / length if weight and length else 1.0) * step


def optimizer(optimizer: Lamb, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return _Lamb(parameters, optimizer)
