"""Kinds of nets that every target trains, and the compared run on made-up samples.

KINDS each have a feature that could behave differently on some target. RECURRENT has every cell at
three sizes, and FAMILIES every net of the zoo.
"""

from functools import cache
from pathlib import Path

import torch

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.kernels import targets
from edgetrain.losses import Loss
from edgetrain.program import Program
from edgetrain.runtime.samples.check import Checked, checked_run
from edgetrain.sparse import DSR
from examples.zoo import ZOO
from tests.digits_runs import MODEL
from tests.kept import kept
from tests.runtime.models import write_forked

STEPS = 20
# Value of sample 0: its minibatches overflow and are skipped.
SPIKE = {"fp16": 65000.0, "fp32": 1e38}
SGD = et.SGD(lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
KINDS = {
    "fp32": ("digits", {"optimizer": SGD}),
    "fp16": ("digits", {"optimizer": SGD, "precision": "fp16"}),
    "sparse": ("digits", {
        "optimizer": SGD, "precision": "fp16", "density": 0.3,
        "rewiring": DSR(periods=((1.0, 8),)),
    }),
    "adam": ("forked", {"optimizer": et.AdamW(lr=1e-3), "precision": "fp16"}),
    "dropout": ("forked", {"optimizer": SGD}),
    # Their inputs are integers, so the learning rate makes gradients overflow.
    "lstm": ("lstm_language_model", {
        "optimizer": et.SGD(lr=200.0, momentum=0.9), "precision": "fp16",
    }),
    "attention": ("transformer_encoder", {"optimizer": et.Adam(lr=0.7), "precision": "fp16"}),
    "depthwise": ("mobilenet_v2", {"optimizer": SGD, "precision": "fp16"}),
    "gru": ("gru_classifier", {
        "optimizer": et.SGD(lr=200.0, momentum=0.9), "precision": "fp16",
    }),
    "segments": ("lstm_language_model", {
        "optimizer": et.SGD(lr=200.0, momentum=0.9), "precision": "fp16", "segments": 2,
    }),
    "sliced": ("words", {
        "optimizer": et.Adam(lr=50.0), "precision": "fp16", "allow": ("slices",),
    }),
    "lightconv": ("light_conv", {"optimizer": et.Adam(lr=1.0), "precision": "fp16"}),
    "keyword": ("keyword", {"optimizer": SGD, "precision": "fp16"}),
    "densenet": ("densenet", {"optimizer": SGD, "precision": "fp16"}),
    "unet": ("unet_transposed", {"optimizer": SGD, "precision": "fp16"}),
    "int8": ("digits", {"optimizer": SGD, "precision": "fp16", "model_memory": "int8"}),
    "frozen int8": ("digits", {
        "optimizer": SGD, "precision": "fp16", "frozen": "int8", "train": ("head.*",),
    }),
    "frozen fp32": ("digits", {"optimizer": SGD, "frozen": "fp32", "train": ("head.*",)}),
    "lora int4": ("transformer_encoder", {
        "optimizer": et.Adam(lr=0.3), "precision": "fp16", "frozen": "int4",
        "lora": "r=4,targets=*.out_proj,*.linear1,*.linear2",
    }),
}  # fmt: skip
# By units (below, at, above a buffer's 64 lanes): tokens, width, time, layers, bidirectional.
_SHAPES = {48: (200, 32, 12, 2, False), 64: (23, 8, 7, 1, True), 72: (23, 8, 5, 1, False)}
_CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}
RECURRENT = {
    f"{cell} {units}": (f"{cell} {units}", {"optimizer": et.SGD(lr=0.1, momentum=0.9)})
    for cell in _CELLS
    for units in _SHAPES
}
FAMILIES = {name: (name, {"optimizer": SGD}) for name in ZOO}
# KINDS last: two of them are named like their nets of the zoo.
EVERY: dict[str, tuple[str, dict]] = {**RECURRENT, **FAMILIES, **KINDS}
# Options that select a storage; KINDS set their own.
STORAGES = {
    "fp32": {"precision": "fp32"},
    "fp16": {"precision": "fp16"},
    "int8": {"precision": "fp16", "model_memory": "int8"},
}
_PLANNED_FOR = {1: "cortex-m7", 4: "aarch64", 8: "x86-64-v3", 16: "x86-64-v4"}


