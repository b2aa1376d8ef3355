"""Compares edgetrain with other implementations: first the forward pass of the user's own file with
an independent ONNX runtime (parity_forward.py), then loss, gradients, statistics and optimizer
steps with torch.

Each step starts from the reference's state, so errors do not add up; the update gets the
reference's gradient, so it is judged separately from the backward pass. Tensors are compared in the
order in which the engine computes them: the first one that differs is closest to the cause.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgetrain.api import (
    fixed_inputs,
    gradient_program,
    loaded,
    make_options,
    samples_first,
    target_first,
)
from edgetrain.compiler import Options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.model.model_options import ModelOptions
from edgetrain.compiler.model.weights import chosen_weights
from edgetrain.errors import UsageError
from edgetrain.exporters.parity_forward import forward_rows
from edgetrain.exporters.parity_step import KINDS, Comparison, Row
from edgetrain.exporters.reference import Reference
from edgetrain.exporters.reference_masks import MOVES
from edgetrain.exporters.reference_random import DRAWN
from edgetrain.exporters.sample import sample_batch
from edgetrain.formats import PRECISIONS, frozen_as
from edgetrain.losses import Loss
from edgetrain.losses.terms import Term
from edgetrain.ops.model import Model, names_file
from edgetrain.optim import SGD, Optimizer
from edgetrain.program import TARGET, WEIGHT, Program
from edgetrain.runtime.session import Session
from edgetrain.units import whole_number

Batch = tuple[Mapping[str, np.ndarray], np.ndarray | None]
CHOICE = ("train", "freeze", "train_constants", "freeze_bn")  # options for what is trained
REFERENCES = {"fp64": torch.float64, "fp32": torch.float32}
# Options for which weights are trained.
_WEIGHTS = ("train", "freeze", "train_constants", "allow_constants", "lora", "quantized", "output")
_LAYOUT = ("dims", "batch_axis", "output", "inputs")  # options for the layout of samples
_OPTIMIZER = SGD(lr=0.05, momentum=0.9, weight_decay=1e-4)


@dataclass(frozen=True)
class ParityReport:
    """All comparisons, in the order in which the engine computes the tensors.

    Attributes:
      facts: model, device, torch's version, precision, batch, steps, budget and arena in bytes;
        `forward_reference`, the runtime that ran the file (None: none did), and `forward_notes`.
    """

    facts: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    @property
    def overflows(self) -> list[int]:
        """Steps whose gradients are beyond the range of their storage, in torch too; in training,
        such a step changes nothing."""
        lost = (row for row in self.rows if row.kind == "gradient" and row.tolerance is None)
        return list(dict.fromkeys(row.step for row in lost))

    @property
    def first(self) -> Row | None:
        """The first comparison that fails."""
        return next((row for row in self.rows if not row.ok), None)

    def worst(self, kind: str) -> Row | None:
        """The row of this kind that is closest to its tolerance, or furthest above it."""
        rows = [row for row in self.rows if row.kind == kind]
        return max(rows, key=_used, default=None)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; non-finite errors become null."""
        return {
            "ok": self.ok,
            **self.facts,
            "first_departure": _json(self.first) if self.first else None,
            "worst": {kind: _json(row) for kind in KINDS if (row := self.worst(kind))},
            "tensors": [_json(row) for row in self.rows],
        }

    def summary(self) -> str:
        """One line: the verdict and the first difference."""
        count = sum(row.tolerance is not None for row in self.rows)
        if self.first is None:
            lost = f"; gradients overflow in {len(self.overflows)} of {self.facts['steps']} steps"
            return (
                f"parity: {count} comparisons, all within tolerance{lost * bool(self.overflows)}."
            )
        bad, row = sum(not r.ok for r in self.rows), self.first
        where = f" at step {row.step}" if row.step else f" to {self.facts['forward_reference']}"
        return (
            f"parity: {bad} of {count} comparisons differ; first {row.kind} {row.name!r}{where}: "
            f"error {row.error:.3g}, tolerance {row.tolerance:.3g}."
        )

    def print(self, console: Any = None, *, limit: int = 8) -> None:
        """Print a table of the worst rows of each kind and all differences, at most `limit` per
        kind."""
        from edgetrain.exporters.parity_table import print_report

        print_report(self, console, limit)


def _used(row: Row) -> float:
    share = row.error / row.tolerance if row.tolerance else row.error
    return math.inf if math.isnan(share) else share


def _json(row: Row) -> dict[str, Any]:
    out = {**dataclasses.asdict(row), "ok": row.ok}
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in out.items()}


