"""Does edgetrain compute what torch computes? Loss, every gradient, statistics, optimizer steps.

At each step the engine is set to the reference's state, so that errors do not add up; the update
is fed the reference's gradient, so that it is judged apart from the backward pass. Tensors are
compared in the order in which the engine makes them: the first one that departs is nearest to
the cause.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgetrain.api import gradient_program, gradients, run_microbatch
from edgetrain.compiler.autodiff import accumulator_name
from edgetrain.errors import UsageError
from edgetrain.importer import load_onnx
from edgetrain.ir import Graph
from edgetrain.kernels import control
from edgetrain.ops.loss import Loss
from edgetrain.ops.model import Model
from edgetrain.optim import SGD, Optimizer, make_optimizer
from edgetrain.runtime.session import Session
from exporters.reference import Reference, StepResult, with_state
from exporters.sample import sample_batch

LOSS_TOLERANCE = {"fp32": 1e-5, "fp16": 1e-2}
GRADIENT_TOLERANCE = 5e-3
# fp32 torch departs from fp64 by its own masks and sums; nobody is asked to be better than that.
TORCH_ERROR_FACTOR = 3.0
# A gradient that is zero in truth (a bias before batch-norm) is measured against the whole's norm.
NEAR_ZERO = 1e-4
STATISTICS_TOLERANCE = 1e-5
UPDATE_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison; `tolerance` None: shown, not judged."""

    step: int
    kind: str
    name: str
    error: float
    tolerance: float | None
    torch_error: float | None = None

    @property
    def ok(self) -> bool:
        """A NaN is never ok."""
        return self.tolerance is None or self.error <= self.tolerance


