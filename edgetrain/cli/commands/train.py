"""`train`, `eval` and `export`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.registry import check_label, numbered_as, open_data, open_evaluation
from ...data.source import Source
from ...errors import CheckpointError, Interrupted, UsageError
from ...optim import Schedule
from ...program import Program
from ...program.atomic import check_target
from ...program.metadata import labels_of
from ...runtime.loading.program import load_program
from ...runtime.run.checkpoint import FEWEST, step_files
from ...runtime.run.folder import PROGRAM_FILE, RunFolder, run_directory
from ...runtime.run.state import Run, load_state, of_run, open_run
from ...runtime.session import Session
from ...runtime.training.evaluation import evaluate_source
from ...runtime.training.settings import Settings, check_length
from ...runtime.training.signals import raising
from ...runtime.training.trainer import Trainer
from ...screen.progress import duration, make_progress
from ...screen.tables import account_lines, length_lines, metric_lines, to_json
from ...screen.waiting import waited
from ..device.process import resident_nbytes
from ..parser.arguments import resume_line
from ..parser.namespace import Namespace
from ..parser.plan_options import PASS_MODEL, check_compiled
from ..parser.schedule import schedule
from ..screen.run_page import check_report, reported

if TYPE_CHECKING:
    from ...runtime.training.callbacks import Callback

_OF_RUNS = ("loss_scale", "max_grad_norm")  # compiler options that a run may change


def train(arguments: Namespace) -> int:
    """Train, evaluate after each epoch, and write a run directory."""
    rates = schedule(arguments)
    check_length(arguments.epochs, arguments.steps)
    check_report(arguments)
    with raising():
        folder = _run_folder(arguments)
        Settings(**_settings(arguments, rates)).check(folder)
        check_label(arguments.data, arguments.label)
        with folder.held():
            return _train(arguments, folder)


def _train(arguments: Namespace, folder: RunFolder) -> int:
    rates = schedule(arguments)
    with waited("reading the model"):
        source = source_of(arguments)
        program = program_of(arguments, source)
    with (
        make_progress(arguments.json) as screen,
        reported(screen, arguments, program, folder) as progress,
    ):
        own = arguments.resume if arguments.model is None else None
        with waited("loading kernels"), of_run(own):
            trainer = Trainer(
                program,
                source,
                folder,
                validation=_validation(arguments, source),
                on_event=progress,
                verbose=False,
                **_settings(arguments, rates),
            )
        progress.watch(trainer)
        try:
            progress(_start_event(program, trainer, arguments))
            if arguments.resume is not None and not trainer.resume(arguments.resume):
                message = f"{arguments.resume}: no checkpoint yet; starting at step 0."
                progress({"event": "warning", "message": message})
            trainer.fit(arguments.epochs, steps=arguments.steps, evaluate=not arguments.no_eval)
            progress({"event": "done", "step": trainer.steps, "out": str(folder.path)})
        except Interrupted as stopped:
            raise _with_way_back(stopped, arguments, folder.path) from None
        finally:
            trainer.close()
    return 0


def _with_way_back(stopped: Interrupted, arguments: Namespace, out: Path) -> Interrupted:
    """Add the command that continues the run, if it has a checkpoint."""
    if not step_files(out):
        return stopped
    return Interrupted(f"{stopped}. Continue with: {resume_line(arguments, out)}", stopped.signum)


def _run_folder(arguments: Namespace) -> RunFolder:
    """The directory of the run.

    Raises:
      UsageError, CheckpointError: the directory contains another run, or no run to resume.
    """
    resume, out = arguments.resume, arguments.out
    if "" in (resume, out):
        raise UsageError("--out, --resume: the name is empty; expected a directory.")
    if resume is not None:
        if arguments.model is None or (resume != out and not os.path.isdir(resume)):
            run_directory(resume)
        if out is None or os.path.realpath(out) == os.path.realpath(resume):
            return RunFolder(resume, "--resume" if out is None else "--out")
    if out is None:
        if arguments.model is None:
            raise UsageError("no model: expected MODEL.onnx, model.edge or --resume DIR.")
        return RunFolder.new(Path("runs"), Path(arguments.model).stem, "--out")
    if step_files(out) or os.path.exists(Path(out, PROGRAM_FILE)):
        raise UsageError(
            f"--out {out}: it already contains a run. Continue it with --resume {out}, or choose "
            "another directory."
        )
    return RunFolder(out, "--out")


def source_of(arguments: Namespace) -> Source:
    """Open the data of a run.

    Raises:
      UsageError, DataError: it cannot be opened.
    """
    augment = True if arguments.augment is None else arguments.augment
    return open_data(
        arguments.data, label=arguments.label, target=arguments.target_input, augment=augment
    )


def program_of(arguments: Namespace, source: Source) -> Program:
    """The Program of a run: a file, or compiled from a model.

    Raises:
      UsageError: an option has no effect on a Program.
    """
    path = arguments.model
    if path is None:
        path = Path(arguments.resume, PROGRAM_FILE)
    if not _is_program(Path(path)):
        from .plan import compiled

        if arguments.balance_classes:
            if "class_weights" in arguments:
                raise UsageError("--balance-classes and --class-weights: use only one of them.")
            from ...data.sources.labels import class_weights

            arguments.class_weights = class_weights(source)
        return compiled(arguments)
    if arguments.balance_classes:
        raise UsageError(f"--balance-classes: {path} is already compiled. Pass the ONNX model.")
    check_compiled(arguments, path, _without(arguments), kept=_OF_RUNS)
    return load_program(path)


def _without(arguments: Namespace) -> str:
    """Advice for an option of the compiler that a compiled Program can't take."""
    if arguments.model is None:
        return "Leave the option out, or start another run with the ONNX model and other --out."
    return PASS_MODEL


