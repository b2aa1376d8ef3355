"""Op cases: losses that are graph nodes, their sums and means scaled by a parameter."""

import torch
import torch.nn.functional as F

from .op_case import BATCH, Case, Ids, X, floats

_SCORES, _LABELS = X((BATCH, 5)), Ids((BATCH,), 5)
_MAPS, _PLACES = X((BATCH, 5, 3, 2)), Ids((BATCH, 3, 2), 5)
_WEIGHTS = floats([1.0, 0.5, 2.0, 0.0, 1.5])
_OPS = {"SoftmaxCrossEntropyLoss": F.cross_entropy, "NegativeLogLikelihoodLoss": F.nll_loss}


def _weighed(loss, **options):
    return lambda x, t, w: loss(x, t, torch.tensor(w).double(), **options)


def _cases() -> list[Case]:
    rows = []
    for op, loss in _OPS.items():
        rows += [
            Case(op, "none", [_SCORES, _LABELS], lambda x, t, f=loss: f(x, t, reduction="none"),
                 {"reduction": "none"}),
            Case(op, "maps", [_MAPS, _PLACES], lambda x, t, f=loss: f(x, t, reduction="none"),
                 {"reduction": "none"}),
            Case(op, "ignored", [_MAPS, _PLACES],
                 lambda x, t, f=loss: f(x, t, ignore_index=2, reduction="none"),
                 {"reduction": "none", "ignore_index": 2}),
            Case(op, "weighed", [_MAPS, _PLACES, _WEIGHTS],
                 _weighed(loss, ignore_index=2, reduction="none"),
                 {"reduction": "none", "ignore_index": 2}),
            Case(op, "mean", [_MAPS, _PLACES], lambda x, t, f=loss: f(x, t)),
            Case(op, "mean of what counts", [_MAPS, _PLACES],
                 lambda x, t, f=loss: f(x, t, ignore_index=2), {"ignore_index": 2}),
            Case(op, "mean by weight", [_MAPS, _PLACES, _WEIGHTS],
                 _weighed(loss), {"reduction": "mean"}),
            Case(op, "sum", [_MAPS, _PLACES], lambda x, t, f=loss: f(x, t, reduction="sum"),
                 {"reduction": "sum"}),
        ]  # fmt: skip
    return rows


CASES = _cases()
