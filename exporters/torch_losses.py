"""Losses inside a module, traced as ops that ONNX has."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.nn._reduction import legacy_get_string

_WHOLE, _BINARY = F.cross_entropy, F.binary_cross_entropy
_LEAST = 1e-12  # torch divides the gradient of binary cross-entropy by p (1 - p), at least this


@contextlib.contextmanager
def traceable_losses() -> Iterator[None]:
    """Trace F.cross_entropy of soft targets, with smoothing or without reduction,
    F.binary_cross_entropy, F.gaussian_nll_loss and F.multilabel_margin_loss."""
    with (
        mock.patch.object(F, "cross_entropy", _cross_entropy),
        mock.patch.object(F, "binary_cross_entropy", _binary_cross_entropy),
        mock.patch.object(F, "gaussian_nll_loss", _gaussian_nll_loss),
        mock.patch.object(F, "multilabel_margin_loss", _multilabel_margin_loss),
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
    reduction = _reduction(size_average, reduce, reduction)
    if not (soft or label_smoothing or reduction == "none"):
        return _WHOLE(input, target, weight, ignore_index=ignore_index, reduction=reduction)
    if input.dim() == 1:  # a single sample
        item = _cross_entropy(
            input.unsqueeze(0), target.unsqueeze(0), weight, ignore_index=ignore_index,
            reduction=reduction, label_smoothing=label_smoothing,
        )  # fmt: skip
        return item.squeeze(0) if reduction == "none" else item
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


def _binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy of probabilities, whose gradient is finite at 0 and 1 as in torch: the
    gradient of torch's own decomposition is not."""
    reduction = _reduction(size_average, reduce, reduction)
    if not input.is_floating_point():
        return _BINARY(input, target, weight, reduction=reduction)
    each = -(target * _floored_log(input) + (1 - target) * _floored_log(1 - input))
    return _reduced(each if weight is None else each * weight, reduction)


def _floored_log(p: Tensor) -> Tensor:
    """log(p), at least -100, with a slope of at most 1 / _LEAST."""
    small = p <= _LEAST
    part = torch.where(small, p / _LEAST, 0.0)
    low = _constant(p.log().clamp(min=-100.0), 2.0**16) + part - _constant(part, 2.0**23)
    return torch.where(small, low, torch.where(small, 1.0, p).log())


def _constant(x: Tensor, scale: float) -> Tensor:
    """x rounded to multiples of 1 / scale, which has no gradient: ONNX has no detach."""
    return torch.round(x * scale) / scale


def _gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Gaussian negative log-likelihood: torch checks for negative variances, which a file can't. As
    in torch, a variance below its floor still gets a gradient, that of the floor."""
    spread = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if spread.dim() == input.dim() - 1:
        spread = spread.unsqueeze(-1)
    spread = spread + _constant(torch.where(spread < eps, eps - spread, 0.0), 2.0**20 / eps)
    each = 0.5 * (spread.log() + (input - target) ** 2 / spread)
    return _reduced(each + 0.9189385332046727 if full else each, reduction)


def _multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Margins of each class in `target`, which ends at the first -1, to classes that aren't:
    torch's own decomposition gives another value."""
    reduction, classes = _reduction(size_average, reduce, reduction), input.shape[-1]
    counts = (target < 0).to(input.dtype).cumsum(-1) == 0
    places = torch.where(counts, target, 0)
    equal = places.unsqueeze(-1) == torch.arange(classes, device=input.device)
    other = ~(equal & counts.unsqueeze(-1)).any(-2)
    margins = F.relu(1 - input.gather(-1, places).unsqueeze(-1) + input.unsqueeze(-2))
    pairs = counts.unsqueeze(-1) & other.unsqueeze(-2)
    each = torch.where(pairs, margins, 0.0).sum((-1, -2)) / classes
    return _reduced(each, reduction)


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """torch's reduction, from its older arguments if they are given."""
    if size_average is None and reduce is None:
        return reduction
    return legacy_get_string(size_average, reduce, emit_warning=False)


def _reduced(each: Tensor, reduction: str) -> Tensor:
    return each if reduction == "none" else getattr(each, reduction)()
