"""The compiler's Python API: keyword arguments in, Program or gradients out."""

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from .checker import prove
from .compiler import Options
from .compiler.advice.layers import layers_of
from .compiler.compilation import Compilation
from .compiler.compile import make_plan, make_program
from .compiler.forward import forward_program
from .compiler.keywords import Keywords
from .compiler.model.inputs import with_inputs
from .compiler.passes.autodiff import accumulator_name
from .compiler.passes.touched_rows import whole
from .compiler.pipeline import build_graphs
from .compiler.plan.candidates import make_candidate
from .compiler.tapes.assemble import assemble
from .compiler.tapes.limits import input_limits
from .compiler.tapes.meanings import meanings_of
from .data.checks.expected import Expected
from .data.registry import open_data
from .data.source import Source
from .data.sources.items import named_inputs
from .data.tensors import as_array
from .errors import DataError, UsageError
from .formats import decoded
from .formats.csr import POOL, dense
from .kernels import targets
from .losses import Loss
from .ops.model import Model, names_file
from .ops.quantised import in_integers
from .optim import Optimizer
from .options.declared import OPTIONS
from .program import TARGET, WEIGHT, Program
from .program.trained import write_initial
from .screen.levels import levels
from .units import budget_nbytes
from .units.efforts import QUICK
from .units.hints import did_you_mean, place_of
from .units.options import check_needs, typed
from .units.public import as_path, public, taking

if TYPE_CHECKING:
    from .runtime.session import Session
    from .screen.summary import Summary

_NAMED = ("budget", "verbose")  # arguments of `compile` that are not fields


def _place_of(option: str) -> str:
    """Where to pass an option that `compile` does not take; "" if unknown."""

    def has(family: Any) -> bool:
        kinds = family.kinds.values()
        return any(option == field.name for kind in kinds for field in dataclasses.fields(kind))

    if option == "learning_rate" or has(Optimizer):
        return " Pass it to the optimizer: optimizer=et.SGD(lr=0.1)."
    if has(Loss):
        return " Pass it to the loss: loss=et.Loss('cross_entropy', label_smoothing=0.1)."
    return " Pass it to the Trainer." if option in ("data", "epochs", "steps", "out") else ""


def make_options(**options: Any) -> Options:
    """Make Options from keyword arguments; docs/options.md describes them.

    Raises:
      UsageError: an option has a wrong type or value, or no effect with the others.
    """
    target = options.get("target", targets.HOST)
    if isinstance(target, str) and not targets.get(target).hosted:
        options = {"threads": 1, **options}
    strange = next((name for name in options if name not in OPTIONS), None)
    if strange is not None:
        known = {*_NAMED, *OPTIONS}
        raise UsageError(
            f"compile: {strange}: no such option."
            f"{_place_of(strange) or did_you_mean(strange, known) or place_of(strange)} See "
            "help(edgetrain.compile)."
        )
    made = Options(**options)
    densities = {"density": made.density, "density_overrides": made.density_overrides}
    check_needs(options, options | densities, str)
    return made


@public
@taking(Options)
def compile(
    model: Model | str | PathLike[str],
    *,
    budget: str | int | None = None,
    verbose: bool | None = None,
    **options: Unpack[Keywords],
) -> Program:
    """Compile `model` for training within `budget` bytes.

    Args:
      model: the path of an ONNX file, an `onnx.ModelProto`, or from `load_onnx`.
      budget: memory limit, such as 262144 or "6.7MB"; None: no limit, the fastest plan.
      verbose: show progress and the plan. None: yes, unless EDGETRAIN_PROGRESS is 0 or the level
        of the logger "edgetrain" is above INFO.
      loss: a name, such as "cross_entropy" or "mse", or a `Loss`.
      optimizer: a name, such as "sgd" or "adamw", or an `Optimizer`.
      options: fields of `edgetrain.compiler.Options`; docs/options.md describes them.
    Raises:
      BudgetError: no plan fits; the message names the smallest budget that does.
      ModelError, UsageError: the model or an option cannot be used.
    """
    typed("compile: verbose", verbose, (bool, NoneType))
    chosen, nbytes = make_options(**options), budget_nbytes(budget)
    if not any(levels(verbose)):
        return make_program(Compilation(loaded(model), chosen), nbytes)
    from .screen.python import show_notes, show_plan, waiting

    with waiting(verbose, "reading the model"):
        compilation = Compilation(loaded(model), chosen)
        show_notes(verbose, compilation.notes())
        program = make_program(compilation, nbytes)
    show_plan(verbose, program.account)
    return program


