"""Gradients of torch that a trace does not contain: hooks and custom backward passes."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn

_OF_MODULES = ("_backward_hooks", "_backward_pre_hooks")
_OF_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def hooked(module: nn.Module) -> list[str]:
    """Names of parts and parameters with hooks on their gradients."""
    parts = [
        name or "the module itself"
        for name, part in module.named_modules()
        if any(getattr(part, hooks, None) for hooks in _OF_MODULES)
    ]
    return parts + [
        name
        for name, parameter in module.named_parameters()
        if any(getattr(parameter, hooks, None) for hooks in _OF_PARAMETERS)
    ]


@contextlib.contextmanager
def noting_gradients(found: dict[str, None]) -> Iterator[None]:
    """Add to `found` what changes gradients within the block: functions with a backward pass of
    their own, and hooks of tensors.

    `torch.inference_mode` becomes `no_grad`, which the trace contains.
    """
    applied = vars(torch.autograd.Function)["apply"].__func__
    register = torch.Tensor.register_hook

    def apply(cls: type, *arguments: Any, **named: Any) -> Any:
        if not cls.__module__.startswith("torch."):
            found[f"{cls.__name__}.backward"] = None
        return applied(cls, *arguments, **named)

    def register_hook(tensor: torch.Tensor, hook: Any) -> Any:
        found["register_hook"] = None
        return register(tensor, hook)

    def inference_mode(mode: Any = True) -> Any:
        if callable(mode):  # as a decorator
            return torch.no_grad()(mode)
        return torch.no_grad() if mode else contextlib.nullcontext()

    with (
        mock.patch.object(torch.autograd.Function, "apply", classmethod(apply)),
        mock.patch.object(torch.Tensor, "register_hook", register_hook),
        mock.patch.object(torch, "inference_mode", inference_mode),
    ):
        yield
