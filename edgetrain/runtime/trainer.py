"""The training loop: minibatches, learning rate, loss scale, evaluation, checkpoints, signals."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler.program import Program, load_program
from ..data.batches import Batches
from ..data.registry import open_data
from ..data.source import Source
from ..errors import CheckpointError, Interrupted, ProgramError, UsageError
from ..kernels import control
from ..optim.loss_scale import LossScale
from ..optim.schedule import Schedule
from ..sparse import rewiring_of
from ..units import finite_number, whole_number
from .checkpoint import Loaded, latest
from .evaluation import check_source, evaluate_source
from .folder import PROGRAM_FILE, RunFolder
from .keeper import Keeper
from .patterns import check_pattern
from .session import Session, StepResult
from .signals import StopRequests

_BIAS = slice(control.BIAS1, control.BIAS2 + 1)

Event = dict[str, Any]


class Trainer:
    """Trains a Program on a data source.

    Args:
      program: what to train.
      data: a source, a specification (`digits`, `mnist:DIR`, ...) or arrays (x, y).
      out: directory for checkpoints and the Program, which one process at a time writes; None
        keeps nothing on disk.
      lr: overrides the optimizer's learning rate.
      schedule: of the learning rate; total_steps is filled in by `fit`.
      save_steps: minibatches between checkpoints; 0: at the end of each epoch.
      save_total_limit: checkpoints to keep.
      threads: workers; at most the Program's.
      on_event: called with a dict for each step, epoch, warning and save.
    Raises:
      UsageError: a rate, a number of steps or `out` cannot be used.
      DataError: the data is not what the model takes.
    """

    def __init__(
        self,
        program: Program,
        data: Any,
        out: str | Path | RunFolder | None = None,
        *,
        lr: float | None = None,
        schedule: Schedule | None = None,
        save_steps: int = 0,
        save_total_limit: int = 2,
        threads: int | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._asked = lr, schedule
        own = program.recipe["optimizer"]["lr"]
        self.lr = finite_number(f"{program.model_name}: lr", own, least=0, error=ProgramError)
        if lr is not None:
            self.lr = finite_number("lr", lr, least=0)
        self.schedule = schedule or Schedule()
        self._save_steps = whole_number("save_steps", save_steps)
        if save_total_limit is not None:
            whole_number("save_total_limit", save_total_limit, least=1)
        self.program = program
        self.folder = RunFolder(out) if isinstance(out, str | Path) else out
        self.out = self.folder.path if self.folder else None
        self.session = Session(program, threads)
        self.source: Source = open_data(data, split="train")
        self.batches = Batches(
            self.source.n, program.minibatch, program.microbatch, program.recipe["seed"]
        )
        check_source(self.session, self.source, "micro")
        self._test: Source | None = None
        self.rewiring = rewiring_of(program.recipe)
        self.scale = LossScale.for_precision(program.recipe["precision"])
        self.step = 0
        self.total_steps = 0
        self._emit = on_event or (lambda event: None)
        self._stop, self._resumed = StopRequests(), ""
        self._keeper = Keeper(self.session, self.folder, save_total_limit, self._emit)
        if self.folder:
            with self.folder.held():  # whether it can be is found out before anything is trained
                pass

    # Training.

    def fit(
        self, epochs: float | None = None, *, steps: int | None = None, evaluate: bool = False
    ) -> Event:
        """Train until `epochs` passes (or `steps` minibatches) are done, counted from the start.

        Args:
          evaluate: on the test split, after each epoch.
        Returns:
          The last epoch's event: loss, steps, seconds.
        Raises:
          RunError: too many steps in a row, or all, had gradients that are not finite or targets
            that are all ignored; the weights are not finite; the disk is full.
          UsageError: another run is in `out`, or this process is a fork of the Trainer's.
          Interrupted: Ctrl-C, SIGTERM or SIGHUP; the minibatch was finished and saved (a second
            Ctrl-C discards it).
        """
        self.session.executor.check_process()
        self._set_total(epochs, steps)
        last: Event = {"event": "done", "step": self.step}
        with self._stop.listening(), self._keeper.writing():
            if self.folder:
                self.folder.keep_program(self.program)
            while self.step < self.total_steps:
                last = self._one_epoch()
                if evaluate:
                    self._emit({"event": "eval", "epoch": last["epoch"], **self.evaluate()})
            self._keeper.conclude(self.step, self.scale.bad_steps, self._meta())
        return last

    def _set_total(self, epochs: float | None, steps: int | None) -> None:
        if (epochs is None) == (steps is None):
            raise UsageError("fit: give epochs or steps, one of the two.")
        if epochs is not None:
            epochs = finite_number("epochs", epochs, above=0)
            steps = max(1, round(epochs * self.batches.minibatches_per_epoch))
        steps = whole_number("steps", steps, least=1)
        depends = f"{self.schedule.kind} schedule" if self.schedule.needs_total else ""
        depends = depends or ("rewiring" if self.rewiring else "")
        if self.total_steps and steps != self.total_steps and depends:
            refuse = CheckpointError if self._resumed else UsageError
            raise refuse(
                f"{self._resumed or 'fit'}: the run was started for {self.total_steps} steps, now "
                f"{steps}; its {depends} depends on it. Go on with the same number."
            )
        if self.schedule.needs_total and self.schedule.warmup_steps >= steps:
            raise UsageError(
                f"warmup_steps {self.schedule.warmup_steps} of {steps} steps: expected fewer."
            )
        schedule = replace(self.schedule, total_steps=steps)
        schedule.check_rates(self.lr)
        self.total_steps, self.schedule = steps, schedule

    def _one_epoch(self) -> Event:
        start, begun, losses, counted = time.perf_counter(), self.step, 0.0, 0
        epoch = self.step // self.batches.minibatches_per_epoch
        end = min(self.total_steps, (epoch + 1) * self.batches.minibatches_per_epoch)
        while self.step < end:
            result = self._one_step()
            if result is None:
                raise self._interrupted("interrupted twice: the minibatch was discarded")
            if result.counted:
                losses, counted = losses + result.loss, counted + 1
            self._give_up()
            if self.out is not None and self._save_steps and self.step % self._save_steps == 0:
                self.save()
        seconds = time.perf_counter() - start
        done = self.step - begun
        event = {
            "event": "epoch", "epoch": epoch + 1, "step": self.step,
            "loss": losses / counted if counted else math.nan,
            "seconds": round(seconds, 3),
            "samples_per_second": round(done * self.program.minibatch / max(seconds, 1e-9), 1),
        }  # fmt: skip
        self._emit(event)
        if self.out is not None and not self._save_steps:
            self.save()
        return event

    def _one_step(self) -> StepResult | None:
        rate = self.lr * self.schedule.factor(self.step)
        result = self.session.train_step(self.step, rate, self.scale.scale, self._fills())
        if result is None:
            return None
        self.step += 1
        self.scale = self.scale.update(result.finite or not result.counted, result.counted > 0)
        self._emit({
            "event": "step", "step": self.step, "total_steps": self.total_steps,
            "loss": result.loss, "lr": rate, "grad_norm": result.grad_norm,
            "loss_scale": self.scale.scale, "skipped": result.skipped,
            "reason": result.reason,
        })  # fmt: skip
        if self.rewiring and self.rewiring.due(self.step, self.total_steps):
            keep_state = self.rewiring.keeps_state(self.total_steps)
            self._emit({"event": "rewire", "step": self.step, **self.session.rewire(keep_state)})
        self._keeper.count(result, self.step, self.scale.bad_steps)
        return result

    def _fills(self) -> Iterator[bool]:
        buffers = self.session.staging(self.source, "micro")
        cursor = self.batches.cursor_at(self.step)
        key = (self.program.recipe["seed"], cursor.epoch)
        for indices in self.batches.microbatches(cursor):
            if self._stop.count > 1:
                yield False
                return
            self.source.fill(indices, buffers, key=key, train=True)
            yield True

    # Evaluation and output.

    def evaluate(self, data: Any = None) -> dict[str, float]:
        """Loss and accuracy over the test split (or another source), in evaluation mode."""
        if data is None:
            self._test = self._test or open_data(self.source, split="test")
            return evaluate_source(self.session, self._test, self._give_up)
        return evaluate_source(self.session, open_data(data, split="test"), self._give_up)

    def _give_up(self) -> None:
        """End where that was asked for: after a minibatch, and at once in an evaluation."""
        if self._stop.count:
            self.save()
            raise self._interrupted(f"{self._stop.word} after step {self.step}")

    def _interrupted(self, what: str) -> Interrupted:
        state = f"; {self._keeper.last_state(self.step)}" if self.folder else ""
        return Interrupted(f"{what}{state}", self._stop.signum)

    def export_onnx(self, path: str | Path) -> Path:
        """Write the trained model: original names and layout, for inference anywhere.

        Raises:
          RunError: it is not finite, or cannot be written.
        """
        from exporters.trained import export_trained

        return export_trained(self.program, self.session.state(), path)

    # State on disk.

    def save(self) -> Path | None:
        """Write a checkpoint of the state between minibatches.

        Returns:
          None without `out`, and where the state is not finite amid steps that are skipped for
          it: a warning says so, and older checkpoints stay.
        Raises:
          RunError: the state is not finite, or the disk is full.
        """
        return self._keeper.save(self.step, self.scale.bad_steps, self._meta())

    def _meta(self) -> dict[str, Any]:
        return {
            "step": self.step, "total_steps": self.total_steps, "lr": self.lr,
            "adam_t": int(self.session.ints[control.ADAM_T]), "scale": asdict(self.scale),
            "adam_bias": self.session.reals[_BIAS].tolist(),
            "schedule": asdict(self.schedule), "recipe": recipe_digest(self.program),
            "samples": self.source.n,
        }  # fmt: skip

    def resume(self, directory: str | Path | None = None) -> bool:
        """Go on from the newest checkpoint of `directory` (default `out`); False where none is.

        Raises:
          CheckpointError: it belongs to another run, or cannot be read.
        """
        where = self.out if directory is None else Path(directory)
        if where is None:
            raise UsageError("resume: expected a directory.")
        self.session.executor.check_process()
        loaded = latest(where)
        if loaded is None:
            return False
        meta = loaded.meta
        if meta.get("recipe") != recipe_digest(self.program):
            raise CheckpointError(
                f"{loaded.used}: written by a run with another model or recipe. Resume with the "
                f"Program in {where / PROGRAM_FILE}, or choose another directory."
            )
        if meta["samples"] != self.source.n:
            raise CheckpointError(
                f"{loaded.used}: the run had {meta['samples']} training samples, the data now has "
                f"{self.source.n}. Resume with the same data."
            )
        self._check_rates(loaded)
        self._resumed = str(loaded.used)
        load_state(self.session, loaded.tensors, str(loaded.used))
        self.session.ints[control.ADAM_T] = meta["adam_t"]
        self.session.reals[_BIAS] = meta["adam_bias"]
        self.step, self.total_steps, self.lr = meta["step"], meta["total_steps"], meta["lr"]
        self.scale, self.schedule = LossScale(**meta["scale"]), Schedule(**meta["schedule"])
        if self.folder and where.resolve() == self.folder.path.resolve():
            self.folder.resumed()
        if loaded.warning:
            self._emit({"event": "warning", "message": loaded.warning})
        self._emit({"event": "resume", "step": self.step, "path": str(loaded.used)})
        return True

    def _check_rates(self, loaded: Loaded) -> None:
        """Learning rate and schedule are the run's own; others were asked for by mistake."""
        lr, schedule = self._asked
        ran = Schedule(**loaded.meta["schedule"])
        asked = ran if schedule is None else replace(schedule, total_steps=ran.total_steps)
        if lr not in (None, loaded.meta["lr"]) or asked != ran:
            raise CheckpointError(
                f"{loaded.used}: the run has learning rate {loaded.meta['lr']:g} and a {ran.kind} "
                "schedule, asked for are others. Resume without these options."
            )

    def interrupt(self) -> None:
        """What Ctrl-C does: once, stop after this minibatch; twice, discard it."""
        self._stop.add()

    def close(self) -> None:
        """End the workers."""
        self.session.close()