def loaded(model: Any) -> Model:
    """The model itself, or loaded from a file or an onnx.ModelProto."""
    if isinstance(model, str | PathLike) or hasattr(model, "SerializeToString"):
        from .importer import load_onnx

        return load_onnx(model)
    if hasattr(model, "state_dict") and hasattr(model, "forward"):
        raise UsageError(
            f"model {type(model).__name__}: a torch module; expected ONNX. Export it: "
            "edgetrain.exporters.export_torch(module, (example_input,), 'model.onnx')."
        )
    if not isinstance(model, Model):
        raise UsageError(
            f"model {' '.join(repr(model).split())[:80]}: expected the path of an "
            "ONNX file, or the result of load_onnx."
        )
    return model


@public
@taking(Options)
def plan(
    model: Model | str | PathLike[str],
    *,
    budget: str | int | None = None,
    **options: Unpack[Keywords],
) -> dict[str, Any]:
    """How much memory training takes, without compiling; like `edgetrain plan --json`.

    The search is quick unless you pass `effort`, or no quick plan fits the budget. `compile`
    uses "normal".
    """
    options.setdefault("effort", QUICK)
    chosen, model = make_options(**options), loaded(model)
    result, _, facts = make_plan(Compilation(model, chosen), budget_nbytes(budget))
    seconds = {"plan_seconds": facts["plan_seconds"]}
    return dict(assemble(result, facts).account) | seconds


@public
def summary(
    model: Model | str | PathLike[str], *, dims: Mapping[str, int] | None = None
) -> "Summary":
    """Print the layers of a model: op, output shape and parameters of each, and the totals.

    Args:
      model: the path of an ONNX file, or from `load_onnx`.
      dims: sizes of symbolic dimensions; the batch is shown as n.
    Returns:
      The table, as text and as rows.
    Raises:
      ModelError, UsageError: the model cannot be used.
    """
    from .screen.summary import model_summary

    model = loaded(model)
    layers, counts = layers_of(model, {} if dims is None else dims)
    title = f"{model.name}: {', '.join(spec.name for spec in model.inputs)} -> "
    result = model_summary(title + ", ".join(model.outputs), layers, counts, model.warnings)
    print(result)
    return result


@names_file
def expected(model: Model | str | PathLike[str], **options: Unpack[Keywords]) -> Expected:
    """The inputs and targets that training expects, without planning.

    Args:
      options: as for `compile`.
    """
    chosen, model = make_options(**options), loaded(model)
    graphs = build_graphs(Compilation(model, chosen).with_options(minibatch=2, microbatch=None), 2)
    graph = graphs.evaluate
    shapes = {
        spec.name: graph.values[spec.name].shape[1:]
        for spec in model.inputs
        if spec.name in graph.values
    }
    outputs = {name: shape for name, (shape, _) in graphs.outputs.items()}
    fields = {term.target: term.output if term.label else "y" for term in chosen.terms}
    for term in chosen.terms:
        if term.loss.takes_target:
            own = term.loss.target_shape(outputs[term.target])[1:]
            shapes[str(fields[term.target])] = own
    result = input_limits(graphs.train, chosen, outputs, graphs.arrays)
    limits = {str(fields.get(name, name)): limit for name, limit in result.below.items()}
    ignored = chosen.loss.to_json().get("ignore_index")
    weighed = any(term.loss.sample_weights for term in chosen.terms)
    return Expected(shapes, limits, ignored, result.ignored, weighed)


def verify(program: Program) -> None:
    """Prove that every tape of a Program computes what its model and recipe say.

    Rebuilds the graphs from the model stored in the Program; plans nothing.

    Raises:
      ProgramError: names the first instruction that is wrong.
    """
    with tempfile.TemporaryDirectory() as place:
        model = loaded(write_initial(program, Path(place, "model.onnx")))
    model = dataclasses.replace(model, name=program.model_name)
    for part in program.sets:
        result = program.chosen(dims=part.dims, budget=part.arena_nbytes)
        options = Options.of_recipe(result.recipe)
        target, lanes = targets.get(options.target), targets.lanes_of(result.recipe)
        processor = target.processor._replace(lanes=lanes)
        compilation = Compilation(model, options, processor=processor)
        prove(meanings_of(make_candidate(compilation, result.microbatch)), result)