def _is_program(path: Path) -> bool:
    return path.suffix != ".onnx"


def replaced(arguments: Namespace) -> dict[str, Any]:
    """Learning rate, clipping and loss scale that replace those of a Program; an ONNX model is
    compiled with them."""
    compiled = arguments.model is None or _is_program(Path(arguments.model))
    return {n: getattr(arguments, n, None) if compiled else None for n in ("lr", *_OF_RUNS)}


def _settings(arguments: Namespace, rates: Schedule | None) -> dict[str, Any]:
    """Settings for the Trainer, other than its data."""
    return {
        **replaced(arguments), "schedule": rates, "save_steps": arguments.save_steps,
        "save_seconds": arguments.save_seconds, "save_total_limit": arguments.save_total_limit,
        "threads": getattr(arguments, "threads", None), "keep_last": arguments.keep_last,
        "metrics": arguments.metrics, "callbacks": _callbacks(arguments),
        "verify_saves": arguments.verify_saves,
    }  # fmt: skip


def _callbacks(arguments: Namespace) -> "list[Callback]":
    """Callbacks for early stopping and the best epoch, if requested."""
    result: list[Callback] = []
    monitor = arguments.monitor or "loss"
    if arguments.keep_best or arguments.patience is not None:
        from ...runtime.training.monitors import EarlyStopping, KeepBest
    if arguments.keep_best:
        result.append(KeepBest(monitor, restore=False))
    if arguments.patience is not None:
        result.append(EarlyStopping(monitor, patience=arguments.patience))
    if arguments.monitor is not None and not result:
        raise UsageError("--monitor: it has no effect without --patience or --keep-best.")
    return result


def _validation(arguments: Namespace, source: Source) -> float | Source | None:
    """The requested validation data, or else the test split; opened before anything is written."""
    asked = arguments.validation
    if asked is not None:
        try:
            asked = float(asked)
        except ValueError:
            return open_evaluation(asked, label=arguments.label, target=arguments.target_input)
    if asked or arguments.no_eval or "test" not in source.splits:
        return asked
    return source.for_split("test")


def _start_event(program: Program, trainer: Trainer, arguments: Namespace) -> dict[str, Any]:
    """The memory account, plus the memory of the process and the size of checkpoints."""
    each, count = trainer.checkpoint_nbytes, _checkpoints(trainer, arguments)
    kept = min(count, max(FEWEST, arguments.save_total_limit))
    seconds = trainer.save_seconds
    line = f"checkpoints: {each:,} bytes of numbers each, last {kept} kept" + (
        f", at least every {duration(seconds)}" if seconds else ""
    )
    return {
        "event": "start",
        **program.account,
        "model": program.model_name,
        "process_nbytes": resident_nbytes(trainer.session.arena),
        "checkpoint_nbytes": each,
        "checkpoints": count,
        "lines": [*account_lines(program.account), *length_lines(program), line],
    }


