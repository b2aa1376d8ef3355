"""Compares edgetrain's forward pass with that of an independent runtime.

The torch reference runs the graph made by the importer, so it repeats the importer's errors. Here
the file itself is run (parity_file.py), on the same inputs as edgetrain's evaluation in fp32.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.api import forward
from edgetrain.compiler.bind import bind
from edgetrain.errors import ModelError
from edgetrain.exporters.parity_file import OwnFile
from edgetrain.exporters.parity_step import Row
from edgetrain.exporters.reference_random import DRAWN
from edgetrain.exporters.sample import sample_inputs
from edgetrain.formats import FP32
from edgetrain.importer import load_onnx
from edgetrain.ops.batch_axis import with_axes
from edgetrain.ops.model import Model

# Relative to an output's largest number. float32 sums in different orders differ by less than this;
# another batch-norm epsilon, or another Gelu formula, differs by more.
TOLERANCE = 1e-5
# If an output differs by more, run again with weights and inputs changed by a unit in the last
# place: a net that is sensitive to that (deep, ill-conditioned, rounding to integers) can't be as
# exact.
_RUNS, _NOISE_FACTOR = 4, 4.0
_MOST_NOISE = 0.1  # an output that departs by more through roundings alone is not judged


def forward_rows(
    model: Model, inputs: Mapping[str, np.ndarray], dims: Any
) -> tuple[list[Row], dict[str, Any]]:
    """Compare each output of the model's file, in the file's order.

    Args:
      model: provides batch axes, values of inputs and new last layers; everything else comes from
        its file.
      inputs: by name, samples along axis 0; if the file fixes the number of samples, as many.
      dims: as in `forward`.
    Returns:
      The rows; and facts: the runtime used (or None), notes on what was not compared and why.
    """
    if not Path(model.source or ".").is_file():
        note = "the model does not come from a file, so its forward pass is not compared"
        return [], {"forward_reference": None, "forward_notes": [note]}
    batch, samples = _batch(model, inputs, dims)
    axes = {spec.name: spec.batch for spec in model.inputs}
    inputs = {name: np.moveaxis(array, 0, axes[name]) for name, array in samples.items()}
    known = model
    model = model if model.fresh else load_onnx(model.source)
    valued = [spec.name for spec in model.inputs if spec.name in known.initializers]
    inputs |= {name: known.initializers[name] for name in valued}
    file = OwnFile(model)
    model = with_axes(model, [axes.get(spec.name, 0) for spec in model.inputs])
    ours, notes = _ours(model, batch, inputs, dims)
    given = {**model.initializers, **inputs}
    theirs = file.run(given)
    if not theirs:
        notes.append("no runtime can run the file, so its forward pass is not compared")
    names = [name for name in file.outputs if name in ours and name in theirs]
    result = [error_of(ours[name], theirs[name]) for name in names]
    rows = []
    tolerances = judged(file, given, theirs, names, result)
    for name, error, tolerance in zip(names, result, tolerances, strict=True):
        rows.append(Row(0, "forward", name, error, tolerance))
        if tolerance is None:
            notes.append(f"output {name!r} depends on roundings, so it is not judged")
    facts = {"forward_reference": file.used or None, "forward_notes": [*file.problems, *notes]}
    return rows, facts


def judged(
    file: OwnFile,
    given: Mapping[str, np.ndarray],
    true: dict[str, np.ndarray],
    names: Sequence[str],
    errors: Sequence[float],
) -> list[float | None]:
    """The tolerance of each output; None if it depends on roundings.

    Args:
      given, true: what `file` ran on, and its outputs.
      names, errors: outputs, and their errors found.
    """
    base = TOLERANCE if file.precision is FP32 else max(file.precision.tolerances)
    noise = [0.0] * len(names)
    if not all(error <= base for error in errors):
        draw = np.random.default_rng(0)
        for _ in range(_RUNS):
            moved = file.moved(given, true, draw)
            found = [error_of(moved[k], true[k]) if k in moved else 0.0 for k in names]
            noise = [max(pair) for pair in zip(noise, found, strict=True)]
    return [
        None if _NOISE_FACTOR * most > _MOST_NOISE else max(base, _NOISE_FACTOR * most)
        for most in noise
    ]


def _batch(
    model: Model, inputs: Mapping[str, np.ndarray], dims: Any
) -> tuple[int, dict[str, np.ndarray]]:
    """(number of samples to run the file on, the samples). Inputs that the trained output does not
    read are generated."""
    given = {s.name: np.asarray(inputs[s.name]) for s in model.inputs if s.name in inputs}
    sizes = [spec.dims[spec.batch] for spec in model.inputs if spec.dims]
    fixed = [size for size in sizes if isinstance(size, int)]
    count = len(next(iter(given.values()), [0]))
    batch = fixed[0] if fixed else count
    places = np.arange(batch) % count
    result = {name: array[places] for name, array in given.items()}
    if len(result) < len(model.inputs):
        graph = bind(model, batch, dims).graph
        result = sample_inputs(graph, np.random.default_rng(0)) | result
    return batch, result


def _ours(
    model: Model, batch: int, inputs: Mapping[str, np.ndarray], dims: Any
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Outputs of edgetrain's evaluation in fp32, and notes on omissions."""
    drawn = _drawn(model, batch, dims)
    notes = [f"output {name!r} is random, so it is not compared" for name in drawn]
    try:
        result = forward(model, inputs, dims=dims)
    except ModelError:
        result = {}
        for name in model.outputs:
            try:
                result |= forward(replace(model, outputs=(name,)), inputs, dims=dims)
            except ModelError as error:
                notes.append(f"output {name!r} is not compared: {error}")
    return {name: array for name, array in result.items() if name not in drawn}, notes


def _drawn(model: Model, batch: int, dims: Any) -> list[str]:
    """Outputs that depend on random numbers drawn in the graph."""
    try:
        bound = bind(model, batch, dims)
    except ModelError:
        return []
    graph = bound.graph
    random: set[str] = set()
    for node in graph.nodes:
        if node.op in DRAWN or random & {graph.root(name) for name in node.reads}:
            random.update(graph.root(name) for name in node.outputs if name)
    return [name for name, value in bound.outputs.items() if graph.root(value) in random]


def error_of(found: np.ndarray, true: np.ndarray) -> float:
    """The largest difference, relative to the largest number; for integers, the share that differs.
    Infinite if shapes differ, or if non-finite numbers differ."""
    if found.shape != true.shape:
        return math.inf
    if true.dtype.kind not in "fV":
        return float(np.mean(found != true)) if true.size else 0.0
    a, b = found.astype(np.float64), true.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
        return math.inf
    if not np.isfinite(a[finite]).all():
        return math.inf
    scale = max(float(np.abs(b[finite]).max(initial=0.0)), 1e-30)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale
