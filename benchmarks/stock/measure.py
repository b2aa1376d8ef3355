"""Measurements of a stock model and of torch, each in a process of its own.

export   writes the file
parity   the forward pass against onnxruntime; loss, gradients and an update against torch
torch    torch's peak for the same minibatch and optimizer
"""

import resource
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from edgetrain.exporters.parity import parity

from . import build
from .first_step import loss_of, refusal
from .listed import MINIBATCH, Listed, listed

build.import_libraries()


def result(what: str, label: str, path: Path) -> dict[str, Any]:
    """Run one measurement; an error becomes a reason."""
    row = next(row for row in listed() if row.label == label)
    warnings.simplefilter("ignore")
    try:
        return WHAT[what](row, path)
    except Exception as error:  # any error is the reason why the model cannot be trained
        return refusal(error)


def _export(row: Listed, path: Path) -> dict[str, Any]:
    model = build.module_of(row)
    build.export(row, path, model)
    return {"weights_mb": build.megabytes(model)}


def _parity(row: Listed, path: Path) -> dict[str, Any]:
    report = parity(path, loss=loss_of(row), minibatch=MINIBATCH, steps=1)
    gradient, forward = report.worst("gradient"), report.worst("forward")
    return {
        "parity": report.ok,
        "runtime": report.facts["forward_reference"],
        "forward": forward and forward.error,
        "gradient": gradient and gradient.error,
        "torch_gradient": gradient and gradient.torch_error,
        "why": "" if report.ok else report.summary(),
    }


def _torch(row: Listed, path: Path) -> dict[str, Any]:
    inputs = build.samples_of(row)
    before = _resident()
    model = build.module_of(row)
    update = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    for _ in range(2):  # the second one includes the momentum
        update.zero_grad()
        found = model(*inputs)
        found = found if isinstance(found, torch.Tensor) else next(iter(found.values()))
        (found * found).mean().backward()
        update.step()
    return {"torch": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before}


def _resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


WHAT: dict[str, Callable[[Listed, Path], dict[str, Any]]] = {
    "export": _export,
    "parity": _parity,
    "torch": _torch,
}
