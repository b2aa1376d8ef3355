"""Defaults equal torch's, and the loss scale on each side of its comparisons."""

import pytest
import torch

from edgetrain.errors import UsageError
from edgetrain.optim import SGD, Adam, AdamW, LossScale, Schedule, loss_scale_of
from tests.twins import factor


@pytest.mark.parametrize(
    ("ours", "theirs"), [(Adam(), torch.optim.Adam), (AdamW(), torch.optim.AdamW)]
)
def test_defaults_of_adam_are_torchs(ours, theirs):
    group = theirs([torch.zeros(1)]).param_groups[0]
    found = (ours.lr, ours.betas, ours.eps, ours.weight_decay)
    assert found == tuple(group[key] for key in ("lr", "betas", "eps", "weight_decay"))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (SGD, {"momentum": 1.0}), (SGD, {"momentum": 0.5, "dampening": 1.5}),
        (SGD, {"weight_decay": -1.0}), (SGD, {"lr": -0.1}), (Adam, {"eps": 0.0}),
        (Adam, {"beta2": 1.0}), (Schedule, {"kind": "step", "step_size": 1, "gamma": -0.5}),
        (Schedule, {"warmup_steps": -1}), (Schedule, {"kind": "step", "step_size": 0}),
    ],
)  # fmt: skip
def test_numbers_just_out_of_range_are_refused(kind, wrong):
    with pytest.raises(UsageError):
        kind(**wrong)


def test_loss_scale_begins_as_the_precision_says():
    assert loss_scale_of("fp32") == LossScale(1.0, 1000, False)
    assert loss_scale_of("fp16") == LossScale(4096.0, 1000, True)


def test_warm_up_ends_with_the_whole_rate():
    schedule = Schedule("cosine", warmup_steps=2, total_steps=4)
    assert [factor(schedule, k) for k in range(5)] == pytest.approx([0.5, 1.0, 1.0, 0.5, 0.0])
