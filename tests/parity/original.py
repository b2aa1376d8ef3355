"""An original torch module in float64 and edgetrain, on one microbatch."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import edgetrain as et
from edgetrain.api import gradient_program, gradients
from edgetrain.losses import Loss
from edgetrain.ops.model import Model
from edgetrain.runtime.microbatch import run_microbatch
from edgetrain.runtime.session import Session
from examples.zoo import ZOO, ZooModel
from examples.zoo.spec import Scale
from tests.exporters.exported import without_dropout
from tests.zoo_files import zoo_file

LOSS_TOLERANCE = 1e-5
STATISTICS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 5e-3
TORCH_ERROR_FACTOR = 3.0
NEAR_ZERO = 1e-4
_UNIT = 2.0**-23
_PERTURBED_RUNS = 4


@dataclass
class Step:
    """Loss, gradients and running statistics of one microbatch, under torch's names."""

    loss: float
    gradients: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray]


class Case:
    """A zoo model: the module without dropout, its file, and one batch."""

    def __init__(self, name: str, scale: Scale = "small", batch: int = 8) -> None:
        self.entry: ZooModel = ZOO[name]
        torch.manual_seed(0)
        self.module = without_dropout(self.entry.build(scale))
        self.model: Model = et.load_onnx(zoo_file(name, scale))
        torch.manual_seed(1)
        self.tensors = self.entry.example_inputs(batch, scale)
        self.target_tensor = self.entry.target(batch, scale)

    @property
    def loss(self) -> Loss:
        ignored = self.entry.ignore_index
        return Loss(self.entry.loss, ignore_index=-100 if ignored is None else ignored)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        specs = self.model.inputs
        return {s.name: t.numpy() for s, t in zip(specs, self.tensors, strict=True)}

    @property
    def target(self) -> np.ndarray:
        return self.target_tensor.numpy()

    def torch_step(self, dtype: torch.dtype, draw: np.random.Generator | None = None) -> Step:
        """The original module's step; `draw` moves weights by up to a unit in the last place."""
        module = copy.deepcopy(self.module)
        if draw is not None:
            with torch.no_grad():
                for parameter in module.parameters():
                    signs = torch.tensor(draw.choice([-1.0, 0.0, 1.0], tuple(parameter.shape)))
                    parameter.mul_(1 + signs.float() * _UNIT)
        module.to(dtype)
        output = module(*(_cast(t, dtype) for t in self.tensors))
        output = output if isinstance(output, Tensor) else output[0]
        loss = self.entry.loss_value(output, _cast(self.target_tensor, dtype))
        loss.backward()
        return Step(
            loss.item(),
            {n: _gradient(p).double().numpy() for n, p in module.named_parameters()},
            {n: b.double().numpy() for n, b in module.named_buffers()},
        )

    def engine_step(self, **options) -> tuple[Step, int]:
        """A step of edgetrain, and the smallest possible budget in bytes."""
        program = gradient_program(self.model, self.inputs, self.target, loss=self.loss, **options)
        session = Session(program)
        try:
            value = run_microbatch(session, self.inputs, self.target)
            found = gradients(session)
            session.executor.run("update")  # commits the running statistics
            buffers = {
                s.name: session.values[s.name].copy()
                for s in program.persistent
                if s.role == "buffer"
            }
        finally:
            session.close()
        return Step(value, found, buffers), program.account["min_budget_nbytes"]


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def departures(case: Case, step: Step) -> list[str]:
    """Descriptions of values beyond the tolerances; empty if all are within."""
    exact = case.torch_step(torch.float64)
    out = []
    if not abs(step.loss - exact.loss) <= LOSS_TOLERANCE * abs(exact.loss):
        out.append(f"loss {step.loss}, torch {exact.loss}")
    for name, array in step.buffers.items():
        error = np.max(np.abs(array - exact.buffers[name]) / (1 + np.abs(exact.buffers[name])))
        if not error <= STATISTICS_TOLERANCE:
            out.append(f"statistic {name}: {error:.2e}")
    errors = _errors(step, exact)
    far = {n: e for n, e in errors.items() if not e <= GRADIENT_TOLERANCE}
    if far:
        # A single float32 run may by luck not flip masks that other summation orders flip.
        draw = np.random.default_rng(0)
        runs = [case.torch_step(torch.float32)]
        runs += [case.torch_step(torch.float32, draw) for _ in range(_PERTURBED_RUNS)]
        own = [_errors(run, exact) for run in runs]
        for name, error in far.items():
            torchs = max(errors[name] for errors in own)
            if not error <= TORCH_ERROR_FACTOR * torchs:
                out.append(f"gradient {name}: {error:.2e}, torch's own float32 {torchs:.2e}")
    return out


def _errors(step: Step, exact: Step) -> dict[str, float]:
    """Relative L2 error of each gradient; near-zero ones relative to the whole gradient's norm."""
    whole = math.sqrt(sum(float(np.sum(g * g)) for g in exact.gradients.values()))
    return {
        name: float(np.linalg.norm(step.gradients[name] - true))
        / max(float(np.linalg.norm(true)), NEAR_ZERO * whole)
        for name, true in exact.gradients.items()
    }
