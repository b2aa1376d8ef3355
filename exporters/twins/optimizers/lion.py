"""Lion in torch, which has none: algorithm 2 of Chen et al. 2023, line by line."""

import torch
from torch import Tensor

from edgetrain.optim.lion import Lion

STATE = {"momentum": "momentum"}


class _Lion(torch.optim.Optimizer):
    def __init__(self, parameters: list[Tensor], options: Lion) -> None:
        super().__init__(parameters, {})
        self._options = options

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        o = self._options
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, gradient = self.state[parameter], parameter.grad
                momentum = state.setdefault("momentum", torch.zeros_like(parameter))
                update = o.beta1 * momentum + (1 - o.beta1) * gradient
                parameter -= o.lr * (update.sign() + o.weight_decay * parameter)
                state["momentum"] = o.beta2 * momentum + (1 - o.beta2) * gradient


def optimizer(optimizer: Lion, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """With the same hyperparameters."""
    return _Lion(parameters, optimizer)
