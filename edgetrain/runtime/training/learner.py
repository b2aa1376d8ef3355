"""A Program that learns from samples as they come: steps, predictions, weights, checkpoints."""

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
from ...losses import Loss
from ...optim import Schedule
from ...optim.schedules import Constant
from ...program import Program
from ...screen.levels import levels
from ...sparse import rewiring_of
from ...units import finite_number
from ...units.public import Uncopied, public_api
from ..loading.program import opened_program
from ..run.checkpoint import Loaded
from ..run.folder import RunFolder
from ..run.record import Listener, Record
from ..run.rollback import Rollback
from ..run.saving import CheckpointWriter
from ..run.state import load_state
from ..samples.sums import named_results
from ..session import Session, StepResult
from .callbacks import Callbacks
from .settings import Settings

if TYPE_CHECKING:
    from ...screen.summary import Summary
    from ..parameters import Parameters
    from ..samples.handed_over import HandedOver
    from .doubts import FirstLook
    from .loss_weights import LossWeights
    from .skipped import SkippedSteps


@public_api
class Learner(Uncopied):
    """What a Trainer does without data of its own.

    Args:
      program, out: as in `Trainer`.
      settings: checked here.
    Attributes:
      parameters: weights by torch's names, to read and to write: see `Parameters`.
      labels: names of the classes, where the data has them; they go into the trained model.
    """

    instead = "save() it, and resume() with another Trainer of the same Program."

    def __init__(
        self, program: Program | str | Path, out: str | Path | RunFolder | None, settings: Settings
    ) -> None:
        settings.check(out)
        self._settings, self.program = settings, opened_program(program)
        metrics: list[str] = []
        if settings.metrics:
            from .metrics import check_metrics, check_single, names_of

            metrics = names_of(settings.metrics)
            check_single(self.program)
            loss = Loss.of_json(self.program.recipe["loss"])
            check_metrics(settings.metrics, loss, self.program)
        self._callbacks = Callbacks(settings.callbacks)
        self._callbacks.check_monitors([*metrics, *named_results(self.program)])
        self.folder = RunFolder(out) if isinstance(out, str | Path) else out
        self.session = Session(self.program, settings.threads)
        self._record = Record(self.folder, settings.on_event)
        self._emit: Listener = self._record
        limit, verify = settings.save_total_limit, settings.verify_saves
        self._checkpoints = CheckpointWriter(self.session, self.folder, limit, self._emit, verify)
        self._rollback = Rollback(self.program, self.folder, self._emit)
        self.labels: tuple[str, ...] | None = None
        self._ending, self._kept, self._saved_at = "", False, time.monotonic()
        self._fitting, self._owner = allocate_lock(), 0  # the thread that is in `fit`
        self._first: FirstLook | None = None
        self._tried = -1  # step at which a checkpoint was last begun
        self.rewiring = rewiring_of(self.program.recipe)
        self.total_steps = self._until = 0  # of the run; where this `fit` ends
        self.schedule: Schedule = settings.schedule or Constant()
        if settings.lr is not None:
            self.session.lr = float(settings.lr)
        self._started_lr = self.lr
        self._changed: dict[str, Any] = {}  # what the Program has otherwise
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
        """Directory of the run; None without one."""
        return self.folder.path if self.folder else None

    @property
    def history(self) -> History:
        """Losses by step and by epoch, evaluations and messages of the whole run."""
        return self._record.history

    def summary(self) -> "Summary":
        """Print weights with shapes, what is trained, and the memory that training takes.

        Returns:
          The table, as text and as rows.
        """
        from ...screen.summary import program_summary

        program, training = self.program, self.program.account.get("training", {})
        kinds = {"trained": "trained", "frozen": "frozen", "moves": "running statistic",
                 "stays": "fixed statistic"}  # fmt: skip
        what = {n: w for k, w in kinds.items() for n in training.get(k, {}).get("names", ())}
        values = self._values(buffers=True)
        rows = [(n, s, math.prod(s), what.get(n, "")) for n, s in values.shapes().items()]
        title = (
            f"{program.model_name}: {program.recipe['optimizer']['name']}, loss "
            f"{program.recipe['loss']['name']}, step {self.steps}"
        )
        found = program_summary(title, rows, program.account)
        print(found)
        return found

    @contextlib.contextmanager
    def _showing(self, verbose: bool | None) -> Iterator[bool | None]:
        """Within the block events are shown, if they are to be; gives what decides that."""
        verbose = self._settings.verbose if verbose is None else verbose
        if not any(levels(verbose)):
            yield False
            return
        from ...screen.python import following

        with following(verbose) as listener, self._record.with_listener(listener):
            yield verbose

    @property
    def steps(self) -> int:
        """Steps done, skipped ones included."""
        return self.session.step

    @property
    def checkpoint_nbytes(self) -> int:
        """About what a checkpoint takes: the tensors of the state."""
        return sum(array.nbytes for array in self.session.state().values())

    @property
    def save_seconds(self) -> float:
        """Seconds without a checkpoint after which one is written; 0: none is for the time."""
        return self._settings.seconds

    @property
    def lr(self) -> float:
        """The learning rate that the schedule multiplies; may be set at any time."""
        return self.session.lr

    @lr.setter
    def lr(self, value: float) -> None:
        lr = finite_number("trainer: lr", value, least=0)
        self.schedule.check_rates(lr)
        self.session.lr = lr

    @property
    def loss_weights(self) -> "LossWeights":
        """Weights of several losses by their outputs; one that is set counts from the next step on,
        and in the loss that evaluations report.

        Raises:
          UsageError: it is set below 0, or for another output.
        """
        from .loss_weights import LossWeights

        return LossWeights(self.session, lambda found: self._change({"loss_weights": found}))

    def _change(self, changes: Mapping[str, Any]) -> None:
        """Clip gradients and scale the loss otherwise than the Program says."""
        if "max_grad_norm" in changes:
            self.session.max_grad_norm = changes["max_grad_norm"]
        if "loss_scale" in changes:
            self.session.set_loss_scale(changes["loss_scale"])
        self._changed |= changes

    def _set_schedule(self, steps: int) -> None:
        schedule = replace(self.schedule, total_steps=steps)
        if schedule.needs_total and not steps:
            self.session.set_schedule(Constant(), 0)  # `fit` is to say how long the run is
            return
        if schedule.needs_total and schedule.warmup_steps >= steps:
            raise UsageError(
                f"warmup_steps {schedule.warmup_steps} of {steps} steps: expected fewer."
            )
        schedule.check_rates(self.lr)
        self.total_steps, self.schedule = steps, schedule
        self.session.set_schedule(schedule, steps)

    # Learning step by step; what it needs is imported then, a device may do without.

    @cached_property
    def _handed_over(self) -> "HandedOver":
        from ..samples.handed_over import HandedOver

        return HandedOver(self.session)

    @cached_property
    def _skips(self) -> "SkippedSteps":
        from .skipped import SkippedSteps

        return SkippedSteps(self.session, self.folder, self._emit)

    @property
    def parameters(self) -> "Parameters":
        """Weights by torch's names, to read and to write: see `Parameters`."""
        return self._values(buffers=False)

    def _values(self, buffers: bool) -> "Parameters":
        from ..parameters import Parameters

        return Parameters(self.session, buffers=buffers)

    def step(self, x: Any, y: Any = None, weights: Any = None) -> StepResult:
        """Learn from one sample or several: one step, however many they are.

        Loss and gradient are the mean over the samples given, at most a minibatch.

        Args:
          x: a sample in the model's shape, or several [n, ...]; of a model with several inputs a
            dict of them by name. Arrays, lists, tensors.
          y: as many targets; None where the loss takes none.
          weights: of the samples, [n].
        Raises:
          DataError: they are not what the model takes.
          UsageError: more than a minibatch, or a schedule that needs the run's length.
          RunError: too many steps in a row were skipped.
        """
        if self.schedule.needs_total and not self.total_steps:
            raise UsageError(
                f"step: a {self.schedule.name} schedule needs the run's length. Give Trainer "
                "total_steps, or set trainer.lr as you go."
            )
        self._check_owner("step")
        self._callbacks.check_outside("step", "on_step")
        samples = self._handed_over.samples(x, y, weights)
        with self.session.turn:
            self._begin("step")
            result = self._handed_over.step(samples)
            assert result is not None
            if self._rollback.has_failed(result):
                done = self.steps
                self._take_state(self._rollback.back(done - 1, result))
                self.session.ints[control.STEP] = done  # samples in between are gone
            elif result.skipped and not result.finite:
                self._skips.note(result, 0, self._handed_over.fed(samples))
        self._tell(result)
        self._look()
        if self._is_due():
            self.save()
        return result

    @contextlib.contextmanager
    def _owned(self, what: str) -> Iterator[None]:
        """This thread alone trains in the block.

        Raises:
          UsageError: another one does, or this one already.
        """
        self._check_owner(what)
        self._callbacks.check_outside(what)
        if not self._fitting.acquire(False):
            raise UsageError(f"{what}: this Trainer is in fit already. Wait until it has returned.")
        try:
            self._owner = get_ident()
            yield
        finally:
            self._owner = 0
            self._fitting.release()

    def _check_owner(self, what: str) -> None:
        """Raises UsageError: another thread is in `fit`, whose steps these would disturb."""
        if self._owner not in (0, get_ident()):
            raise UsageError(
                f"{what}: fit is already running in another thread. Wait until it returns; "
                f"predict, evaluate, save and parameters work meanwhile."
            )

    def _begin(self, what: str) -> None:
        """Before the first step: there is a state to go back to, where a step may have to.

        Raises:
          UsageError: there is no directory for one.
        """
        self._rollback.check(what)
        self._go_beside()
        if self._rollback.needs_first():
            self.save()
        if self.steps == 0 and any(term.loss.absorbs for term in self.session.terms):
            from .doubts import FirstLook

            self._first = FirstLook(self.session)

    def _take_state(self, loaded: Loaded) -> None:
        """Weights, counters and rates of a checkpoint of this run."""
        meta = loaded.meta
        load_state(self.session, loaded.tensors, str(loaded.used))
        self._rollback.astray = False
        self.history.cut(meta["step"])
        self.session.set_counters(meta["step"], meta["counters"])
        self.total_steps, self.schedule = meta["total_steps"], Schedule.of_json(meta["schedule"])
        self.session.lr = meta["lr"]
        if "max_grad_norm" in meta.get("changed", {}):
            self._change({"max_grad_norm": meta["changed"]["max_grad_norm"]})
        for name, weight in meta.get("changed", {}).get("loss_weights", {}).items():
            self.loss_weights[name] = weight
        self.session.set_schedule(self.schedule, self.total_steps)
        self.session.set_seen(self.schedule, meta["seen"])

    def predict(self, x: Any) -> np.ndarray:
        """The model's output (before a final softmax) in evaluation mode, float32.

        Args:
          x: as in `step`; of one sample without an axis that counts samples, the output has none.
        Raises:
          UsageError: logits are computed in slices and never whole.
        """
        if self.program.sliced:
            raise UsageError(
                "predict: this Program was compiled with allow slices: its logits "
                f"{list(self.program.output_shape)} are never whole. Use best_classes, or compile "
                "without."
            )
        return self._handed_over.predict(x)

    def best_classes(self, x: Any) -> np.ndarray:
        """The five classes of the largest logits of each position, the best first, int32.

        -1 stands behind the last of fewer classes.

        Args:
          x: as in `predict`.
        Raises:
          UsageError: logits are not computed in slices; `predict` gives all.
        """
        if not self.program.sliced:
            raise UsageError("best_classes: of Programs compiled with allow slices. Use predict.")
        return self._handed_over.predict(x).astype(np.int32)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Parameters and running statistics by torch's names: float32 copies."""
        with self.session.turn:
            return dict(self._values(buffers=True))

    def load_state_dict(self, state: Any) -> None:
        """Write all parameters and running statistics; the optimizer's state stays.

        Args:
          state: of `state_dict`, or of the torch module that was exported.
        Raises:
          DataError: names or shapes are not the model's.
        """
        self._values(buffers=True).load(state)

    def _tell(self, result: StepResult) -> None:
        """Events, callbacks and the record of skipped steps."""
        if self._emit is not self._record or self._record.wants_steps:
            self._emit({
                "event": "step", "step": self.steps, "total_steps": self._until or self.total_steps,
                "loss": result.loss, "lr": result.lr, "grad_norm": result.grad_norm,
                "loss_scale": self.session.loss_scale, "skipped": result.skipped,
                "reason": result.reason,
            })  # fmt: skip
        if result.rewired:
            self._emit({"event": "rewire", "step": self.steps, **result.rewired})
        self._callbacks.call("on_step", self, result)
        self._checkpoints.count(result)

    def _look(self) -> None:
        """After a run's first step: say so where its outputs are not what the loss takes."""
        if self._first is None:
            return
        first, self._first = self._first, None
        found = first.doubt()
        if found and self._record.heard:
            self._emit({"event": "warning", "message": found})
        elif found:
            warnings.warn(found, stacklevel=3)

    def stop(self, reason: str = "asked to") -> None:
        """End `fit` after the present step; for callbacks."""
        self._ending = reason

    # What is left behind.

    def export_onnx(self, path: str | Path) -> Path:
        """Write the trained model: original names and layout, for inference anywhere.

        Raises:
          RunError: it is not finite, or cannot be written.
        """
        from ...program.trained import export_trained

        with self.session.turn:
            return export_trained(self.program, self.session.state(), path, labels=self.labels)

    def export_adapter(self, directory: str | Path) -> Path:
        """Write the adapters of a Program that has them, for peft: weights and configuration.

        Raises:
          ProgramError: it has none.
          RunError: they are not finite, or cannot be written.
        """
        from ...program.adapters import write_adapter

        with self.session.turn:
            return write_adapter(self.program, self.session.state(), directory)

    def save(self) -> Path | None:
        """Write a checkpoint of the state between minibatches.

        Returns:
          None without `out`, and where the state is not finite amid steps that are skipped for
          it: a warning says so, and older checkpoints stay.
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
        if path is not None:
            self._callbacks.call("on_save", self, path)
        return path

    @contextlib.contextmanager
    def _kept_if_it_fails(self) -> Iterator[None]:
        """Whatever is raised in the block, the last whole minibatch's state is saved before."""
        try:
            yield
        except BaseException as error:
            self._keep(error)
            raise

    def _keep(self, error: BaseException) -> None:
        """Save on the way out of an exception, which goes on: nothing is raised in its place."""
        steps = self.steps
        if self.folder is None or steps in (0, self._tried, self.folder.newest):
            return
        with contextlib.suppress(Exception):
            try:
                path = self.save()
                if path is None:  # the state is not finite, which was said
                    return
                found = f"saved in {path}."
            except Exception as failed:
                found = f"not saved: {failed}"
            message = f"step {steps}: the run ends by {type(error).__name__}; its state is {found}"
            if not self._checkpoints.diverged:  # of such a state the error says what is of use
                self._emit({"event": "warning", "message": message})

    def _go_beside(self) -> None:
        """Leave another run in `out` alone, and say where this one goes instead."""
        taken = self.folder.beside() if self.folder is not None else None
        if taken is not None:
            message = (
                f"{taken} has a run already; this one goes to {self.out}. resume=True goes on with "
                f"the run in {taken}."
            )
            self._emit({"event": "note", "message": message})

    def _keep_program(self) -> None:
        if self.folder is not None and not self._kept:
            self.folder.keep_program(self.program)
            self._kept = True

    def _is_due(self) -> bool:
        """Whether a checkpoint is, for the steps or the time since the last one."""
        every, seconds = self._settings.save_steps, self.save_seconds
        if self.out is None:
            return False
        late = bool(seconds) and time.monotonic() - self._saved_at >= seconds
        return late or bool(every and self.steps % every == 0)

    def keep_best(self) -> None:
        """Keep the state as it is apart from the checkpoints, for `restore_best`."""
        self._go_beside()
        with self.session.turn:
            self._checkpoints.keep_best()

    def restore_best(self) -> None:
        """Go back to the weights that `keep_best` kept."""
        self._check_owner("restore_best")
        self._checkpoints.restore_best()

    @abstractmethod
    def _meta(self) -> dict[str, Any]:
        """What a checkpoint says besides the tensors."""

    def save_stored(self, path: str | Path, program: Program | str | Path | None = None) -> None:
        """Write the state as the bundle of a Program keeps it, for `NAME_load` on a device.

        Args:
          program: the bundle's, or its file; None: this one. Of another, values go on and not bits.
        Raises:
          CheckpointError: the other Program has other parameters.
          RunError: it is not finite, or cannot be written.
        """
        from ...program.stored import write_stored
        from ..run.stored import keep_schedule

        bundled = self.program if program is None else opened_program(program)
        with self.session.turn:
            self._checkpoints.check_finite()
            block = self.session.ints.copy()
            keep_schedule(block, self.schedule)
            write_stored(path, bundled, self.session.state(), block)

    def close(self) -> None:
        """End the workers."""
        self.session.close()