@public
def bundle(
    program: Program | str | PathLike[str],
    directory: str | PathLike[str],
    *,
    name: str = "net",
    target: str | None = None,
    size: bool = False,
    cc: str | None = None,
    data: Any = None,
    length: int | None = None,
) -> dict[str, Any]:
    """Write a C library that trains a Program, with an example that uses it, to `directory`.

    Args:
      program: a Program, or the path of a .edge file.
      name, target, size, cc: as in `bundle.writing.write_bundle`.
      data: samples for the example program, written to NAME.samples: a Source, or anything that
        `open_data` takes, such as "digits".
      length: for a Program compiled for several lengths, the only one to include; samples are
        padded to it. None: include all; each minibatch uses the length of its samples.
    Returns:
      The contents of MANIFEST.json.
    Raises:
      UsageError: the target, name or compiler can't be used, or the Program is for another target.
      DataError: the data does not fit the model, or a value is out of range.
      RunError: a file can't be written.
    """
    from .bundle.lengths import sets_of
    from .bundle.writing import of_length, write_bundle
    from .runtime.loading.program import opened_program
    from .runtime.samples.check import lengths_digest, state_digest
    from .runtime.samples.file import write_samples, write_samples_by_length

    typed("bundle: name", name, (str,))
    typed("bundle: target", target, (str, NoneType))
    typed("bundle: size", size, (bool,))
    typed("bundle: cc", cc, (str, NoneType))
    typed("bundle: length", length, (int, NoneType))
    source = data if data is None or isinstance(data, Source) else open_data(data)
    program = of_length(opened_program(program), length)
    sets = sets_of(program) if length is None else ()
    directory = as_path("bundle: directory", directory, "a directory")
    manifest = write_bundle(
        program,
        directory,
        name=name,
        target=target,
        size=size,
        cc=cc,
        sets=sets,
        digest=lengths_digest if sets else state_digest,
        accuracy=bool(Loss.of_json(program.recipe["loss"]).accuracy) and not program.summed,
    )
    if source is not None:
        write = write_samples_by_length if sets else write_samples
        write(program, source, directory / f"{name}.samples")
    return manifest


def fixed_inputs(model: Model, inputs: Any) -> tuple[Model, Any]:
    """Turn scalar inputs into constants: (the new model, the other inputs)."""
    if not isinstance(inputs, Mapping):
        return model, inputs
    numbers = {spec.name for spec in model.inputs if not spec.dims}.intersection(inputs)
    if not numbers:
        return model, inputs
    values = make_options(inputs={name: inputs[name] for name in numbers}).inputs
    return with_inputs(model, values), {k: v for k, v in inputs.items() if k not in numbers}


def samples_first(model: Model, inputs: Any) -> dict[str, Any]:
    """Convert inputs from the file's layout to arrays by name, with samples along axis 0.

    Raises:
      DataError: an input is missing, not an array, or has no sample axis.
    """
    if not isinstance(inputs, Mapping):
        inputs = named_inputs(inputs, tuple(spec.name for spec in model.inputs))
    result = {name: as_array(f"input {name!r}", value) for name, value in inputs.items()}
    axes = {spec.name: spec.batch for spec in model.inputs}
    for name, array in result.items():
        axis = axes.get(name, 0)
        if axis and array.ndim != len(dims := next(s.dims for s in model.inputs if s.name == name)):
            raise DataError(
                f"input {name!r} has shape {list(array.shape)}; the model declares "
                f"{len(dims)} axes, samples along axis {axis}. Reshape it."
            )
        result[name] = np.moveaxis(array, axis, 0) if array.ndim else array
    if not result or not all(array.ndim and len(array) for array in result.values()):
        raise DataError(
            f"inputs: {', '.join(map(str, result)) or 'none'}; expected arrays [n, ...] with "
            f"n > 0, named {', '.join(spec.name for spec in model.inputs)}."
        )
    return result