@names_file
def parity(
    model: Model | str | Path,
    *,
    device: str = "cpu",
    reference: str = "fp64",
    steps: int = 5,
    precision: str = "fp32",
    loss: str | Loss = "cross_entropy",
    optimizer: str | Optimizer | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    target: np.ndarray | None = None,
    minibatch: int = 8,
    microbatch: int | None = None,
    seed: int = 0,
    **options: Any,
) -> ParityReport:
    """Compare the engine with an ONNX runtime on the file, and with torch on `device`.

    Args:
      model: as for `compile`.
      reference: torch's type: fp64 (exact reference) or fp32.
      steps: number of updates, each on new random inputs, or on `inputs` and `target` if given.
      precision: storage of the engine's values, and of its weights unless `model_memory` is set.
        With fp16, torch's values are rounded too; an overflow halves the loss scale as in training.
        Updates of weights in blocks are shown, not judged; `saved` in blocks has their tolerance.
      inputs, target: in the file's layout; inputs without dimensions are numbers.
      optimizer: default: SGD with momentum and weight decay.
      minibatch, microbatch: number of random samples, and how many the engine takes at a time
        (None: all). Torch uses microbatches only if batch-norms see one, or if the file fixes it.
      options: as for `compile`, `verbose` without effect. No budget: the engine's fastest plan.
    Raises:
      UsageError, ModelError: an invalid option, an unknown device, or an untrainable model.
    """
    options.pop("verbose", None)
    model, inputs = fixed_inputs(loaded(model), inputs)
    loss = Loss.of(loss)
    inputs = None if isinstance(inputs, Mapping) and not inputs else inputs  # all were numbers
    _known("reference", reference, REFERENCES)
    _sizes(minibatch, microbatch)
    _check_samples(loss, steps, inputs is not None, target is not None)
    model = _trainable(model, seed, precision, options)
    optimizer = Optimizer.of(optimizer or _OPTIMIZER)
    layout = make_options(loss=loss, **_picked(options, *_LAYOUT))
    model = Compilation(model, layout).prepared.laid_out
    inputs = samples_first(model, inputs) if inputs is not None else None
    sizes = _sizes(len(next(iter(inputs.values()))) if inputs else minibatch, microbatch)
    options |= {"precision": precision, "optimizer": optimizer, "seed": seed}
    asked = make_options(**_asked(options), loss=loss, **sizes)
    if target is not None:
        loss, target = target_first(model, asked, np.asarray(target))
    kind = {"device": device, "dtype": REFERENCES[reference]}
    exact = _reference(model, asked, _picked(options, *CHOICE, "output", "dims") | kind)
    loss = asked.loss if asked.joined else loss
    batches = repeat((inputs, target)) if inputs is not None else _samples(exact, loss, sizes, seed)
    first = next(batches)
    rows, ran = forward_rows(model, first[0], options.get("dims"))
    program = gradient_program(model, *first, loss=loss, microbatch=sizes["microbatch"], **options)
    rows += _rows(program, model, exact, asked, chain([first], islice(batches, steps - 1)))
    facts = _about(model, program, exact, device) | ran | _settings(asked) | sizes
    return ParityReport(facts | {"reference": reference, "steps": steps, "seed": seed}, tuple(rows))


