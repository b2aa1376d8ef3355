"""Online learning with a Program: steps, predictions, weights, checkpoints."""

import contextlib
import math
import time
import warnings
from _thread import allocate_lock, get_ident
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...errors import UsageError
from ...history import History
from ...kernels import control
from ...optim import Schedule
from ...optim.schedules import Constant
from ...program import Program
from ...screen.levels import levels
from ...sparse import rewiring_of
from ...units import finite_number
from ...units.public import Uncopied, as_path, public, public_api
from ..loading.program import opened_program
from ..run.checkpoint import Loaded
from ..run.folder import RunFolder
from ..run.record import Listener, Record
from ..run.rollback import Rollback
from ..run.saving import CheckpointWriter
from ..run.state import load_state
from ..samples.sums import named_results
from ..session import Session, StepResult
from .no_callbacks import NoCallbacks
from .settings import Settings, asks_metrics

if TYPE_CHECKING:
    from ...screen.summary import Summary
    from ..parameters import Parameters
    from ..samples.handed_over import HandedOver
    from .callbacks import Callbacks
    from .doubts import FirstLook
    from .loss_weights import LossWeights
    from .skipped import SkippedSteps

_STEP_HOOKS = "on_step", "on_train_batch_begin", "on_train_batch_end"  # must not call `step`


def _callbacks_of(given: Any) -> "Callbacks | NoCallbacks":
    if isinstance(given, list | tuple) and not given:
        return NoCallbacks()
    from .callbacks import Callbacks

    return Callbacks(given)