@names_file
@public
def forward(
    model: Model | str | PathLike[str],
    inputs: Mapping[str, np.ndarray],
    *,
    precision: str = "fp32",
    dims: Mapping[str, int] | None = None,
    threads: int = 2,
    batch_axis: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """Run the model in evaluation mode.

    Args:
      inputs: arrays by name, in the file's layout.
      dims: sizes of symbolic dimensions other than the batch.
      batch_axis: as for `compile`.
    Returns:
      Every output by name, float32 or integer, in the file's layout.
    """
    from .runtime.arena import Arena, views
    from .runtime.executor import Executor
    from .runtime.samples.staging import stage_inputs

    chosen = make_options(
        precision=precision, dims=dims, threads=threads, batch_axis=batch_axis, loss="output"
    )
    model, inputs = fixed_inputs(loaded(model), inputs)
    model = Compilation(model, chosen).prepared.laid_out
    inputs = samples_first(model, inputs)
    batch = len(next(iter(inputs.values())))
    program = forward_program(
        model, batch, dims=chosen.dims, precision=precision, threads=chosen.threads
    )
    arena = Arena(program.arena_nbytes)
    values = views(arena, program)
    for name, array in program.init.items():
        values[name][...] = array
    stage_inputs(program, arena, program.inputs["eval"], inputs)
    executor = Executor(program, arena)
    try:
        executor.run("eval")
    finally:
        executor.close()
    result = [decoded(arena.view(slot)) for slot in program.outputs["eval"]]
    arrays = [a.astype(np.float32 if a.dtype.kind == "f" else a.dtype) for a in result]
    outputs = dict(zip(program.recipe["outputs"], arrays, strict=True))
    return {name: in_integers(model.nodes, name, array) for name, array in outputs.items()}


@names_file
@public
def loss_and_gradients(
    model: Model | str | PathLike[str],
    samples: Any = None,
    target: np.ndarray | Mapping[str, np.ndarray] | None = None,
    *,
    inputs: Any = False,
    loss: str | Loss = "cross_entropy",
    weights: np.ndarray | None = None,
    precision: str = "fp32",
    dropout: bool = False,
    budget: str | int | None = None,
    **options: Any,
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradient of every parameter for one microbatch, in training mode.

    Args:
      samples: arrays by input name, in the file's layout. The old keyword `inputs` also works.
      inputs: True: also return gradients of the model's inputs; or a list of some of their names.
      target: class indices, or values in the output's shape, with samples along the same axis as in
        the output; None if the loss takes no target. With `losses`, a mapping by output.
      weights: sample weights [n], if the loss has `sample_weights` (default: 1 each).
      dropout: keep dropout on (off by default, to make results comparable).
      budget: memory limit; None: no limit, the fastest plan.
    Returns:
      The mean loss, and float32 gradients by name, in the shape of the parameter or input. If a
      gradient overflows fp16, it is recomputed at half the loss scale, unless you set `loss_scale`.
    """
    model, chosen = loaded(model), Loss.of(loss)
    if samples is None and not isinstance(inputs, bool | list | tuple):
        samples, inputs = inputs, False
    for name in ("minibatch", "microbatch"):
        if name in options:
            raise UsageError(f"{name}: it is the number of samples passed in. Leave it out.")
    if not dropout:
        model = model.without_dropout()
    known = make_options(loss=chosen, precision=precision, **options)
    asked, (model, inputs) = inputs, fixed_inputs(model, samples)
    model = _with_wanted(Compilation(model, known).prepared.laid_out, asked)
    inputs = samples_first(model, inputs)
    if isinstance(target, Mapping):
        beside, target = targets_first(model, known, len(next(iter(inputs.values()))), target)
        inputs = {**inputs, **beside}
    target = None if target is None else as_array("target", target)
    if target is not None and not known.joined:
        known = dataclasses.replace(known, minibatch=len(next(iter(inputs.values()))))
        chosen, target = target_first(model, known, target)
    if weights is not None:
        _check_weighted(chosen)
        inputs = {**inputs, WEIGHT: weights}
    options |= {"loss": chosen, "precision": precision, "dropout": dropout, "budget": budget}
    program = gradient_program(model, inputs, target, **options)
    value, gradients = _finite(program, inputs, target, options.get("loss_scale") is None)
    axes = {spec.name: spec.batch for spec in model.inputs}
    for name in model.wanted:
        shape = np.shape(inputs[name])
        gradient = gradients.get(name, np.zeros(shape, np.float32)).reshape(shape)
        gradients[name] = np.moveaxis(gradient, 0, axes[name])
    return value, gradients


def _check_weighted(loss: Loss) -> None:
    if not loss.sample_weights:
        raise UsageError(
            f"weights: loss {loss.name} has no sample weights. Construct it with "
            "sample_weights=True."
        )


def _with_wanted(model: Model, asked: Any) -> Model:
    """The model with gradients of these inputs, or of all. Raises UsageError for inputs without
    one."""
    kinds = {spec.name: spec.dtype for spec in model.inputs}
    if isinstance(asked, str) or not isinstance(asked, bool | Iterable):
        raise UsageError(f"inputs: {asked!r}: expected True, or names of inputs such as ['x'].")
    wanted = tuple(kinds if asked else ()) if isinstance(asked, bool) else tuple(asked)
    for name in wanted:
        if name not in kinds:
            raise UsageError(f"inputs: {name!r}: the model has {', '.join(kinds)}.")
        if kinds[name] != "float":
            floats = [other for other, kind in kinds.items() if kind == "float"]
            advice = f"Ask for others: inputs={floats}" if floats else "Leave inputs out"
            raise UsageError(
                f"input {name!r}: it has the type {kinds[name]}, and only floats have a gradient. "
                f"{advice}."
            )
        if name in model.parameters:
            raise UsageError(f"input {name!r}: a parameter has this name too. Rename one of them.")
    return dataclasses.replace(model, wanted=wanted) if wanted else model


def target_first(model: Model, options: Options, target: np.ndarray) -> tuple[Loss, np.ndarray]:
    """The loss for a target in the file's layout, and the target with samples along axis 0."""
    compilation, loss = Compilation(model, options), options.loss
    if not (axis := compilation.prepared.samples.axis):
        return loss, target
    shape = build_graphs(compilation, options.minibatch).shape
    loss = loss.for_target(target.shape, lambda: shape, axis)
    batch = loss.target_batch(shape, axis)
    if target.ndim != len(loss.target_shape(shape)):
        whole = [*loss.target_shape(shape)]
        whole.insert(batch, whole.pop(0))
        raise DataError(f"target has shape {list(target.shape)}; expected {whole}. Reshape it.")
    return loss, np.moveaxis(target, batch, 0)


def targets_first(
    model: Model, options: Options, samples: int, given: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Convert targets by output from the file's layout to (targets by staged name without the first
    output's, the first output's), with samples along axis 0. Raises DataError if some are
    missing."""
    from .runtime.samples.sample_callback import target_fields

    if {*(fields := target_fields(options.terms, given))} != {*given}:
        raise DataError(
            f"target: {', '.join(given) or 'none'}; expected targets by the names "
            f"{', '.join(fields)}."
        )
    sized = Compilation(model, options).with_options(minibatch=samples)
    outputs = build_graphs(sized, samples).outputs
    result = {}
    for term in options.terms:
        shape, axis = outputs[term.target]
        batch = term.loss.target_batch(shape, axis) if axis else 0
        for field, name in fields.items():
            if name == term.target:
                result[name] = np.moveaxis(as_array(f"target {field!r}", given[field]), batch, 0)
    first = result.pop(TARGET, None)
    return result, first


def _finite(
    program: Program, inputs: Mapping[str, np.ndarray], target: np.ndarray | None, moves: bool
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients at the highest loss scale that keeps them finite; the scale is only
    lowered if it `moves`."""
    from .kernels import control
    from .runtime.microbatch import run_microbatch
    from .runtime.session import Session

    scale = 0.0
    while True:
        session = Session(program)
        try:
            session.reals[control.LOSS_SCALE] = scale = scale / 2 or session.loss_scale
            value, result = run_microbatch(session, inputs, target), gradients(session)
        finally:
            session.close()
        if not moves or scale <= 1 or all(np.isfinite(array).all() for array in result.values()):
            return value, result


@names_file
def gradient_program(
    model: Model,
    inputs: Mapping[str, np.ndarray],
    target: np.ndarray | None,
    *,
    loss: str | Loss,
    dropout: bool = False,
    budget: str | int | None = None,
    microbatch: int | None = None,
    **options: Any,
) -> Program:
    """A Program whose minibatch is as large as `inputs`, which have samples along axis 0."""
    batch = len(next(iter(inputs.values())))
    chosen = Loss.of(loss)
    if not dropout:
        model = loaded(model).without_dropout()

    def output() -> tuple[int, ...]:
        known = make_options(loss=chosen, minibatch=batch, **options)
        return build_graphs(Compilation(model, known), batch).shape

    if target is None and chosen.takes_target:
        raise DataError(f"target: missing; loss {chosen.name} needs one. Pass target.")
    chosen = chosen.for_target(() if target is None else np.shape(target), output)
    sizes = {"minibatch": batch, "microbatch": microbatch or batch}
    sizes["fused_update"] = False  # gradients are read
    return compile(model, budget=budget, loss=chosen, **{"verbose": False, **options, **sizes})


def gradients(session: "Session") -> dict[str, np.ndarray]:
    """Accumulated float32 gradients, corrected for ignored targets; sparse ones as dense arrays."""
    from .kernels import control

    factor = session.reals[control.NOMINAL] / session.divisor / session.reals[control.LOSS_SCALE]
    out = {}
    program = session.program
    for slot in (*program.persistent, *program.inputs["micro"]):
        name = accumulator_name(slot.name)
        if slot.role in ("parameter", "input") and slot.name != POOL and name in session.values:
            result = whole(session.values, name, slot.shape)
            out[slot.name] = result.astype(np.float32) * np.float32(factor)
    for layer in session.layers:
        result = dense(layer, session.values, accumulator_name(POOL))
        out[layer.name] = result.astype(np.float32) * np.float32(factor)
    return out