def _picked(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _settings(options: Options) -> dict[str, Any]:
    """The options listed in a report."""
    losses = " + ".join(map(_named, options.terms))
    optimizer = options.optimizer.to_json()
    return {"precision": options.precision, "loss": losses, "optimizer": optimizer}


def _trainable(model: Model, seed: int, precision: str, options: dict[str, Any]) -> Model:
    """The model with the new head and adapters from `options`, which are removed there."""
    model = _weighted(_headed(model, seed, options), seed, options)
    if options.pop("lora", None) is not None and options.get("frozen") is None:
        stored = options.get("weights") or options.get("model_memory") or precision
        options["frozen"] = frozen_as(stored)
    _whole(options.get("bptt"))
    _known("precision", precision, PRECISIONS)
    return model


def _named(term: Term) -> str:
    """A loss as shown in a table: class=cross_entropy, box=huber*0.5."""
    times = f"*{term.loss.weight:g}" if term.loss.weight != 1 else ""
    return f"{term.output}={term.loss.name}{times}" if term.label else f"{term.loss.name}{times}"


def _whole(bptt: int | None) -> None:
    if bptt:
        raise UsageError(
            f"parity: bptt {bptt}: truncated gradients differ from torch's. Leave bptt out."
        )


def _headed(model: Model, seed: int, options: dict[str, Any]) -> Model:
    """The model with the layers of `new_head`, which is removed from the options."""
    new_head = options.pop("new_head", None)
    if new_head is None:
        return model
    named = {name: options[name] for name in _LAYOUT if name in options}
    asked = make_options(seed=seed, new_head=new_head, **named)
    return Compilation(model, asked).prepared.laid_out


def _weighted(model: Model, seed: int, options: dict[str, Any]) -> Model:
    """The model with its trained weights selected, and rounded according to `quantized`, which is
    removed from the options: both sides compute with these weights."""
    named = {k: v for k, v in options.items() if k in _WEIGHTS}
    options.pop("quantized", None)
    return chosen_weights(model, ModelOptions.of(make_options(seed=seed, **named)))


def _check_samples(loss: Loss, steps: int, has_inputs: bool, has_target: bool) -> None:
    whole_number("parity: steps", steps, least=1)
    if has_target == (has_inputs and loss.takes_target):
        return
    both = "both inputs and target, or neither" if loss.takes_target else "no target"
    raise UsageError(f"parity: expected {both}.")


def _sizes(minibatch: int, microbatch: int | None) -> dict[str, Any]:
    whole_number("minibatch", minibatch, least=1)
    size = minibatch if microbatch is None else whole_number("microbatch", microbatch)
    if size < 1 or minibatch % size:
        raise UsageError(
            f"microbatch {microbatch}: expected a divisor of the minibatch of {minibatch}."
        )
    return {"minibatch": minibatch, "microbatch": size}


def _asked(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "budget"}


def _reference(model: Model, options: Options, kind: Mapping[str, Any]) -> Reference:
    """The torch reference, on the whole minibatch unless its samples must be split into
    microbatches."""
    whole, part = options.minibatch, options.microbatch or options.minibatch
    prepared = Compilation(model.without_dropout(), options).prepared
    samples = prepared.samples
    if options.joined:
        beside = {"terms": options.terms, "axes": prepared.axes, "output": options.output}
        kind = {**kind, **beside}
    exact = Reference(model, part, axis=samples.axis, **kind)
    if part == whole:
        return exact
    exact.factor = samples.factor(whole, part)
    in_turn = samples.batch or any(node.op in {*MOVES, *DRAWN} for node in exact.graph.nodes)
    return exact if in_turn else Reference(model, whole, axis=samples.axis, **kind)


def _samples(exact: Reference, loss: Loss, sizes: Mapping[str, int], seed: int) -> Iterator[Batch]:
    draw = np.random.default_rng(seed & (2**63 - 1))
    parts = sizes["minibatch"] // exact.batch
    while True:
        result = [_sampled(exact, loss, draw) for _ in range(parts)]
        inputs = {name: np.concatenate([i[name] for i, _ in result]) for name in result[0][0]}
        targets = [target for _, target in result if target is not None]
        yield inputs, np.concatenate(targets) if targets else None


def _sampled(exact: Reference, loss: Loss, draw: np.random.Generator) -> Batch:
    """A random microbatch; targets of outputs other than the first are among the inputs."""
    first = sample_batch(exact.graph, exact.output, loss, draw, exact.axis)
    for term, output, axis in zip(exact.terms, exact.outputs, exact.axes, strict=False):
        if term.target != TARGET:
            beside, target = sample_batch(exact.graph, output, term.loss, draw, axis)
            shape = exact.graph.values[output].shape
            blank = np.zeros(term.loss.target_shape(shape or (exact.batch,)), np.float32)
            first[0][term.target] = blank if target is None else target
            if WEIGHT in beside:
                first[0].setdefault(WEIGHT, beside[WEIGHT])
    return first


def _known(option: str, value: str, known: Mapping[str, Any]) -> None:
    if not isinstance(value, str) or value not in known:
        raise UsageError(f"{option} {value!r}: expected {' or '.join(known)}.")


def _about(model: Model, program: Program, exact: Reference, device: str) -> dict[str, Any]:
    return {
        "model": model.name,
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "torch": torch.__version__,
        "arena_nbytes": program.arena_nbytes,
        "parameters": len(exact.parameters),
    }


def _rows(
    program: Program, model: Model, exact: Reference, asked: Options, batches: Iterable[Batch]
) -> list[Row]:
    """All comparisons, one step per batch."""
    session = Session(program)
    try:
        compared = Comparison(model, session, exact, asked)
        return [row for k, batch in enumerate(batches, 1) for row in compared.step(k, *batch)]
    finally:
        session.close()
