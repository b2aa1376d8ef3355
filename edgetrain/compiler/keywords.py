"""The keywords of compile; python -m tools.keywords writes them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..losses import Loss
from ..optim import Optimizer
from ..optim.groups import Group
from ..sparse import Rewiring
from .model.lora import Lora


class Keywords(TypedDict, total=False):
    """The fields of `Options`, as passed to `compile`."""

    loss: str | Loss
    optimizer: str | Optimizer
    minibatch: int
    microbatch: int | None
    precision: str
    model_memory: str | None
    weights: str | None
    state: str | None
    grads: str | None
    saved: str | None
    density: float
    density_overrides: Mapping[str, float]
    distribution: str
    rewiring: str | Rewiring | None
    max_extra_forward: float | None
    effort: str
    threads: int
    seed: int
    dims: Mapping[str, int]
    batch_axis: Mapping[str, int]
    inputs: Mapping[str, float]
    train: Sequence[str]
    freeze: Sequence[str]
    freeze_bn: bool | None
    train_constants: Sequence[str]
    allow_constants: bool
    groups: Sequence[Group]
    no_decay_1d: bool
    max_grad_norm: float
    fused_update: bool
    loss_scale: float | None
    output: str | None
    allow: Sequence[str]
    segments: str | int
    bptt: int
    target: str
    frozen: str | None
    lora: str | Lora | None
    quantized: str | None
    new_head: Mapping[str, int] | int | None
    convolutions: str
    arithmetic: str | None
    losses: Mapping[str, Any]
    lengths: Sequence[int] | Mapping[str, Sequence[int]]
    tokens: int | None