@dataclass(frozen=True)
class ParityReport:
    """Every comparison, in the order in which the engine makes the tensors.

    Attributes:
      facts: model, device, torch's version, precision, batch, steps, budget and arena in bytes.
    """

    facts: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    @property
    def first(self) -> Row | None:
        """The first tensor that departs."""
        return next((row for row in self.rows if not row.ok), None)

    def worst(self, kind: str) -> Row | None:
        """The row of this kind that is nearest to its tolerance, or furthest beyond."""
        rows = [row for row in self.rows if row.kind == kind]
        return max(rows, key=_used, default=None)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; an error that is not finite is null."""
        return {
            "ok": self.ok, **self.facts,
            "first_departure": _json(self.first) if self.first else None,
            "worst": {kind: _json(row) for kind in _KINDS if (row := self.worst(kind))},
            "tensors": [_json(row) for row in self.rows],
        }  # fmt: skip

    def __str__(self) -> str:
        return json.dumps(self.to_json())

    def summary(self) -> str:
        """One line: the verdict, and what departs first."""
        count = len(self.rows)
        if self.first is None:
            return f"parity: {count} comparisons, all within tolerance."
        bad, row = sum(not r.ok for r in self.rows), self.first
        return (
            f"parity: {bad} of {count} comparisons depart; first {row.kind} {row.name!r} at step "
            f"{row.step}: error {row.error:.3g}, tolerance {row.tolerance:.3g}."
        )

    def print(self, console: Any = None, *, limit: int = 8) -> None:
        """The table: the worst of each kind and every departure, at most `limit` a kind."""
        from exporters.parity_table import print_report

        print_report(self, console, limit)


_KINDS = ("loss", "statistic", "gradient", "parameter", "state")


def _used(row: Row) -> float:
    share = row.error / row.tolerance if row.tolerance else row.error
    return math.inf if math.isnan(share) else share


def _json(row: Row) -> dict[str, Any]:
    out = {**dataclasses.asdict(row), "ok": row.ok}
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in out.items()}


def parity(
    model: Model | str | Path,
    *,
    device: str = "cpu",
    steps: int = 5,
    precision: str = "fp32",
    loss: str | Loss = "cross_entropy",
    optimizer: str | Optimizer | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    target: np.ndarray | None = None,
    batch: int = 8,
    seed: int = 0,
    budget: str | int | None = None,
    dims: Mapping[str, int] | None = None,
    **options: Any,
) -> ParityReport:
    """Compare the engine with torch in float64 on `device`.

    Args:
      model: loaded, or the path of an ONNX file.
      steps: microbatches; after each the parameters move. New random inputs at each step, or
        `inputs` and `target` again and again where given.
      precision: storage of the engine's values. With fp16 only the loss is judged.
      optimizer: SGD with momentum and weight decay by default.
      batch: samples of the random inputs.
      budget: bytes that the engine is given; None takes the fastest plan.
    Raises:
      UsageError: an option that does not fit, or no such device.
      ModelError: a model that cannot be trained here.
    """
    model = load_onnx(model) if isinstance(model, str | Path) else model
    loss = Loss(loss) if isinstance(loss, str) else loss
    if precision not in LOSS_TOLERANCE:
        raise UsageError(f"precision {precision!r}: expected {' or '.join(LOSS_TOLERANCE)}.")
    if steps < 1 or (inputs is None) != (target is None):
        raise UsageError("parity: expected 1 or more steps, and inputs and target both or neither.")
    if optimizer is None:
        optimizer = SGD(lr=0.05, momentum=0.9, weight_decay=1e-4)
    optimizer = make_optimizer(optimizer) if isinstance(optimizer, str) else optimizer
    output = options.get("output")
    batch = batch if inputs is None else len(next(iter(inputs.values())))
    exact = Reference(model, batch, device=device, dims=dims, output=output)
    draw = np.random.default_rng(seed)

    def samples() -> tuple[Mapping[str, np.ndarray], np.ndarray]:
        if inputs is not None and target is not None:
            return inputs, target
        return sample_batch(exact.graph, exact.output, loss, draw)

    first = samples()
    program = gradient_program(
        model, *first, loss=loss, precision=precision, budget=budget, dims=dims,
        optimizer=optimizer, seed=seed, **options,
    )  # fmt: skip
    session = Session(program)
    try:
        compared = _Comparison(model, loss, session, exact, optimizer, precision)
        rows: list[Row] = []
        for step in range(1, steps + 1):
            rows += compared.step(step, *(first if step == 1 else samples()))
    finally:
        session.close()
    facts = {
        "model": model.name, "device": _device_name(device), "torch": torch.__version__,
        "precision": precision, "loss": loss.kind, "optimizer": optimizer.to_json(),
        "batch": batch, "steps": steps, "arena_nbytes": program.arena_nbytes,
        "parameters": len(exact.parameters), "seed": seed,
    }  # fmt: skip
    return ParityReport(facts, tuple(rows))


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


class _Comparison:
    """A session of the engine beside a float64 reference and its torch optimizer."""

    def __init__(
        self,
        model: Model,
        loss: Loss,
        session: Session,
        exact: Reference,
        optimizer: Optimizer,
        precision: str,
    ) -> None:
        self._model, self._loss, self._session, self._exact = model, loss, session, exact
        self._optimizer, self._precision = optimizer, precision
        self._torch = torch_optimizer(optimizer, exact.parameters.values())
        self._order = gradient_order(exact.graph)

    def step(self, step: int, inputs: Mapping[str, np.ndarray], target: np.ndarray) -> list[Row]:
        """Set the engine to the reference's state, run both, compare, move the reference on."""
        self._round_and_load(step)
        single = Reference(
            with_state(self._model, self._arrays()), len(target),
            device=str(self._exact.device), dtype=torch.float32,
            dims=self._session.program.recipe["dims"], output=self._exact.output_name,
        ).step(inputs, target, self._loss)  # fmt: skip
        expected = self._exact.step(inputs, target, self._loss)
        value = run_microbatch(self._session, inputs, target)
        rows = [self._loss_row(step, value, expected, single)]
        rows += self._statistics(step, expected)
        rows += self._gradients(step, expected, single)
        rows += self._update(step, expected)
        return rows

    def _arrays(self) -> dict[str, np.ndarray]:
        state = {**self._exact.parameters, **self._exact.buffers}
        return {n: t.detach().cpu().numpy().astype(np.float32) for n, t in state.items()}

    def _round_and_load(self, step: int) -> None:
        """Both sides start from the same float32 numbers."""
        exact, values = self._exact, self._session.values
        with torch.no_grad():
            for tensor in (*exact.parameters.values(), *exact.buffers.values()):
                tensor.copy_(tensor.float())
            for state in self._torch.state.values():
                for tensor in state.values():
                    if isinstance(tensor, torch.Tensor) and tensor.dim():
                        tensor.copy_(tensor.float())
        for name, array in self._arrays().items():
            if name in values:
                values[name][...] = array
        for name, tensor in exact.parameters.items():
            for tag, of_torch in _STATE[self._optimizer.name].items():
                array = self._torch.state.get(tensor, {}).get(of_torch)
                if array is not None and f"{name}.{tag}" in values:
                    values[f"{name}.{tag}"][...] = array.cpu().numpy()
        session = self._session
        session.ints[control.STEP] = step - 1
        session.ints[control.ADAM_T] = step - 1
        session.ints[control.TARGETS] = session.ints[control.CORRECT] = 0
        session.reals[control.LOSS_SUM] = 0.0
        session.reals[control.LR] = self._optimizer.lr
        for word, beta in zip((control.BIAS1, control.BIAS2), self._optimizer.betas, strict=True):
            session.reals[word] = 1.0 - beta ** (step - 1)

    def _loss_row(self, step: int, value: float, expected: StepResult, single: StepResult) -> Row:
        scale = max(abs(expected.loss), 1e-30)
        errors = [abs(found - expected.loss) / scale for found in (value, single.loss)]
        return Row(step, "loss", "loss", errors[0], LOSS_TOLERANCE[self._precision], errors[1])

    def _statistics(self, step: int, expected: StepResult) -> Iterator[Row]:
        tolerance = STATISTICS_TOLERANCE if self._precision == "fp32" else None
        for name, array in expected.buffers.items():
            if name in self._session.values:
                found = self._session.values[name].astype(np.float64)
                error = np.max(np.abs(found - array) / (1.0 + np.abs(array)), initial=0.0)
                yield Row(step, "statistic", name, float(error), tolerance)

    def _gradients(self, step: int, expected: StepResult, single: StepResult) -> Iterator[Row]:
        found = gradients(self._session)
        whole = math.sqrt(sum(float(np.sum(g * g)) for g in expected.gradients.values()))
        for name in self._order:
            true = expected.gradients[name]
            scale = max(float(np.linalg.norm(true)), NEAR_ZERO * whole, 1e-30)
            # A parameter the engine has no accumulator for has no gradient there.
            ours = found.get(name, np.zeros_like(true, np.float32)).astype(np.float64)
            error = float(np.linalg.norm(ours - true)) / scale
            torchs = float(np.linalg.norm(single.gradients[name] - true)) / scale
            tolerance = max(GRADIENT_TOLERANCE, TORCH_ERROR_FACTOR * torchs)
            judged = tolerance if self._precision == "fp32" else None
            yield Row(step, "gradient", name, error, judged, torchs)

    def _update(self, step: int, expected: StepResult) -> Iterator[Row]:
        """Both optimizers, fed the reference's gradient as float32."""
        session, exact = self._session, self._exact
        values = session.values
        count = max(1, int(session.ints[control.TARGETS]))
        factor = session.reals[control.NOMINAL] / count / session.reals[control.LOSS_SCALE]
        for name, tensor in exact.parameters.items():
            gradient = expected.gradients[name].astype(np.float32)
            tensor.grad = exact.tensor(gradient)
            if accumulator_name(name) in values:
                values[accumulator_name(name)][...] = gradient / np.float32(factor)
        session.executor.run("update")
        self._torch.step()
        tolerance = UPDATE_TOLERANCE if self._precision == "fp32" else None
        for name, tensor in exact.parameters.items():
            if accumulator_name(name) not in values:
                continue
            pairs = {"parameter": (name, tensor)}
            for tag, of_torch in _STATE[self._optimizer.name].items():
                if f"{name}.{tag}" in values:
                    pairs[tag] = f"{name}.{tag}", self._torch.state[tensor][of_torch]
            for kind, (slot, true) in pairs.items():
                array = true.detach().cpu().numpy()
                error = float(np.linalg.norm(values[slot].astype(np.float64) - array))
                error /= max(float(np.linalg.norm(array)), 1e-12)
                kind = "parameter" if kind == "parameter" else "state"
                yield Row(step, kind, slot, error, tolerance)


