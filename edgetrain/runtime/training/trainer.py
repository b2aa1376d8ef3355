"""The training loop: minibatches, learning rate, loss scale, evaluation, checkpoints, signals."""

import contextlib
import os
import time
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Unpack

from ...data.registry import numbered_as, open_evaluation
from ...data.source import Source
from ...errors import CheckpointError, Interrupted, UsageError
from ...history import History
from ...kernels import control
from ...program import Program
from ...screen.levels import levels
from ...units.options import typed
from ...units.public import as_path, public_api, taking
from ...units.wording import counted
from ..run.checkpoint import Loaded, latest
from ..run.fields import check_run
from ..run.folder import MAX_BAD_STEPS, RunFolder
from ..run.position import EndOfPass, Position
from ..run.rollback import Changeable, passed_over
from ..session import StepResult
from .epochs import Passes
from .evaluation import check_source, evaluate_batches, evaluate_source
from .learner import Learner
from .opening import opened, opened_data
from .rounds import Rounds
from .settings import Settings, asks_metrics, check_length
from .signals import StopRequests

if TYPE_CHECKING:
    from .keywords import Keywords

Event = dict[str, Any]
_POINTS = 32  # of the loss curve on the progress line


def _loading(verbose: bool | None) -> "contextlib.AbstractContextManager[None]":
    """Show a message while kernels are compiled within the block."""
    if not levels(verbose).progress:
        return contextlib.nullcontext()
    from ...screen.python import waiting

    return waiting(verbose, "loading kernels")