def recipe_digest(program: Program) -> str:
    """Equal for Programs whose checkpoints are interchangeable: same recipe, same tensors.

    Recomputation, layout and threads are left out: they change no bit. The microbatch stays in.
    """
    recipe = {k: v for k, v in program.recipe.items() if k not in ("threads", "max_extra_forward")}
    recipe["microbatch"] = program.microbatch
    names = sorted((s.name, s.shape, s.dtype, s.role) for s in program.persistent)
    text = json.dumps([recipe, names, program.model_name], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def load_state(session: Session, tensors: dict[str, np.ndarray], label: str) -> None:
    """Copy a checkpoint's tensors into the arena, all of them or none.

    Raises:
      CheckpointError: names, shapes or dtypes differ from the Program's.
    """
    state = session.state()
    if set(tensors) != set(state) or any(
        tensors[n].shape != state[n].shape or tensors[n].dtype != state[n].dtype for n in state
    ):
        raise CheckpointError(
            f"{label}: its tensors are not those of this Program. Resume with the Program it was "
            "written with."
        )
    check_pattern(session.layers, tensors, label, CheckpointError)
    for name, array in tensors.items():
        state[name][...] = array


def open_run(directory: str | Path) -> tuple[Program, dict[str, np.ndarray] | None]:
    """The Program of a run's directory and its newest state.

    Raises:
      CheckpointError, ProgramError: what is there cannot be used.
    """
    directory = Path(directory)
    program = load_program(directory / PROGRAM_FILE)
    loaded = latest(directory)
    return program, loaded.tensors if loaded else None