def _checkpoints(trainer: Trainer, arguments: Namespace) -> int:
    """The number of checkpoints of a whole run, without those of `--save-seconds`."""
    epoch = trainer.steps_per_epoch or 1
    steps = arguments.steps or max(1, round(arguments.epochs * epoch))
    every = arguments.save_steps or epoch
    return -(-steps // every)


def evaluate(arguments: Namespace) -> int:
    """Print loss and accuracy."""
    check_label(arguments.data, arguments.label)
    program, state, labels, weights = _opened(Path(arguments.model), arguments.best)
    with of_run(arguments.model if os.path.isdir(arguments.model) else None):
        session = Session(program, arguments.threads)
    try:
        if state is not None:
            load_state(session, state, arguments.model)
        if weights is not None:
            from ...runtime.training.loss_weights import LossWeights

            LossWeights(session, lambda changed: None).restore(weights)
        source = open_evaluation(
            arguments.data,
            split=arguments.split,
            label=arguments.label,
            target=arguments.target_input,
        )
        source = numbered_as(source, labels)
        if arguments.metrics:
            from ...runtime.training.output_metrics import check_metrics

            check_metrics(arguments.metrics, session.program)
        metrics = evaluate_source(session, source, metrics=arguments.metrics)
    finally:
        session.close()
    whole = "test" not in source.splits
    if whole:
        print(
            f"note: {source.name} has no test split; all {source.n} samples are evaluated, "
            "including those trained on",
            file=sys.stderr,
        )
    if arguments.json:
        split = "all" if whole else arguments.split
        print(to_json({"model": arguments.model, "split": split, **metrics}))
        return 0
    if state is None:
        untrained = "pass a run directory to evaluate trained ones"
        if os.path.isdir(arguments.model):
            untrained = f"{arguments.model} has no checkpoint yet"
        print(f"note: initial weights; {untrained}", file=sys.stderr)
    print("\n".join(metric_lines(metrics, labels)))
    return 0


def _warn(warning: str) -> None:
    print(f"warning: {warning}", file=sys.stderr)


def _opened(path: Path, best: bool) -> Run:
    if os.path.isdir(path):
        return open_run(path, best=best, warned=_warn)
    if path.suffix == ".onnx":
        raise UsageError(
            f"{path}: an untrained ONNX model; expected a run directory or a .edge file. Train "
            "it first."
        )
    program = load_program(path)
    return Run(program, None, labels_of(program.onnx))


def export(arguments: Namespace) -> int:
    """Write the newest weights of a run as ONNX."""
    from ...program.trained import export_trained, left_out

    if not arguments.adapter:
        check_target(arguments.out, "-o")
    directory = Path(arguments.run)
    program, state, labels, _ = open_run(directory, best=arguments.best, warned=_warn)
    if state is None:
        raise CheckpointError(f"{directory}: no checkpoint yet. Train first.")
    if arguments.adapter:
        return _export_adapter(program, state, arguments)
    path = export_trained(program, state, arguments.out, labels=labels)
    if gone := str(left_out(program)):
        print(f"note: {gone}", file=sys.stderr)
    if arguments.json:
        print(to_json({"path": str(path), "nbytes": Path(path).stat().st_size}))
    else:
        print(f"wrote {path} ({Path(path).stat().st_size:,} bytes)")
    return 0


def _export_adapter(program: Program, state: Any, arguments: Namespace) -> int:
    """Write the adapter in peft format."""
    from ...program.adapters import CONFIG_FILE, WEIGHTS_FILE, write_adapter

    path = write_adapter(program, state, arguments.out)
    files = {name: (path / name).stat().st_size for name in (CONFIG_FILE, WEIGHTS_FILE)}
    if arguments.json:
        print(to_json({"path": str(path), "files": files}))
    else:
        print(f"wrote {path}: {', '.join(f'{n} ({size:,} bytes)' for n, size in files.items())}")
    return 0
