"""Convert a run of another edgetrain version, so that it can continue.

Carried over: weights, running statistics, optimizer state, positions of sparse weights, counters,
position in the data, loss scale and schedule. Tapes and arena are compiled again with the same
options. The old directory stays intact until the new one is complete.
"""

import dataclasses
import os
import shutil
import tempfile
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from .compiler import compile_model
from .compiler.options import Options
from .errors import UsageError
from .importer import load_onnx
from .ops.model import Model
from .program import Program
from .program.atomic import exchange, unwritable
from .program.trained import write_initial
from .runtime.loading.program import load_program
from .runtime.run.carrying import Carried, carried, carried_meta, departures, with_values
from .runtime.run.checkpoint import (
    is_checkpoint,
    latest,
    load_checkpoint,
    save_checkpoint,
    save_step,
)
from .runtime.run.fields import check_best, check_run
from .runtime.run.folder import BEST_FILE, PROGRAM_FILE, RunFolder, run_directory
from .runtime.run.lock import LOCK_FILE
from .runtime.run.resuming import check_recipe
from .units import budget_nbytes
from .units.files import sync_directory
from .units.public import as_path, public

_BEFORE = "before-migrate"  # the old directory is kept as RUN.before-migrate


@dataclass(frozen=True)
class Migrated:
    """The result of a migration.

    Attributes:
      path: the new run directory.
      before: new path of the old directory.
      program: the new Program.
      step: steps done; None: the run has no checkpoint yet.
      counts: tensors carried over, by role.
      converted, begun, dropped: tensor names, as in `Carried`.
      departures: kernels whose results may differ; if empty, no bit should differ.
      warning: why an older checkpoint was used; None if the newest was.
    """

    path: Path
    before: Path | None
    program: Program
    step: int | None
    counts: dict[str, int]
    converted: tuple[str, ...]
    begun: tuple[str, ...]
    dropped: tuple[str, ...]
    departures: tuple[str, ...]
    warning: str | None = None


@public
def migrate(
    run: str | PathLike[str],
    model: str | PathLike[str] | Model | None = None,
    *,
    out: str | PathLike[str] | None = None,
    budget: str | int | None = None,
) -> Migrated:
    """Convert a run to this version of edgetrain.

    Args:
      run: a run directory of this or another version.
      model: the ONNX file it was compiled from; None: the model stored in its Program.
      out: a new directory for the result; None: replace `run` and move the old one to
        `run.before-migrate`.
      budget: memory limit; None: the run's own.
    Raises:
      UsageError: `out` exists, or another process is training in `run`.
      ProgramError, CheckpointError: the run cannot be read, or does not fit the model.
      ModelError, BudgetError: as for `compile`.
    """
    source = Path(os.path.realpath(as_path("migrate", run, "a run's directory")))
    target = source if out is None else as_path("migrate: out", out, "a directory")
    run_directory(run)
    if out is not None and os.path.lexists(target):
        raise UsageError(
            f"--out {target} (in Python out): already exists. Choose another directory."
        )
    with RunFolder(source, "migrate").held():
        old = load_program(source / PROGRAM_FILE, links=False)
        new = _compiled(old, model, budget)
        try:
            place = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        except OSError as error:
            raise unwritable(target, "migrate", error) from error
        try:
            result = _written(source, place, old, new)
            before = _put(place, target, out is not None)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    return dataclasses.replace(result, path=target, before=before)


def _compiled(old: Program, model: Any, budget: str | int | None) -> Program:
    """Compile the same recipe with this build, with all its tape sets.

    Microbatches are kept, because they affect the bits.
    """
    if model is None or isinstance(model, Model):
        chosen = _stored(old) if model is None else model
    else:
        chosen = load_onnx(model)
    chosen, asked = dataclasses.replace(chosen, name=old.model_name), budget_nbytes(budget)
    made: dict[tuple[Any, ...], Program] = {}  # with a shared budget, there may be fewer sets
    for part in old.sets:
        options = dataclasses.replace(Options.of_recipe(part.recipe), microbatch=part.microbatch)
        new = compile_model(chosen, options, asked or part.account.get("budget_nbytes"))
        kept = {name: part.recipe[name] for name in ("lengths", "tokens") if name in part.recipe}
        new = dataclasses.replace(new, recipe={**new.recipe, **kept}, init=with_values(new, old))
        made.setdefault(new.key, new)
    first, *others = made.values()
    return first.joined(others)


def _stored(old: Program) -> Model:
    """The model stored in a Program, with its initial weights."""
    with tempfile.TemporaryDirectory() as place:
        return load_onnx(write_initial(old, Path(place, "model.onnx")))


def _written(source: Path, place: Path, old: Program, new: Program) -> Migrated:
    """Write the whole run to the directory `place`."""
    loaded = latest(source)
    _copy_others(source, place)
    new.save(place / PROGRAM_FILE, links=False)
    state, step = Carried({}, (), (), ()), None
    if loaded is not None:
        check_recipe(check_run(loaded), old.digest(), source)
        state = carried(old, new, loaded.tensors, str(loaded.used))
        step = int(loaded.meta["step"])
        save_step(place, step, state.tensors, carried_meta(loaded, new), initial=new.init)
    if os.path.lexists(source / BEST_FILE):
        best = check_best(load_checkpoint(source / BEST_FILE), old.digest())
        tensors = carried(old, new, best.tensors, str(best.used)).tensors
        meta = {**best.meta, "recipe": new.digest()}
        save_checkpoint(place / BEST_FILE, tensors, meta, keep_previous=False)
    sync_directory(place)
    counts: dict[str, int] = {}
    for slot in new.saved if loaded is not None else ():
        counts[slot.role] = counts.get(slot.role, 0) + (slot.name not in state.begun)
    changed, warning = tuple(departures(old, new)), None if loaded is None else loaded.warning
    return Migrated(place, None, new, step, counts, *state[1:], changed, warning)


def _copy_others(source: Path, place: Path) -> None:
    """Copy the run's other files: history, pages, exports."""

    def left(folder: str, names: list[str]) -> set[str]:
        own = {PROGRAM_FILE, LOCK_FILE}
        mine = Path(folder) == source
        return {name for name in names if mine and (name in own or is_checkpoint(name))}

    try:
        shutil.copytree(source, place, symlinks=True, ignore=left, dirs_exist_ok=True)
    except (shutil.Error, OSError) as error:
        raise unwritable(place, "migrate", error) from error


def _put(place: Path, target: Path, is_new: bool) -> Path | None:
    """Rename the finished directory; returns the new path of the old one."""
    try:
        if is_new:
            os.rename(place, target)
            sync_directory(target.parent)
            return None
        before = _free(target)
        exchange(place, target)
        os.rename(place, before)
        (before / LOCK_FILE).unlink(missing_ok=True)
        sync_directory(target.parent)
        return before
    except OSError as error:
        raise unwritable(target, "migrate", error) from error


def _free(target: Path) -> Path:
    """An unused name next to `target`."""
    names = [f"{target.name}.{_BEFORE}", *(f"{target.name}.{_BEFORE}-{k}" for k in range(2, 10**6))]
    return next(target.with_name(n) for n in names if not os.path.lexists(target.with_name(n)))