def _words() -> torch.nn.Module:
    """A net with enough classes to fill several slices."""
    torch.manual_seed(0)
    layers = torch.nn.Embedding(700, 12), torch.nn.Linear(12, 12), torch.nn.Tanh()
    return torch.nn.Sequential(*layers, torch.nn.Linear(12, 700))


class _Recurrent(torch.nn.Module):
    """Token ids [batch, time] -> scores of the next token [batch, time, tokens]."""

    def __init__(self, cell: str, units: int) -> None:
        super().__init__()
        tokens, width, self.time, layers, both = _SHAPES[units]
        self.tokens = torch.nn.Embedding(tokens, width)
        how = {"num_layers": layers, "bidirectional": both, "batch_first": True}
        self.cells = _CELLS[cell](width, units, **how)
        self.head = torch.nn.Linear(units * (1 + both), tokens)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.cells(self.tokens(ids))
        return self.head(states)


def _write(name: str, path: Path) -> None:
    torch.manual_seed(0)
    if name == "forked":
        write_forked(path)
    elif name == "words":
        export_torch(_words(), (torch.zeros((2, 6), dtype=torch.int64),), path)
    elif name in RECURRENT:
        cell, units = name.split()
        net = _Recurrent(cell, int(units))
        export_torch(net, (torch.zeros((2, net.time), dtype=torch.int64),), path)
    else:
        entry = ZOO[name]
        example = entry.example_inputs(2, "small")
        export_torch(entry.build("small"), example, path, batch_dim=entry.batch_dim)


@cache
def model(name: str) -> tuple[Path, Loss]:
    """Return ONNX file and loss of a net: `digits`, `forked`, one of RECURRENT or a zoo name."""
    if name == "digits":
        return MODEL, Loss("cross_entropy")
    path = kept(f"kind {name}.onnx", lambda path: _write(name, path))
    entry = ZOO.get(name)
    if entry is None:
        return path, Loss("cross_entropy")
    ignored = -100 if entry.ignore_index is None else entry.ignore_index
    return path, Loss(entry.loss, ignore_index=ignored)


def options_of(kind: str, storage: str = "") -> dict:
    """Compile options of a kind; `storage`: one of STORAGES, for kinds that set none."""
    return {**EVERY[kind][1], **(STORAGES[storage] if storage else {})}


def spike_of(kind: str, storage: str = "") -> float:
    """The value of sample 0 of a kind, if its inputs are floats."""
    return SPIKE[options_of(kind, storage).get("precision", "fp32")]


def planned_for(target: str) -> str:
    """The target for which a target's Programs are planned.

    Targets with the same number of lanes share one; those with other arithmetic have their own.
    """
    found = targets.get(target)
    if not found.fma:
        return target
    return _PLANNED_FOR[found.lanes] if found.fp64 else "cortex-m4"


@cache
def compiled(kind: str, planned: str, storage: str = "") -> Program:
    """The Program of a kind for a target from `planned_for`."""
    path, loss = model(EVERY[kind][0])
    return et.compile(
        et.load_onnx(path), loss=loss, minibatch=8, microbatch=4, threads=1,
        target=planned, **options_of(kind, storage),
    )  # fmt: skip


@cache
def program(
    kind: str, planned: str, storage: str = "", steps: int = STEPS
) -> tuple[Program, Checked]:
    """The Program from `compiled`, and its run on this machine."""
    found = compiled(kind, planned, storage)
    return found, checked_run(found, steps, spike_of(kind, storage))