@public_api
class Trainer(Learner):
    """Trains a Program: on a dataset with `fit`, or sample by sample with `step`.

    Args:
      program: from `compile`, or the path of a .edge file.
      data: a Source, a string (`digits`, `mnist:DIR`, ...), arrays (x, y), a list of samples
        (x, y) or a torch Dataset; or batches (x, y), one per step: a DataLoader, a list, a
        generator, or a function that returns one. None: use only `step`.
      out: directory for checkpoints and the Program; only one process at a time can use it.
        None: write nothing to disk.
      settings: see `Settings`: lr, schedule, total_steps, save_steps, save_seconds,
        save_total_limit, threads, validation, keep_last, callbacks, metrics, on_event, resume,
        verbose.
    Attributes:
      parameters: weights by torch name, readable and writable; see `Parameters`.
    Raises:
      UsageError: a setting or `out` cannot be used.
      DataError: the data does not fit the model.
    """

    @taking(Settings)
    def __init__(
        self,
        program: Program | str | Path,
        data: Any = None,
        out: str | Path | RunFolder | None = None,
        **settings: Unpack["Keywords"],
    ) -> None:
        given = Settings.of(settings)
        with _loading(given.verbose):
            super().__init__(program, out, given)
            self._stop, self._resumed, self._position = StopRequests(), "", Position()
            self._rounds = Rounds(self._changeable, self._restore, lambda: self.steps)
            self._open(data)
        if self.folder:
            with self.folder.held():  # fail before training if it can't be
                pass
        if given.resume:
            with self._showing(None):
                if not self.resume():
                    message = f"{self.out}: no checkpoint yet; starting at step 0."
                    self._emit({"event": "note", "message": message})

    def _open(self, data: Any) -> None:
        """Open training and evaluation data, and check that they fit the model. Nothing changes if
        they don't."""
        own, labels, passes, tested = opened_data(
            self.session, data, self._settings, lambda: self._stop.count > 1
        )
        for source in (own.train, own.chosen):
            if source is not None and self.out is not None:
                source.keep_in(self.out)
        self._data, self.data, self.source = data, own, own.train
        self.labels, self._passes, self._tested = labels, passes, tested

    def __repr__(self) -> str:
        where = f", out {str(self.out)!r}" if self.out else ""
        steps = f" of {self.total_steps}" if self.total_steps else ""
        data = f", {self.source!r}" if self.source is not None else ""
        return f"Trainer({self.program!r}{data}, step {self.steps}{steps}{where})"

    @property
    def steps_per_epoch(self) -> int | None:
        """Minibatches per epoch; None if unknown."""
        return self._passes.length if self._passes else None

    # Training.

    def fit(
        self,
        data: Any = None,
        epochs: float | None = None,
        *,
        steps: int | None = None,
        evaluate: bool | None = None,
        verbose: bool | None = None,
    ) -> History:
        """Train for `epochs` passes over the data, or `steps` minibatches.

        Another call trains further epochs. After resuming or an interruption, the call only does
        the remaining steps.

        Args:
          data: as for `Trainer`, if that has none; a number means `epochs`.
          evaluate: evaluate after each epoch, if there is data for it; None: if you passed
            `validation`.
          verbose: as for `Trainer`, for this call.
        Returns:
          The epochs of this call, including those done before resuming: `history["loss"]`,
          `history["val_accuracy"]`, ..; `trainer.history` covers the whole run.
        Raises:
          RunError: too many steps in a row, or all steps, had non-finite gradients or only ignored
            targets; weights are not finite; the disk is full.
          UsageError: `out` contains another run, this process was forked, or `fit` is already
            running.
          Interrupted: Ctrl-C, SIGTERM or SIGHUP. The minibatch was finished and saved; a second
            Ctrl-C discards it.
        """
        self.session.executor.check_process()
        evaluate = typed("fit: evaluate", evaluate, (bool, NoneType))
        if isinstance(data, Real):  # as fit(5)
            if epochs is not None:
                raise UsageError(f"fit: data {data!r}: expected data, not a number.")
            data, epochs = None, data
        passes = self.passes_over(data)
        if evaluate is None:
            evaluate = self._settings.validation is not None
        begun = self._before[0]
        with self._owned("fit"), self._showing(verbose):
            check_length(epochs, steps)
            # Unchanged if an error ends the call: repeating it does the rest.
            self._before = self._fit(passes, *self._target(epochs, steps, passes.length), evaluate)
        return self.history.since(begun)

    def passes_over(self, data: Any = None, what: str = "fit") -> Passes:
        """The passes over the Trainer's data, or over data passed to the call named `what`.

        Raises:
          UsageError: no data, other data, or a resumed run, whose data must be passed to Trainer.
        """
        if data is None and self._passes is not None:
            return self._passes
        if data is None:
            step = ", or call step(x, y)" if what == "fit" else ""
            raise UsageError(
                f"{what}: this Trainer has no data. Pass data to Trainer(program, data) or to "
                f"{what}(data){step}."
            )
        if self._passes is not None and data is not self._data:
            raise UsageError(
                f"{what}: this Trainer has data. Leave data out, or make another Trainer."
            )
        if self._resumed and self._passes is None:
            raise UsageError(
                f"{self._resumed}: a resumed run continues at its position in the data. Pass the "
                "data to Trainer(program, data) before you resume."
            )
        if self._passes is None:
            with self._owned(what):
                self._open(data)
        assert self._passes is not None
        return self._passes

    def begin_at(self, step: int) -> None:
        """Set the number of steps done, and the position in the data to match."""
        self.session.set_counters(step, self.session.counters())
        length, position = self.steps_per_epoch, self._position
        if length:
            position.epoch, position.done = divmod(step, length)

    def _target(
        self, epochs: float | None, steps: int | None, length: int | None
    ) -> tuple[float | None, int | None]:
        """The end of a `fit` call, counted from the start of the run: (passes, steps)."""
        done, passes = self._before
        if epochs is None:
            return None, done + (steps or 0)
        if length is None:
            return passes + epochs, None
        return None, done + max(1, round(epochs * length))

    def _fit(
        self,
        passes: Passes,
        epochs: float | None,
        steps: int | None,
        evaluate: bool,
    ) -> tuple[int, float]:
        """Train to the end of a call; returns the total steps and passes requested so far."""
        self._set_total(steps)
        self._say_whether_done(epochs)
        if self._is_beyond(epochs):
            return self._done(epochs)
        evaluate, self._ending = self._say_data(evaluate), ""
        self._callbacks.check_evaluated(evaluate)
        self._go_beside()
        with (
            self._stop.listening(), self._checkpoints.writing(), self._record.kept(),
            self._kept_if_it_fails(),
        ):  # fmt: skip
            self._keep_program()
            self._begin("fit")
            self._callbacks.begin_fit(self, epochs, steps)
            if self._position.ended:  # the run ended before callbacks were called
                event = self._epoch_event(self.steps, 0.0)
                if not self.history.has_epoch(event["epoch"]):
                    self._emit(event)
                self._close(event, evaluate)
            while not self._ending and self._goes_on(epochs):
                self._close(self._one_epoch(passes, epochs), evaluate)
            if self._ending:
                stop = {"event": "stop", "step": self.steps, "reason": self._ending}
                self._emit(stop | {"curve": self.history.curve(_POINTS)})
                self._position.stop(passes.length)
            self._checkpoints.conclude(self._meta())
            self._callbacks.end_fit(self)
        return self._done(epochs)

    def _done(self, epochs: float | None) -> tuple[int, float]:
        done, passed = self.steps, float(self._position.epoch)
        return min(done, self._until or done), passed if epochs is None else min(passed, epochs)

    def _say_whether_done(self, epochs: float | None) -> None:
        """Say so if a resumed run has nothing left to do."""
        if not self._goes_on(epochs) and not self._position.ended:
            message = (
                f"nothing to do: the run already has {counted(self.steps, 'step')}, and fit counts "
                "the epochs of a resumed or interrupted run. Train more epochs, or start a new "
                "run without resume."
            )
            self._emit({"event": "note", "message": message})

    def _goes_on(self, epochs: float | None) -> bool:
        return self.steps < self._until if epochs is None else self._position.epoch < epochs

    def _is_beyond(self, epochs: float | None) -> bool:
        """Whether a resumed run was in a later call, so callbacks have seen the end of this one."""
        position = self._position.epoch, self._position.done
        return self.steps > self._until if epochs is None else position > (epochs, 0)

    def _say_data(self, evaluate: bool) -> bool:
        """Report held-out samples; returns whether to evaluate."""
        test = self.data.evaluation() if evaluate else None
        if test is not None:
            check_source(self.session, test, "eval")
        samples = self._passes.samples if self._passes else 0
        note = self._passes.note if self._passes else ""
        message = self.data.describe(evaluate and self._tested is None, note)
        held = self.data.held_out
        self._emit({"event": "data", "samples": samples, "held_out": held, "message": message})
        return test is not None or (evaluate and self._tested is not None)

    def _set_total(self, steps: int | None) -> None:
        """Set the end of this call, and the run's length for schedule and rewiring.

        Raises:
          UsageError, CheckpointError: they depend on the length, but it is unknown or has changed.
        """
        depends = f"{self.schedule.name} schedule" if self.schedule.needs_total else ""
        depends = depends or ("rewiring" if self.rewiring else "")
        if steps is None and depends:
            raise UsageError(
                f"fit: the {depends} depends on the run's length, but the number of batches is "
                "unknown. Pass steps."
            )
        self._until = steps or 0
        total = self.total_steps
        within = self._settings.total_steps == total and self._until < total
        if total and steps != total and depends and not within:
            refuse = CheckpointError if self._resumed else UsageError
            move = "Use the same number."
            if self._before[0]:
                move = "Pass total_steps, the steps of all fit calls, to Trainer."
            raise refuse(
                f"{self._resumed or 'fit'}: found {steps} steps; the run was started "
                f"for {total}, and its {depends} depends on them. {move}"
            )
        self._set_schedule(total if depends and total else self._until)

    def _one_epoch(self, passes: Passes, epochs: float | None) -> Event:
        start, first, position = time.perf_counter(), self.steps, self._position
        if passes.placed and passes.length:
            position.epoch, position.done = divmod(self.steps, passes.length)
        passes.begin(position.epoch, position.done)
        with self._rounds.undone_without_a_step():
            self._callbacks.begin_epoch(position.epoch, position.done)
            self._rollback.remember(self.steps, self._changeable())
            while not (position.ended or self._ending):
                if not self._one_step(passes):
                    position.end_pass()
        position.ended = True
        if passes.dropped:
            self._emit({"event": "note", "message": passes.dropped})
        event = self._epoch_event(first, time.perf_counter() - start)
        if not self._ending and not self._goes_on(epochs):
            event["curve"] = self.history.curve(_POINTS)
        self._emit(event)
        if self.out is not None and not self._settings.save_steps:
            self.save()
        return event

    def _epoch_event(self, begun: int, seconds: float) -> Event:
        samples = self._passes.samples_between(begun, self.steps) if self._passes else 0
        epoch = self._position.epoch + (self._position.done > 0)
        return {
            "event": "epoch", "epoch": epoch, "step": self.steps, "loss": self._position.mean,
            "skipped": self._position.skipped, "seconds": round(seconds, 3),
            "samples_per_second": round(samples / max(seconds, 1e-9), 1),
        }  # fmt: skip

    def _one_step(self, passes: Passes) -> bool:
        """Run the next step of a pass and its follow-up; False if the pass has ended."""
        try:
            passes.ready()
        except EndOfPass:
            return False
        if self._callbacks.begin_steps:
            self._rounds.begin()
            self._callbacks.begin_step()
        with self.session.turn:
            result = self._run(passes)
            if result is None:
                raise self._interrupted("interrupted twice; the minibatch was discarded")
            if self._rollback.has_failed(result):
                self._go_back(passes, result)
                return True
            epoch = self._position.epoch
            self._position.add(result.loss, result.skipped)
            # Before saving, so a run resumed from there still reports the epoch's end.
            if self._position.done == passes.length:
                self._position.end_pass()
            self._position.ended |= 0 < self._until <= self.steps
            if result.skipped and not result.finite:
                self._skips.note(result, epoch, passes.fed())
        self._tell(result)
        self._look()
        self._give_up()
        if self._is_due():
            self.save()
        return True

    def _run(self, passes: Passes) -> StepResult | None:
        """Run the next step of a pass; a step that failed before is skipped."""
        if self.steps not in self._rollback.failed:
            return passes.run()
        callback = self.session.sample_callback
        callback.uncounted = self.session.ints
        try:
            result = passes.run()
        finally:
            callback.uncounted = None
        return None if result is None else passed_over(result)

    def _go_back(self, passes: Passes, result: StepResult) -> None:
        """Go back to the last checkpoint after a failed step."""
        loaded = self._rollback.back(self.steps - 1, result)
        self._checkpoints.went_back()
        passes.check_again()
        self._take_state(loaded)
        if begun := self._rollback.begun_at(self.steps):
            self._restore(begun)
        elif "callbacks" in loaded.meta:
            self._callbacks.load_state(loaded.meta["callbacks"], str(loaded.used))
        position = Position.of_json(loaded.meta["position"])
        if position.ended:
            position.close()
        vars(self._position).update(vars(position))
        passes.begin(position.epoch, position.done)

    def _close(self, event: Event, evaluate: bool) -> Event:
        """Evaluate after an epoch, and call callbacks."""
        with self._rounds.undone_without_a_step():
            if evaluate:
                self._callbacks.call("on_test_begin", {})
                result = self._evaluated(None, None)
                event = {**event, "evaluation": result}
                self._emit({"event": "eval", "epoch": event["epoch"], **result})
                self._callbacks.end_evaluation(self, result)
            self._callbacks.end_epoch(self, event)
        self._position.close()
        return event

    def _changeable(self) -> Changeable:
        return Changeable(
            self.session.lr, self._changed.get("loss_weights"), self._callbacks.states()
        )

    def _restore(self, before: Changeable) -> None:
        self.session.lr = before.lr
        self._restore_weights(before.weights)
        self._callbacks.restore(before.callbacks)

    # Evaluation and output.

    def evaluate(
        self, data: Any = None, metrics: Any = None, *, verbose: bool | None = None
    ) -> dict[str, Any]:
        """Loss, accuracy and other metrics in evaluation mode.

        Args:
          data: evaluation data: its test split, or all of it; batches may have any size. None: as
            `validation` says, or the test split.
          metrics: as in `OutputMetrics`; None: the Trainer's.
          verbose: as for `Trainer`, for this call.
        Raises:
          UsageError: there is no evaluation data.
        """
        result = self._evaluated(data, metrics)
        if any(levels(verbose := self._settings.verbose if verbose is None else verbose)):
            from ...screen.python import show_metrics

            show_metrics(verbose, result)
        return result

    def _evaluated(self, data: Any, metrics: Any) -> dict[str, Any]:
        metrics = self._settings.metrics if metrics is None else metrics
        if asks_metrics(metrics):
            from .output_metrics import check_metrics

            check_metrics(metrics, self.program)
        result = self._tested if data is None else opened(self.session, data)
        if result is not None and not isinstance(result, Source):
            return evaluate_batches(self.session, result, self._give_up, metrics)
        if data is not None and result is None:
            result = open_evaluation(tuple(data) if isinstance(data, list) else data)
        source = self.data.evaluation() if result is None else numbered_as(result, self.labels)
        if source is None:
            name = self.source.name if self.source is not None else "this Trainer"
            raise UsageError(
                f"evaluate: {name} has no test split, and nothing is held out. Pass "
                "data to evaluate(), or validation=0.2 to Trainer."
            )
        return evaluate_source(self.session, source, self._give_up, metrics)

    def _give_up(self) -> None:
        """Stop if requested: after a minibatch, or at once in an evaluation."""
        if self._stop.count:
            self.save()
            raise self._interrupted(f"{self._stop.word} after step {self.steps}")

    def _interrupted(self, what: str) -> Interrupted:
        state = f"; {self._checkpoints.last_state()}" if self.folder else ""
        return Interrupted(f"{what}{state}", self._stop.signum)

    # State on disk.

    def _meta(self) -> dict[str, Any]:
        now = self._rounds.before or self._changeable()
        changed = {**self._changed, "loss_weights": now.weights}
        changed = {name: value for name, value in changed.items() if value is not None}
        return {
            "step": self.steps, "total_steps": self.total_steps, "lr": now.lr,
            "started_lr": self._started_lr, "counters": self.session.counters(),
            "schedule": self.schedule.to_json(), "seen": self.session.seen(self.schedule),
            "recipe": self.program.digest(), **self._counts(),
            "position": self._position.to_json(),
            "callbacks": self._callbacks.state(now.callbacks),
            "labels": None if self.labels is None else list(self.labels),
            **({"changed": changed} if changed else {}), **self._rollback.to_json(),
            **({"diverged": True} if self._checkpoints.diverged else {}),
            **({"lengths": result} if (result := self._by_length()) else {}),
        }  # fmt: skip

    def _by_length(self) -> dict[str, int]:
        """Training samples by length; empty if the Program has a single length."""
        return self._passes.by_length if self._passes else {}

    def _counts(self) -> dict[str, Any]:
        """Dataset identity, for checkpoints."""
        samples = self._passes.samples if self._passes else 0
        keep_last = self._settings.keep_last
        return {"samples": samples, "held_out": self.data.held_out, "keep_last": keep_last}

    def resume(self, directory: str | Path | None = None) -> bool:
        """Continue from the newest checkpoint in `directory` (default `out`); False if none.

        Args:
          directory: a run directory, or a file with a bundle's state (`save_stored`).
        Raises:
          CheckpointError: it belongs to another run, or cannot be read.  UsageError: no directory.
        """
        where = self.out if directory is None else as_path("resume", directory, "a directory")
        if where is None:
            raise UsageError("resume: there is no directory. Pass one, or out to Trainer.")
        self.session.executor.check_process()
        self._check_owner("resume")
        counts = self._counts()
        stored = os.path.isfile(where)
        from ..run import resuming
        from ..run.stored import stored_checkpoint

        loaded = stored_checkpoint(where, self.program, **counts) if stored else latest(where)
        if loaded is None:
            return False
        meta = check_run(loaded).meta
        resuming.check_recipe(loaded, self.program.digest(), where)
        if self._passes is not None:  # without data, any data is accepted
            resuming.check_counts(loaded, **counts)
            resuming.check_lengths(loaded, self._by_length())
            resuming.check_schedule(loaded, self._settings.schedule)
        changes = resuming.other_rates(
            meta, self.program.recipe, self._settings.lr, self._settings.changes
        )
        if changes and not stored:
            result = resuming.last_good(where, loaded)
            if result is None:
                return self._start_over(changes, loaded)
            loaded, meta = result, result.meta
        elif not stored:
            resuming.check_alive(loaded, where)
        resuming.check_labels(loaded, self.labels)
        if self.labels is None and meta.get("labels") is not None:
            self.labels = tuple(meta["labels"])
        if "callbacks" in meta and self._passes is not None:
            self._callbacks.load_state(meta["callbacks"], str(loaded.used))
        if not stored:
            self._checkpoints.take_best(where)
        self._resumed = str(loaded.used)
        self._take_state(loaded)
        self._position = Position.of_json(meta.get("position", {}))
        self._started_lr = meta.get("started_lr", meta["lr"])
        self._rollback.resumed(meta.get("failed", ()))
        if changes or self.session.bad_steps >= MAX_BAD_STEPS:
            self._forget_failures()
        self._before = 0, 0.0
        self._record.resumed(loaded.used, self.steps)
        if self.folder and where.resolve() == self.folder.path.resolve():
            self.folder.resumed(self.steps)
        if loaded.warning:
            self._emit({"event": "warning", "message": loaded.warning})
        self._emit({"event": "resume", "step": self.steps, "path": str(loaded.used)})
        self._go_on_with(changes)
        return True

    def _forget_failures(self) -> None:
        """Reset the failure counts: what failed before may work now."""
        self._rollback.failed = set()
        self.session.ints[control.BAD_STEPS] = 0

    def _go_on_with(self, changes: dict[str, tuple[float, float]]) -> None:
        """Change rates from this step on, and report it."""
        if not changes:
            return
        new = {name: value for name, (_, value) in changes.items()}
        if "lr" in new:
            self.lr = self._started_lr = new.pop("lr")
        self._change(new)
        listed = ", ".join(f"{n} {now:g} (was {was:g})" for n, (was, now) in changes.items())
        self._emit({"event": "note", "message": f"from step {self.steps} on: {listed}."})

    def _start_over(self, changes: dict[str, tuple[float, float]], newest: Loaded) -> bool:
        """Start at step 0, because there is no state from before the run diverged."""
        if self.steps:
            raise CheckpointError(
                f"{newest.used}: the run diverged, and there is no earlier state. Make a new "
                "Trainer, which starts from the initial weights."
            )
        where = newest.used.parent
        if self.folder and where.resolve() == self.folder.path.resolve():
            self.folder.resumed(-1)
        message = f"{where}: no state from before the run diverged; starting at step 0."
        self._emit({"event": "note", "message": message})
        self._go_on_with(changes)
        return True

    def interrupt(self) -> None:
        """Stop like Ctrl-C: once, after this minibatch; twice, discard it."""
        self._stop.add()