@public_api
class Learner(Uncopied):
    """The part of a Trainer that needs no dataset.

    Args:
      program, out: as in `Trainer`.
      settings: checked here.
    Attributes:
      parameters: weights by torch name, readable and writable; see `Parameters`.
      labels: class names, if known; stored in the trained model.
    """

    instead = "Call save(), then resume() with another Trainer of the same Program."

    def __init__(
        self, program: Program | str | Path, out: str | Path | RunFolder | None, settings: Settings
    ) -> None:
        settings.check(out)
        self._settings, self.program = settings, opened_program(program)
        metrics: list[str] = []
        if asks_metrics(settings.metrics):
            from .output_metrics import check_metrics

            metrics = check_metrics(settings.metrics, self.program)
        self._callbacks = _callbacks_of(settings.callbacks)
        self._callbacks.check_monitors([*metrics, *named_results(self.program)])
        self.folder = RunFolder(out) if isinstance(out, str | Path) else out
        self.session = Session(self.program, settings.threads)
        self._record = Record(self.folder, settings.on_event)
        self._emit: Listener = self._record
        limit, verify = settings.save_total_limit, settings.verify_saves
        self._checkpoints = CheckpointWriter(self.session, self.folder, limit, self._record, verify)
        self._rollback = Rollback(self.program, self.folder, self._emit)
        self.labels: tuple[str, ...] | None = None
        self._ending, self._kept, self._saved_at = "", False, time.monotonic()
        self._again = False  # save once more when this step's callbacks have been called
        self._fitting, self._owner = allocate_lock(), 0  # the thread that is in `fit`
        self._first: FirstLook | None = None
        self._before = 0, 0.0  # steps and epochs of calls of `fit` and `step` that have returned
        self._tried = -1  # step of the last attempted checkpoint
        self.rewiring = rewiring_of(self.program.recipe)
        self.total_steps = self._until = 0  # of the run; end of this `fit`
        self.schedule: Schedule = settings.schedule or Constant()
        if settings.lr is not None:
            self.session.lr = float(settings.lr)
        self._started_lr = self.lr
        self._changed: dict[str, Any] = {}  # overrides of the Program's values
        self._change(settings.changes)
        self._set_schedule(settings.total_steps or 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                self._keep(error)
        finally:
            self.close()

    @property
    def out(self) -> Path | None:
        """The run directory, or None."""
        return self.folder.path if self.folder else None

    @property
    def history(self) -> History:
        """History of the whole run: losses, evaluations and messages."""
        return self._record.history

    def summary(self) -> "Summary":
        """Print weights, their shapes, whether they are trained, and the memory of training.

        Returns:
          The table, as text and as rows.
        """
        from ...screen.summary import program_summary

        program, training = self.program, self.program.account.get("training", {})
        kinds = {
            "trained": "trained",
            "frozen": "frozen",
            "moves": "running statistic",
            "stays": "fixed statistic",
        }
        what = {n: w for k, w in kinds.items() for n in training.get(k, {}).get("names", ())}
        values = self._values(buffers=True)
        rows = [(n, s, math.prod(s), what.get(n, "")) for n, s in values.shapes().items()]
        title = (
            f"{program.model_name}: {program.recipe['optimizer']['name']}, loss "
            f"{program.recipe['loss']['name']}, step {self.steps}"
        )
        result = program_summary(title, rows, program.account)
        print(result)
        return result

    @contextlib.contextmanager
    def _showing(self, verbose: bool | None) -> Iterator[bool | None]:
        """Show events within the block, if requested."""
        verbose = self._settings.verbose if verbose is None else verbose
        if not any(levels(verbose)):
            yield False
            return
        from ...screen.python import following

        with following(verbose) as listener, self._record.with_listener(listener):
            yield verbose

    @property
    def steps(self) -> int:
        """Steps done, including skipped ones."""
        return self.session.step

    @property
    def checkpoint_nbytes(self) -> int:
        """Bytes of a checkpoint's numbers; names and shapes take some KB more."""
        return sum(array.nbytes for array in self.session.state().values())

    @property
    def save_seconds(self) -> float:
        """Longest time between checkpoints in seconds; 0: no limit."""
        return self._settings.seconds

    @property
    def lr(self) -> float:
        """Base learning rate, which the schedule multiplies; can be set at any time."""
        return self.session.lr

    @lr.setter
    def lr(self, value: float) -> None:
        lr = finite_number("trainer: lr", value, least=0)
        self.schedule.check_rates(lr)
        self.session.lr = lr

    @property
    def loss_weights(self) -> "LossWeights":
        """Weights of several losses, by output. A change takes effect at the next step, and in the
        loss that evaluations report.

        Raises:
          UsageError: a weight is below 0, or the output has no loss.
        """
        from .loss_weights import LossWeights

        return LossWeights(self.session, lambda found: self._change({"loss_weights": found}))

    def _change(self, changes: Mapping[str, Any]) -> None:
        """Override the Program's gradient clipping, loss scale and weights of losses."""
        if "max_grad_norm" in changes:
            self.session.max_grad_norm = changes["max_grad_norm"]
        if "loss_scale" in changes:
            self.session.set_loss_scale(changes["loss_scale"])
        self._changed |= changes

    def _set_schedule(self, steps: int) -> None:
        schedule = replace(self.schedule, total_steps=steps)
        if schedule.needs_total and not steps:
            self.session.set_schedule(Constant(), 0)  # `fit` sets the run's length
            return
        if schedule.needs_total and schedule.warmup_steps >= steps:
            raise UsageError(
                f"warmup_steps {schedule.warmup_steps} of {steps} steps: expected fewer."
            )
        schedule.check_rates(self.lr)
        self.total_steps, self.schedule = steps, schedule
        self.session.set_schedule(schedule, steps)

    # Learning step by step; its modules are imported on demand, since a device may not need them.

    @cached_property
    def _handed_over(self) -> "HandedOver":
        from ..samples.taker import handed_over

        return handed_over(self.session)

    @cached_property
    def _skips(self) -> "SkippedSteps":
        from .skipped import SkippedSteps

        return SkippedSteps(self.session, self.folder, self._emit)

    @property
    def parameters(self) -> "Parameters":
        """Weights by torch name, readable and writable; see `Parameters`."""
        return self._values(buffers=False)

    def _values(self, buffers: bool) -> "Parameters":
        from ..parameters import Parameters

        return Parameters(self.session, buffers=buffers)

    def step(self, x: Any, y: Any = None, weights: Any = None) -> StepResult:
        """Train one step on one or more samples, at most a minibatch.

        Loss and gradient are means over the samples.

        Args:
          x: one sample, or several [n, ...]; a dict by name if the model has several inputs.
            Arrays, lists or tensors.
          y: the targets; None if the loss takes none.
          weights: sample weights, [n].
        Raises:
          DataError: the samples do not fit the model.
          UsageError: more than a minibatch, or the schedule needs the run's length.
          RunError: too many steps in a row were skipped.
        """
        if self.schedule.needs_total and not self.total_steps:
            raise UsageError(
                f"step: a {self.schedule.name} schedule needs the run's length. Pass "
                "total_steps to Trainer, or set trainer.lr yourself."
            )
        self._check_owner("step")
        self._callbacks.check_outside("step", *_STEP_HOOKS)
        samples = self._handed_over.samples(x, y, weights)
        with self.session.turn:
            self._begin("step")
            result = self._handed_over.step(samples)
            assert result is not None
            if self._rollback.has_failed(result):
                done, lr, weights = self.steps, self.lr, self._changed.get("loss_weights")
                self._take_state(self._rollback.back(done - 1, result))
                self._restore_weights(weights)
                self.session.lr = lr
                self.session.ints[control.STEP] = done  # samples in between are lost
            elif result.skipped and not result.finite:
                self._skips.note(result, 0, self._handed_over.fed(samples))
        self._before = self._before[0] + 1, self._before[1]
        self._tell(result)
        self._look()
        if self._is_due():
            self.save()
        return result

    @contextlib.contextmanager
    def _owned(self, what: str) -> Iterator[None]:
        """Only this thread trains within the block.

        Raises:
          UsageError: another thread is training, or this one already is.
        """
        self._check_owner(what)
        self._callbacks.check_outside(what)
        if not self._fitting.acquire(False):
            raise UsageError(f"{what}: fit is already running. Wait until it returns.")
        try:
            self._owner = get_ident()
            yield
        finally:
            self._owner = 0
            self._fitting.release()

    @contextlib.contextmanager
    @public
    def rehearsing(self, what: str) -> Iterator[None]:
        """Undo the steps in the block: afterwards the state is bit-identical to before."""
        with self._owned(what):
            state = {name: array.copy() for name, array in self.session.state().items()}
            words = self.session.ints.copy()
            try:
                yield
            finally:
                with self.session.turn:
                    for name, array in self.session.state().items():
                        array[...] = state[name]
                    self.session.ints[...] = words  # the rate is needed to check the schedule
                    self._set_schedule(self.total_steps)
                    self.session.ints[...] = words

    def _check_owner(self, what: str) -> None:
        """Raise UsageError if another thread is in `fit`."""
        if self._owner not in (0, get_ident()):
            raise UsageError(
                f"{what}: fit is already running in another thread. Wait until it returns; "
                f"predict, evaluate, save and parameters still work."
            )

    def _begin(self, what: str) -> None:
        """Before the first step, save a state to go back to, if that may be needed.

        Raises:
          UsageError: there is no directory for it.
        """
        self._rollback.check(what)
        self._go_beside()
        if self._rollback.needs_first():
            self.save()
        if self.steps == 0 and any(term.loss.absorbs for term in self.session.terms):
            from .doubts import FirstLook

            self._first = FirstLook(self.session)

    def _take_state(self, loaded: Loaded) -> None:
        """Restore weights, counters and rates from a checkpoint of this run."""
        meta = loaded.meta
        load_state(self.session, loaded.tensors, str(loaded.used))
        self._rollback.astray = False
        self.history.cut(meta["step"])
        self.session.set_counters(meta["step"], meta["counters"])
        self.total_steps, self.schedule = meta["total_steps"], Schedule.of_json(meta["schedule"])
        self.session.lr = meta["lr"]
        changed = meta.get("changed", {})
        self._change({n: changed[n] for n in ("max_grad_norm", "loss_scale") if n in changed})
        self.session.set_counters(meta["step"], meta["counters"])  # a scale may have changed since
        self._restore_weights(changed.get("loss_weights"))
        self.session.set_schedule(self.schedule, self.total_steps)
        self.session.set_seen(self.schedule, meta["seen"])

    def _restore_weights(self, changed: Mapping[str, float] | None) -> None:
        """Set the weights of losses; None: the Program's."""
        self.loss_weights.restore(changed)
        if changed is None:
            self._changed.pop("loss_weights", None)

    def predict(self, x: Any) -> np.ndarray:
        """The model's output (before a final softmax) in evaluation mode, float32.

        Args:
          x: as in `step`; for a single sample without a sample axis, the output has none either.
        Raises:
          UsageError: the Program computes logits in slices.
        """
        if self.program.sliced:
            raise UsageError(
                "predict: this Program was compiled with allow slices, so its logits "
                f"{list(self.program.output_shape)} are never stored as a whole. Use best_classes, "
                "or compile without slices."
            )
        return self._handed_over.predict(x)

    def best_classes(self, x: Any) -> np.ndarray:
        """The five best classes of each position, best first, int32.

        If there are fewer classes, the rest is -1.

        Args:
          x: as in `predict`.
        Raises:
          UsageError: the Program does not compute logits in slices; use `predict`.
        """
        if not self.program.sliced:
            raise UsageError("best_classes: the Program was not compiled with slices. Use predict.")
        return self._handed_over.predict(x).astype(np.int32)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Parameters and running statistics by torch name, as float32 copies."""
        with self.session.turn:
            return dict(self._values(buffers=True))

    def load_state_dict(self, state: Any) -> None:
        """Set all parameters and running statistics; keeps the optimizer's state.

        Args:
          state: from `state_dict`, or that of the exported torch module.
        Raises:
          DataError: names or shapes do not match the model.
        """
        self._values(buffers=True).load(state)

    def _tell(self, result: StepResult) -> None:
        """Send events, call callbacks, and record skipped steps."""
        if self._emit is not self._record or self._record.wants_steps:
            total, scale = self._until or self.total_steps, self.session.loss_scale
            self._emit({
                "event": "step", "step": self.steps, "total_steps": total, "loss": result.loss,
                "lr": result.lr, "grad_norm": result.grad_norm, "loss_scale": scale,
                "skipped": result.skipped, "reason": result.reason,
            })  # fmt: skip
        if result.rewired:
            self._emit({"event": "rewire", "step": self.steps, **result.rewired})
        self._callbacks.end_step(self, result)
        self._checkpoints.count(result, self._skips.spoiled if result.skipped else "")
        if self._again:  # saved before all callbacks of this step were called
            self.save()

    def _look(self) -> None:
        """After the first step, warn if the outputs do not suit the loss."""
        if self._first is None:
            return
        first, self._first = self._first, None
        result = first.doubt()
        if result and self._record.heard:
            self._emit({"event": "warning", "message": result})
        elif result:
            warnings.warn(result, stacklevel=3)

    def stop(self, reason: str = "asked to") -> None:
        """End `fit` after the current step; for callbacks."""
        self._ending = reason

    @property
    def stop_training(self) -> bool:
        """Whether `fit` ends after the current step; can be set, as in Keras."""
        return bool(self._ending)

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        self._ending = (self._ending or "asked to") if value else ""

    # Saving and closing.

    def export_onnx(self, path: str | Path) -> Path:
        """Write the trained model as ONNX, with original names and layout.

        A loss inside the model is left out, along with inputs that only it reads (reported).

        Raises:
          RunError: a weight is not finite, or the file can't be written.
        """
        from ...program.trained import export_trained, left_out

        with self.session.turn:
            result = export_trained(self.program, self.session.state(), path, labels=self.labels)
        if gone := str(left_out(self.program)):
            self._emit({"event": "note", "message": gone})
        return result

    def export_adapter(self, directory: str | Path) -> Path:
        """Write the Program's adapters in peft format: weights and configuration.

        Raises:
          ProgramError: the Program has no adapters, or trains what peft can't save.
          RunError: a weight is not finite, or a file cannot be written.
        """
        from ...program.adapters import write_adapter

        with self.session.turn:
            return write_adapter(self.program, self.session.state(), directory)

    def save(self) -> Path | None:
        """Write a checkpoint, between minibatches.

        Returns:
          Its path; None without `out`, or if the state is not finite while steps are being
          skipped: then it only warns and keeps older checkpoints.
        Raises:
          RunError: the state is not finite, or the disk is full.
        """
        if self.folder is None:
            return None
        self._rollback.check_state("save")
        self._go_beside()
        self._tried = self.steps
        with self.session.turn, self._checkpoints.writing():
            self._keep_program()
            path = self._checkpoints.save(self._meta())
        self._saved_at = time.monotonic()
        self._again = self._callbacks.within("on_step", "on_train_batch_end")
        if path is not None and len(self._callbacks):
            before = repr(self._meta())
            self._callbacks.call("on_save", self, path)
            if repr(self._meta()) != before:  # a run resumed from here does not call it again
                self._checkpoints.save(self._meta())
        return path

    @contextlib.contextmanager
    def _kept_if_it_fails(self) -> Iterator[None]:
        """If the block raises, save the state after the last complete minibatch first."""
        try:
            yield
        except BaseException as error:
            self._keep(error)
            raise

    def _keep(self, error: BaseException) -> None:
        """Save while an exception propagates; raises nothing itself."""
        steps = self.steps
        if self.folder is None or steps in (0, self._tried, self.folder.newest):
            return
        with contextlib.suppress(Exception):
            try:
                path = self.save()
                if path is None:  # the state is not finite, as already reported
                    return
                result = f"saved in {path}."
            except Exception as failed:
                result = f"not saved: {failed}"
            message = f"step {steps}: the run ends with {type(error).__name__}; state {result}"
            if not self._checkpoints.diverged:  # else the error names a good state
                self._emit({"event": "warning", "message": message})

    def _go_beside(self) -> None:
        """If `out` contains another run, use a new directory and say so."""
        taken = self.folder.beside() if self.folder is not None else None
        if taken is not None:
            message = (
                f"{taken} already contains a run, so this one is written to {self.out}. "
                f"resume=True continues the run in {taken}."
            )
            self._emit({"event": "note", "message": message})

    def _keep_program(self) -> None:
        if self.folder is not None and not self._kept:
            self.folder.keep_program(self.program)
            self._checkpoints.write_taken()
            self._kept = True

    def _is_due(self) -> bool:
        """Whether a checkpoint is due, by steps or time."""
        every, seconds = self._settings.save_steps, self.save_seconds
        if self.out is None:
            return False
        late = bool(seconds) and time.monotonic() - self._saved_at >= seconds
        return late or bool(every and self.steps % every == 0)

    def keep_best(self) -> None:
        """Save the current state for `restore_best`, outside the checkpoints."""
        self._go_beside()
        with self.session.turn:
            self._checkpoints.keep_best()

    def restore_best(self) -> None:
        """Restore the weights saved by `keep_best`."""
        self._check_owner("restore_best")
        self._checkpoints.restore_best()

    @abstractmethod
    def _meta(self) -> dict[str, Any]:
        """Checkpoint metadata."""

    def save_stored(self, path: str | Path, program: Program | str | Path | None = None) -> None:
        """Write the state in the format of a bundle, for `NAME_load` on a device.

        Args:
          program: the bundle's Program or its path; None: this one. If it was compiled differently,
            training continues, but bits may differ.
        Raises:
          CheckpointError: the other Program has different parameters.
          UsageError: the run differs from the bundle in something that a state does not contain.
          RunError: a value is not finite, or the file cannot be written.
        """
        from ..run.stored import check_changes, write_run

        path = as_path("save_stored", path)
        bundled = self.program if program is None else opened_program(program)
        check_changes(self._meta(), self.session.max_grad_norm, self.loss_weights, bundled)
        with self.session.turn:
            self._checkpoints.check_finite()
            write_run(path, self.session, self.schedule, bundled, self._emit)

    def close(self) -> None:
        """Stop the workers."""
        self.session.close()
