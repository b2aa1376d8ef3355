"""Kinds of runs that every later version can continue: tiny nets, their data and options.

Their data are computed only from integers, so no other package's version changes a bit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import edgetrain as et
from edgetrain.optim.schedules import Cosine, Plateau
from edgetrain.runtime.training.callbacks import Callback
from edgetrain.runtime.training.monitors import EarlyStopping, KeepBest
from edgetrain.sparse import DSR, SET

SAMPLES, MINIBATCH, MICROBATCH = 40, 8, 4
STOPPED, WHOLE = 7, 13  # steps: in the second epoch of five steps, and in the third
CLASSES, TOKENS, TIME, WORDS = 5, 11, 6, 700
SGD = et.SGD(lr=0.05, momentum=0.9)


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Attributes:
      net: a name of `tests.upgrades.nets`.
      options: of `compile`, besides the common ones.
      settings: of the Trainer.
      callbacks: makes new callbacks, since they have state.
      streamed: whether a function gives batches, instead of arrays.
    """

    net: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    callbacks: Callable[[], list[Callback]] = list
    streamed: bool = False


def _watched() -> list[Callback]:
    return [KeepBest("loss", restore=False), EarlyStopping("loss", patience=9)]


FP16 = {"precision": "fp16"}
KINDS = {
    "fp32": Kind("convs", {"optimizer": SGD, "threads": 2}),
    "fp16": Kind("convs", {"optimizer": et.SGD(lr=0.05, momentum=0.9, nesterov=True), **FP16}),
    "recomputed": Kind("encoder", {"optimizer": SGD, "budget": "smallest"}),
    "int8": Kind("convs", {"optimizer": SGD, **FP16, "model_memory": "int8"}),
    "int8 adam": Kind("convs", {"optimizer": et.Adam(lr=1e-2), **FP16, "model_memory": "int8"}),
    "saved int8": Kind("convs", {"optimizer": SGD, "saved": "int8"}),
    "sparse dsr": Kind("convs", {
        "optimizer": SGD, **FP16, "density": 0.4, "rewiring": DSR(periods=((1.0, 3),)),
    }),
    "sparse set": Kind("convs", {
        "optimizer": et.AdamW(lr=1e-2), "density": 0.4, "rewiring": SET(periods=((1.0, 3),)),
    }),
    "frozen fp32": Kind("convs", {"optimizer": SGD, "frozen": "fp32", "train": ("head.*",)}),
    "frozen int8": Kind("convs", {"optimizer": SGD, "frozen": "int8", "train": ("head.*",)}),
    "freeze": Kind("convs", {"optimizer": SGD, "freeze": ("first.*",), "freeze_bn": True}),
    "lora int4": Kind("encoder", {
        "optimizer": et.Adam(lr=1e-2), "frozen": "int4", "lora": "r=2,targets=*.linear1,*.linear2",
    }),
    "lora fp16": Kind("encoder", {
        "optimizer": et.Adam(lr=1e-2), **FP16, "frozen": "fp16", "lora": "r=2,targets=*.linear1",
    }),
    "lstm": Kind("lstm", {"optimizer": SGD}),
    "segments": Kind("lstm", {"optimizer": SGD, **FP16, "segments": 2}),
    "bptt": Kind("lstm", {"optimizer": SGD, "bptt": 2}),
    "gru": Kind("gru", {"optimizer": et.RMSprop(lr=1e-2)}),
    "encoder": Kind("encoder", {"optimizer": et.AdamW(lr=1e-2), "max_grad_norm": 1.0}),
    "attention": Kind("encoder", {"optimizer": et.Adam(lr=1e-2), "allow": ("attention",)}),
    "slices": Kind("words", {"optimizer": SGD, "allow": ("slices",)}),
    "rows": Kind("words", {"optimizer": et.SGD(lr=0.1), "allow": ("rows",)}),
    "adam fp16": Kind("convs", {"optimizer": et.Adam(lr=1e-2), **FP16}),
    "lion": Kind("convs", {"optimizer": et.Lion(lr=1e-3), **FP16}),
    "rmsprop": Kind("convs", {"optimizer": et.RMSprop(lr=1e-2, momentum=0.5, centered=True)}),
    "rmsprop fp16": Kind("convs", {"optimizer": et.RMSprop(lr=1e-2), **FP16}),
    "adagrad": Kind("convs", {"optimizer": et.Adagrad(lr=1e-2), **FP16}),
    "adafactor": Kind("convs", {"optimizer": et.Adafactor(lr=1e-2)}),
    "loss scale": Kind("convs", {"optimizer": SGD, **FP16, "loss_scale": 256.0}),
    "fused": Kind("convs", {"optimizer": SGD, "microbatch": MINIBATCH, "fused_update": True}),
    "fused fp16": Kind("convs", {
        "optimizer": et.Adam(lr=1e-2), **FP16, "loss_scale": 64.0, "microbatch": MINIBATCH,
        "fused_update": True,
    }),
    "weighted": Kind("convs", {
        "optimizer": SGD, "loss": et.Loss("cross_entropy", class_weights=(1.0, 2.0, 1.0, 0.5, 3.0)),
    }),
    "regression": Kind("regression", {"optimizer": SGD, "loss": "huber"}),
    "cosine": Kind("convs", {"optimizer": SGD}, {"schedule": Cosine(warmup_steps=2)}),
    "plateau": Kind("convs", {"optimizer": SGD}, {"schedule": Plateau(window=2, patience=1)}),
    "stream": Kind("convs", {"optimizer": SGD, **FP16}, streamed=True),
    "watched": Kind("convs", {"optimizer": SGD}, {"validation": 0.2}, _watched),
}  # fmt: skip


