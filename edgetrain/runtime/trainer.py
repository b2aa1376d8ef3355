"""The training loop: minibatches, learning rate, loss scale, evaluation, checkpoints, signals."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.batches import steps_per_epoch
from ..data.registry import open_evaluation
from ..data.source import Source
from ..data.validation import Division
from ..errors import CheckpointError, Interrupted, UsageError
from ..optim import Schedule
from ..optim.schedules import Constant
from ..program import Program
from ..program.stored import write_stored
from ..program.trained import export_trained
from ..sparse import rewiring_of
from .checkpoint import Loaded, latest
from .evaluation import check_source, evaluate_source
from .feed import Filler
from .folder import PROGRAM_FILE, RunFolder
from .keeper import Keeper
from .run_fields import check_run
from .session import Session, StepResult
from .settings import SAVE_STEPS, SAVE_TOTAL_LIMIT, check_length, check_settings
from .signals import StopRequests
from .state import load_state
from .stored_run import keep_schedule, stored_checkpoint

Event = dict[str, Any]


class Trainer:
    """Trains a Program on a data source.

    Args:
      program: what to train.
      data: a source, a specification (`digits`, `mnist:DIR`, ...) or arrays (x, y).
      validation: what to evaluate on while training. None: the data's own test split; nothing is
        held out where it has none. A fraction of the training samples, held out; or other data.
      out: directory for checkpoints and the Program, which one process at a time writes; None
        keeps nothing on disk.
      lr: overrides the optimizer's learning rate.
      schedule: of the learning rate; total_steps is filled in by `fit`.
      save_steps: minibatches between checkpoints; 0: at the end of each epoch.
      save_total_limit: checkpoints to keep; None keeps all.
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
        save_steps: int = SAVE_STEPS,
        save_total_limit: int | None = SAVE_TOTAL_LIMIT,
        threads: int | None = None,
        validation: Any = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        check_settings(out, lr, schedule, save_steps, save_total_limit, threads, on_event)
        if not isinstance(program, Program):
            raise UsageError(f"program {repr(program)[:80]}: expected what compile returned.")
        self._asked = lr, schedule
        self.lr = program.recipe["optimizer"]["lr"] if lr is None else lr
        self.schedule, self._save_steps = schedule or Constant(), save_steps
        self.program = program
        self.folder = RunFolder(out) if isinstance(out, str | Path) else out
        self.out = self.folder.path if self.folder else None
        self.session = Session(program, threads)
        self.data = Division(data, validation)
        self.source: Source = self.data.train
        self._steps_per_epoch = steps_per_epoch(self.source.n, program.minibatch)
        check_source(self.session, self.source, "micro")
        if self.data.chosen is not None:
            check_source(self.session, self.data.chosen, "eval")
        self.rewiring = rewiring_of(program.recipe)
        self.total_steps = 0
        self._emit = on_event or (lambda event: None)
        self._stop, self._resumed = StopRequests(), ""
        self._keeper = Keeper(self.session, self.folder, save_total_limit, self._emit)
        if self.folder:
            with self.folder.held():  # whether it can be is found out before anything is trained
                pass

    def __repr__(self) -> str:
        where = f", out {str(self.out)!r}" if self.out else ""
        steps = f" of {self.total_steps}" if self.total_steps else ""
        return f"Trainer({self.program!r}, {self.source!r}, step {self.step}{steps}{where})"

    @property
    def step(self) -> int:
        """Minibatches done, skipped ones included."""
        return self.session.step

    # Training.

    def fit(
        self, epochs: float | None = None, *, steps: int | None = None, evaluate: bool = False
    ) -> Event:
        """Train until `epochs` passes (or `steps` minibatches) are done, counted from the start.

        Args:
          evaluate: after each epoch, where there is something to evaluate on (`validation`).
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
        evaluate = self._say_data(evaluate)
        last: Event = {"event": "done", "step": self.step}
        with self._stop.listening(), self._keeper.writing():
            if self.folder:
                self.folder.keep_program(self.program)
            while self.step < self.total_steps:
                last = self._one_epoch()
                if evaluate:
                    self._emit({"event": "eval", "epoch": last["epoch"], **self.evaluate()})
            self._keeper.conclude(self._meta())
        return last

    def _say_data(self, evaluate: bool) -> bool:
        """Tell what is held out; whether there is something to evaluate on, if that is wanted."""
        test = self.data.evaluation() if evaluate else None
        if test is not None:
            check_source(self.session, test, "eval")
        message = self.data.describe(evaluate)
        held = self.data.held_out
        self._emit(
            {"event": "data", "samples": self.source.n, "held_out": held, "message": message}
        )
        return test is not None

    def _set_total(self, epochs: float | None, steps: int | None) -> None:
        check_length(epochs, steps)
        if epochs is not None:
            steps = max(1, round(epochs * self._steps_per_epoch))
        assert steps is not None
        depends = f"{self.schedule.name} schedule" if self.schedule.needs_total else ""
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
        self.session.set_rate(self.lr, schedule, steps)

    def _one_epoch(self) -> Event:
        start, begun, losses, counted = time.perf_counter(), self.step, 0.0, 0
        epoch = self.step // self._steps_per_epoch
        end = min(self.total_steps, (epoch + 1) * self._steps_per_epoch)
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
        result = self.session.minibatch(self.source.n, self._filler())
        if result is None:
            return None
        self._emit({
            "event": "step", "step": self.step, "total_steps": self.total_steps,
            "loss": result.loss, "lr": result.lr, "grad_norm": result.grad_norm,
            "loss_scale": self.session.loss_scale, "skipped": result.skipped,
            "reason": result.reason,
        })  # fmt: skip
        if result.rewired:
            self._emit({"event": "rewire", "step": self.step, **result.rewired})
        self._keeper.count(result)
        return result

    def _filler(self) -> Filler:
        """What stages the samples of this step's microbatches; discards it after two Ctrl-C."""
        buffers = self.session.staging(self.source, "micro")
        key = (self.program.recipe["seed"], self.step // self._steps_per_epoch)

        def fill(indices: np.ndarray) -> bool:
            if self._stop.count > 1:
                return False
            self.session.fill(self.source, indices, "micro", buffers, key=key, train=True)
            return True

        return fill

    # Evaluation and output.

    def evaluate(self, data: Any = None) -> dict[str, float]:
        """Loss and accuracy in evaluation mode.

        Args:
          data: all of it is looked at (of data with a test split, that); None: what `validation`
            said, or the test split.
        Raises:
          UsageError: no data, and nothing was held out.
        """
        source = self.data.evaluation() if data is None else open_evaluation(data)
        if source is None:
            raise UsageError(
                f"evaluate: {self.source.name} has no test split and nothing is held out. Give "
                "evaluate() data, or Trainer a validation such as 0.2."
            )
        return evaluate_source(self.session, source, self._give_up)

    def _give_up(self) -> None:
        """End where that was asked for: after a minibatch, and at once in an evaluation."""
        if self._stop.count:
            self.save()
            raise self._interrupted(f"{self._stop.word} after step {self.step}")

    def _interrupted(self, what: str) -> Interrupted:
        state = f"; {self._keeper.last_state()}" if self.folder else ""
        return Interrupted(f"{what}{state}", self._stop.signum)

    def export_onnx(self, path: str | Path) -> Path:
        """Write the trained model: original names and layout, for inference anywhere.

        Raises:
          RunError: it is not finite, or cannot be written.
        """
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
        return self._keeper.save(self._meta())

    def _meta(self) -> dict[str, Any]:
        return {
            "step": self.step, "total_steps": self.total_steps, "lr": self.lr,
            "counters": self.session.counters(),
            "schedule": self.schedule.to_json(), "seen": self.session.seen(self.schedule),
            "recipe": self.program.digest(),
            "samples": self.source.n, "held_out": self.data.held_out,
        }  # fmt: skip

    def resume(self, directory: str | Path | None = None) -> bool:
        """Go on from the newest checkpoint of `directory` (default `out`); False where none is.

        Args:
          directory: of a run, or a file with the state of a bundle (`save_stored`).
        Raises:
          CheckpointError: it belongs to another run, or cannot be read.
        """
        where = self.out if directory is None else Path(directory)
        if where is None:
            raise UsageError("resume: expected a directory.")
        self.session.executor.check_process()
        counts = self.source.n, self.data.held_out
        stored = where.is_file()
        loaded = stored_checkpoint(where, self.program, *counts) if stored else latest(where)
        if loaded is None:
            return False
        meta = check_run(loaded).meta
        if meta["recipe"] != self.program.digest():
            raise CheckpointError(
                f"{loaded.used}: written by a run with another model or recipe. Resume with the "
                f"Program in {where / PROGRAM_FILE}, or choose another directory."
            )
        ran = meta["samples"], meta["held_out"]
        if ran != counts:
            raise CheckpointError(
                f"{loaded.used}: the run had {ran[0]} training samples and {ran[1]} held out, the "
                f"data now has {self.source.n} and {self.data.held_out}. Resume with the same data "
                "and validation."
            )
        self._check_rates(loaded)
        self._resumed = str(loaded.used)
        load_state(self.session, loaded.tensors, str(loaded.used))
        self.session.set_counters(meta["step"], meta["counters"])
        self.total_steps, self.lr = meta["total_steps"], meta["lr"]
        self.schedule = Schedule.of_json(meta["schedule"])
        self.session.set_seen(self.schedule, meta["seen"])
        if self.folder and where.resolve() == self.folder.path.resolve():
            self.folder.resumed()
        if loaded.warning:
            self._emit({"event": "warning", "message": loaded.warning})
        self._emit({"event": "resume", "step": self.step, "path": str(loaded.used)})
        return True

    def save_stored(self, path: str | Path, program: Program | None = None) -> None:
        """Write the state as the bundle of a Program keeps it, for `NAME_load` on a device.

        Args:
          program: the bundle's; None: this one. Of another, values go on and not bits.
        Raises:
          CheckpointError: the other Program has other parameters.
          RunError: it cannot be written.
        """
        block = self.session.ints.copy()
        keep_schedule(block, self.schedule)
        write_stored(path, program or self.program, self.session.state(), block)

    def _check_rates(self, loaded: Loaded) -> None:
        """Learning rate and schedule are the run's own; others were asked for by mistake."""
        lr, schedule = self._asked
        ran = Schedule.of_json(loaded.meta["schedule"])
        asked = ran if schedule is None else replace(schedule, total_steps=ran.total_steps)
        if lr not in (None, loaded.meta["lr"]) or asked != ran:
            raise CheckpointError(
                f"{loaded.used}: the run has learning rate {loaded.meta['lr']:g} and a {ran.name} "
                "schedule, asked for are others. Resume without these options."
            )

    def interrupt(self) -> None:
        """What Ctrl-C does: once, stop after this minibatch; twice, discard it."""
        self._stop.add()

    def close(self) -> None:
        """End the workers."""
        self.session.close()
