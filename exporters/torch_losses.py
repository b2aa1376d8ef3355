"""Losses inside a module, traced as ops that ONNX has."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

_WHOLE = F.cross_entropy


@contextlib.contextmanager
def traceable_losses() -> Iterator[None]:
    """Trace F.cross_entropy of soft targets, with smoothing or without reduction, and
    F.gaussian_nll_loss."""
    with (
        mock.patch.object(F, "cross_entropy", _cross_entropy),
        mock.patch.object(F, "gaussian_nll_loss", _gaussian_nll_loss),
    ):
        yield


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy: torch's export drops label smoothing, and supports class indices only with a
    reduction."""
    soft = target.is_floating_point()
    odd = input.dim() < 2 or size_average is not None or reduce is not None
    if odd or not (soft or label_smoothing or reduction == "none"):
        return _WHOLE(
            input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )
    scores, classes = F.log_softmax(input, 1), input.shape[1]
    by_class = [1, classes, *[1] * (input.dim() - 2)]
    weighed = scores if weight is None else scores * weight.reshape(by_class)
    if soft:
        target = target * (1 - label_smoothing) + label_smoothing / classes
        each = -(weighed * target).sum(1)
        count: Any = input.numel() // classes if input.dim() > 2 else input.shape[0]
        return each.sum() / count if reduction == "mean" else _reduced(each, reduction)
    kept = target != ignore_index
    places = torch.where(kept, target, 0)
    each = -weighed.gather(1, places.unsqueeze(1)).squeeze(1)
    if label_smoothing:
        even = -weighed.sum(1) / classes
        each = (1 - label_smoothing) * each + label_smoothing * even
    each = torch.where(kept, each, 0.0)
    if reduction != "mean":
        return _reduced(each, reduction)
    ones = torch.ones_like(each) if weight is None else weight[places]
    return each.sum() / torch.where(kept, ones, 0.0).sum()


def _gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Gaussian negative log-likelihood: torch checks for negative variances, which a file can't;
    the floor of the variance has no gradient."""
    spread = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if spread.dim() == input.dim() - 1:
        spread = spread.unsqueeze(-1)
    floor = torch.where(spread < eps, eps - spread, 0.0).detach()
    spread = spread + floor
    each = 0.5 * (spread.log() + (input - target) ** 2 / spread)
    return _reduced(each + 0.9189385332046727 if full else each, reduction)


def _reduced(each: Tensor, reduction: str) -> Tensor:
    return each if reduction == "none" else getattr(each, reduction)()