def _numbers(*shape: int) -> np.ndarray:
    """Integers that look random, in [0, 2**16)."""
    return (np.arange(np.prod(shape), dtype=np.uint64) * 40503 % 65537 % 65536).reshape(shape)


def samples(net: str, count: int = SAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of a net: pictures and classes or numbers, or tokens and the tokens that follow."""
    if net in ("convs", "regression"):
        x = (_numbers(count, 1, 8, 8).astype(np.float32) - 32768) / np.float32(32768)
        kinds = _numbers(count, 3).sum(1) % CLASSES
        x += kinds.astype(np.float32).reshape(-1, 1, 1, 1) / 4  # otherwise nothing to learn
        if net == "regression":
            return x, x[:, 0, :CLASSES, 3].copy()
        return x, kinds.astype(np.int64)
    tokens = (_numbers(count, TIME + 1) % (WORDS if net == "words" else TOKENS)).astype(np.int64)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def data(kind: Kind) -> Any:
    """The data for its Trainer."""
    x, y = samples(kind.net)
    if not kind.streamed:
        return x, y

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for at in range(0, SAMPLES, MINIBATCH):
            yield x[at : at + MINIBATCH], y[at : at + MINIBATCH]

    return batches


def compiled(kind: Kind, model: str | Path) -> Any:
    """Compile its Program; a budget of "smallest" is the minimum."""
    options = {"minibatch": MINIBATCH, "microbatch": MICROBATCH, "threads": 1, "seed": 3}
    options |= {"target": "x86-64-v3", **kind.options}  # all processors have the same bits
    if options.get("budget") == "smallest":
        options.pop("budget")
        options["budget"] = et.plan(model, **options)["min_budget_nbytes"]
    return et.compile(model, **options)


def trainer(kind: Kind, program: Any, out: str | Path | None, **more: Any) -> Any:
    """A Trainer with its data and settings."""
    callbacks = [*kind.callbacks(), *more.pop("callbacks", ())]
    settings = {"save_seconds": 0.0, **kind.settings, **more}
    return et.Trainer(program, data(kind), out, callbacks=callbacks, **settings)
