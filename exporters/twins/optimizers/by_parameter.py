"""Torch optimizers defined by the update of a single parameter."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Options = TypeVar("Options")
# (options, parameter, gradient, its state, number of its update from 1), in place
Update = Callable[[Options, Tensor, Tensor, dict[str, Any], int], None]


class _ByParameter(torch.optim.Optimizer):
    def __init__(self, update: Update[Options], options: Options, parameters: list[Tensor]) -> None:
        super().__init__(parameters, {})
        self._update, self._options = update, options

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.grad is not None:
                state = self.state[parameter]
                state["step"] = state.get("step", 0) + 1
                self._update(self._options, parameter, parameter.grad, state, state["step"])


def by_parameter(
    update: Update[Options],
) -> Callable[[Options, list[Tensor]], torch.optim.Optimizer]:
    """Turn an update into a constructor of torch optimizers, which takes our options."""
    return lambda options, parameters: _ByParameter(update, options, parameters)


def average(state: dict[str, Any], name: str, beta: float, value: Tensor) -> Tensor:
    """The running average of this name, starting at 0."""
    state[name] = beta * state.get(name, torch.zeros_like(value)) + (1 - beta) * value
    return state[name]