# Tag of the engine's optimizer state -> torch's name for it.
_STATE: dict[str, dict[str, str]] = {
    "sgd": {"momentum": "momentum_buffer"},
    "adam": {"moment1": "exp_avg", "moment2": "exp_avg_sq"},
    "adamw": {"moment1": "exp_avg", "moment2": "exp_avg_sq"},
}


def torch_optimizer(optimizer: Optimizer, parameters) -> torch.optim.Optimizer:
    """Torch's optimizer of the same name and hyperparameters.

    Raises:
      UsageError: torch has none of this name.
    """
    options = optimizer.to_json()
    name = options.pop("name")
    if name == "sgd":
        return torch.optim.SGD(list(parameters), **options)
    if name not in ("adam", "adamw"):
        raise UsageError(f"optimizer {name!r}: torch has none to compare with; use sgd or adam.")
    betas = options.pop("beta1"), options.pop("beta2")
    made = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return made(list(parameters), betas=betas, **options)


def gradient_order(graph: Graph) -> list[str]:
    """Parameters in the order in which backward reaches them, from the loss to the input."""
    seen: dict[str, None] = {}
    for node in reversed(graph.nodes):
        for name in node.reads:
            root = graph.root(name)
            if graph.values[root].role == "parameter":
                seen.setdefault(root)
    return list(seen)
