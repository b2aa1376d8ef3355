"""A Program in memory, which trains one step at a time."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data.source import Source
from ..errors import DataError, ProgramError, UsageError
from ..formats import decoded
from ..kernels import control
from ..kernels.declaration.expression import forget
from ..kernels.step_loop import layout
from ..losses import Loss
from ..losses.terms import Term, terms_of_recipe
from ..optim import Schedule
from ..optim.schedules import Constant
from ..program import TARGET, WEIGHT, WEIGHTS, Program
from ..program.plan_block import control_words, sizes, strides, zeroed
from ..units.public import Uncopied, public_api
from .arena import Arena
from .fifo_lock import FifoLock
from .loading.mapping import first_values
from .loading.patterns import check_instructions, check_pattern, sparse_layers
from .loading.program import opened_program
from .samples.other_outputs import OtherOutputs
from .samples.sample_callback import Filler, SampleCallback, Staging, fields
from .samples.staging import stage
from .samples.sums import Sums

if TYPE_CHECKING:
    from .executor import Executor
    from .samples.lengths import Lengths

# Why no target of a minibatch counts.
IGNORED, ALL_ZERO = "all targets ignored", "all weights 0"
NEITHER = "all targets ignored or with weight 0"


def uncounted(loss: Loss) -> str:
    """Why no target counted."""
    if loss.sample_weights:
        return NEITHER if "ignore_index" in loss.to_json() else ALL_ZERO
    return IGNORED


class StepResult(NamedTuple):
    """Result of one minibatch.

    Attributes:
      loss: mean over the targets that are not ignored; NaN if all are.
      grad_norm: norm of the mean gradient, before clipping.
      skipped: weights and running statistics were not updated.
      finite: all gradients and statistics are finite; if not, `grad_norm` is NaN.
      counted: targets that are not ignored; if 0, the step is skipped.
      lr: learning rate of the step.
      rewired: result of `Session.rewire`, if it ran after this step.
      uncounted: why no target counted; "" if some did.
    """

    loss: float
    grad_norm: float
    skipped: bool
    finite: bool
    counted: int
    lr: float
    rewired: dict[str, float] | None = None
    uncounted: str = ""

    @property
    def reason(self) -> str | None:
        """Why the step was skipped; None if it was not."""
        if not self.skipped:
            return None
        return "gradients not finite" if self.counted else self.uncounted


class _Opened(NamedTuple):
    """A tape set in the arena, with its staging buffers.

    Attributes:
      tables: workspace strides by kernel; (address, bytes) of values that are zeroed after a
        discarded minibatch.
    """

    program: Program
    executor: "Executor"
    staging: dict[str, dict[str, np.ndarray]]
    outputs: list[np.ndarray]
    sample_callback: SampleCallback
    tables: tuple[np.ndarray, np.ndarray]


def _lengths(program: Program) -> "Lengths | None":
    """The object that fits samples to the Program's lengths; None for a single length."""
    if not program.lengths:
        return None
    from .samples.lengths import Lengths

    return Lengths(program)


def seen_words(schedule: Schedule) -> dict[str, int]:
    """State words of a schedule by name; a schedule with state also has the last loss."""
    words = {name: control.SEEN + k for k, name in enumerate(schedule.seen)}
    return words | {"last_loss": control.LAST_LOSS} if words else {}


@public_api
class Session(Uncopied):
    """Arena, executor and control block of one Program.

    Several threads may use a session: calls wait for earlier calls of other threads. Wrap several
    related calls, or reads of `values` or `state`, in `with session.turn`.

    Args:
      sets: the same Program with other tape sets, for `change`; the arena is large enough for
        all of them. Those of its lengths are always open.
    Attributes:
      program: the Program with the current tape set.
      lengths: fits samples to the lengths of a Program that was compiled for several, else None.
      turn: lock of the thread that uses the arena.
    """

    def __repr__(self) -> str:
        return f"Session({self.program!r})"

    def __init__(
        self, program: Program, threads: int | None = None, *, sets: Sequence[Program] = ()
    ) -> None:
        self.program = program = opened_program(program)
        self.lengths = _lengths(program)
        sets = [*sets, *(self.lengths.programs.values() if self.lengths else ())]
        self.arena = Arena(max(part.arena_nbytes for part in (program, *sets)))
        self.values = first_values(self.arena, program)
        self.ints, self.reals = self.values["ctl"], self.values["ctl"].view(np.float64)
        self.layers = sparse_layers(program)
        check_pattern(self.layers, self.values, program.model_name, ProgramError)
        first = self._opened(program, threads, None)
        self._sets = {program.key: first}
        for part in sets:
            if part.key not in self._sets:
                self._sets[part.key] = self._opened(part, threads, first.executor)
        self.turn, self._driving = FifoLock(first.executor.signals), False
        begin = control_words(program)
        self.ints[[*begin]] = [*begin.values()]
        self._train, self._evaluate = first.executor.entries("drive_train", "drive_evaluate")
        self._plan = np.zeros(layout.WORDS, np.int64)
        self._plan_address = self._plan.ctypes.data
        self._enter(first)
        self._max_grad_norm = float(program.recipe.get("max_grad_norm", 0.0))
        self.terms = self._judge()
        self.loss = self.terms[0].loss
        self._uncounted = uncounted(self.loss)
        self.set_schedule(Constant(), 0)
        forget()

    def _opened(self, program: Program, threads: int | None, beside: "Executor | None") -> _Opened:
        """Check a tape set and prepare it to run in the arena."""
        # Import the modules for machine code only when something will run.
        from .executor import Executor

        executor = Executor(program, self.arena, threads, beside)
        check_instructions(program, self.layers)
        staging = {
            tape: {name: self.arena.view(s) for name, s in program.staged(tape).items()}
            for tape in ("micro", "eval")
        }
        outputs = [self.arena.view(s) for s in program.outputs["eval"]]
        callback = SampleCallback(program.microbatch, executor)
        zeroes = [(self.arena.address + offset, nbytes) for offset, nbytes in zeroed(program)]
        tables = np.array(strides(program), np.int64), np.array(zeroes, np.int64).reshape(-1, 2)
        return _Opened(program, executor, staging, outputs, callback, tables)

    def change(self, program: Program) -> None:
        """Switch to another tape set; keeps weights, state and counters.

        Args:
          program: one of `sets`, or the Program this session was opened with.
        Raises:
          UsageError: unknown length, or a minibatch is running.
        """
        with self.turn:
            self._check_idle("changed")
            result = self._sets.get(program.key)
            if result is None:
                known = "; ".join(item.program.label for item in self._sets.values())
                raise UsageError(
                    f"session: the tape set for {program.label} is not open; open are "
                    f"{known}. Add it to `sets` when opening the session."
                )
            if result.program is self.program:
                return
            constants = {s.name: s for s in result.program.persistent if s.role == "constant"}
            weights = self.sums().weights if self.joined else None
            self.values |= {name: self.arena.view(slot) for name, slot in constants.items()}
            for name in constants.keys() & result.program.init.keys():
                self.values[name][...] = result.program.init[name]
            if weights is not None:  # a run may have changed them
                self.values[WEIGHTS][...] = weights
            self._enter(result)

    def _enter(self, found: _Opened) -> None:
        """Make the step loop use a tape set (kernels/step_loop/layout.py)."""
        self.program, self.executor, self._staging, self._outputs, callback, tables = found
        self.sample_callback, executor, (strided, zeroes) = callback, self.executor, tables
        words = sizes(self.program) | {
            layout.CTL: self.ints.ctypes.data,
            layout.RUN_TAPE: executor.team.run_tape,
            layout.RUN: executor.team.run,
            layout.MICRO: executor.operands("micro"),
            layout.UPDATE: executor.operands("update"),
            layout.REWIRE: executor.operands("rewire"),
            layout.EVAL: executor.operands("eval"),
            layout.STRIDES: strided.ctypes.data,
            layout.SOURCE: layout.FROM_MICROBATCHES,
            layout.FILL: self.sample_callback.address,
            layout.INDICES: self.sample_callback.indices.ctypes.data,
            layout.ZERO: zeroes.ctypes.data,
            layout.ZEROS: len(zeroes),
        }
        self._plan[[*words]] = [*words.values()]

    def _judge(self) -> tuple[Term, ...]:
        """The losses.

        Raises:
          ProgramError: an output's shape does not fit its loss.
        """
        terms, program = terms_of_recipe(self.program.recipe, TARGET), self.program
        for term in terms:
            try:
                term.loss.limit(program.shape_of(term.output))
            except UsageError as error:
                raise ProgramError(
                    f"Program {program.model_name}: the output's shape does not fit the loss "
                    f"{term.loss.name}: {error} Compile the model again."
                ) from error
        return terms

    @property
    def joined(self) -> bool:
        """Whether there are several losses, or one with a weight."""
        return WEIGHTS in self.values

    def buffers(self, tape: str) -> dict[str, np.ndarray]:
        """Staging buffers of a microbatch: inputs by name, and TARGET."""
        return self._staging[tape]

    @property
    def tally(self) -> tuple[int, int]:
        """Counted targets and correct predictions since the last reset."""
        return int(self.ints[control.TARGETS]), int(self.ints[control.CORRECT])

    @property
    def output(self) -> np.ndarray:
        """The model's output for a microbatch; valid until the next tape runs."""
        return decoded(self._outputs[0])

    @property
    def outputs(self) -> dict[str | None, np.ndarray]:
        """The outputs with losses, by name (None: the model's first); valid as long as `output`."""
        result = map(decoded, self._outputs)
        return dict(zip(self.program.output_names, result, strict=True))

    @property
    def is_mean(self) -> bool:
        """Whether the model's output is one number per microbatch."""
        return not self._outputs[0].ndim

    @property
    def step(self) -> int:
        """Minibatches done, including skipped ones."""
        return int(self.ints[control.STEP])

    @property
    def bad_steps(self) -> int:
        """Number of latest steps in a row that updated no weight."""
        return int(self.ints[control.BAD_STEPS])

    @property
    def loss_scale(self) -> float:
        """Loss scale of the next step."""
        return float(self.reals[control.LOSS_SCALE])

    def counters(self) -> dict[str, Any]:
        """Persistent counters by name (see `control.SAVED`)."""
        return control.counted(self.ints, self.reals)

    def set_counters(self, step: int, counters: Mapping[str, Any]) -> None:
        """Continue from `step` (counted from 0) with the `counters` of that step."""
        with self.turn:
            self.ints[control.STEP] = step
            for name, word in control.SAVED.items():
                self.ints[word] = counters[name]
            for name, word in control.SAVED_EXPONENTS.items():
                self.ints[word] = counters.get(name, 0)
            for name, word in control.SAVED_REALS.items():
                self.reals[word] = counters[name]
            self.ints[control.STATE_PEAKS] = 0  # a failed step may have left some

    @property
    def divisor(self) -> float:
        """Divisor of loss and gradients: the sum of target weights so far."""
        return float(self.reals[control.WEIGHT]) or max(1, int(self.ints[control.TARGETS]))

    def seen(self, schedule: Schedule) -> dict[str, float | None]:
        """State of the schedule by name; None if a number is not finite."""
        result = {name: float(self.reals[word]) for name, word in seen_words(schedule).items()}
        return {name: value if math.isfinite(value) else None for name, value in result.items()}

    def set_seen(self, schedule: Schedule, seen: Mapping[str, float | None]) -> None:
        """Restore what `seen` returned."""
        for name, word in seen_words(schedule).items():
            value = seen[name]
            self.reals[word] = math.nan if value is None else value

    def staging(self, source: Source, tape: str) -> Staging:
        """Copies a source's samples into the arena.

        Raises:
          DataError: the source's fields do not match the model's inputs.
          ProgramError: training and evaluation tapes have different inputs.
        """
        chosen = fields(source, self.program, tape, self.terms)
        if not self._staging[tape].keys() >= set(chosen.values()):
            raise ProgramError(
                f"Program {self.program.model_name}: tape {tape} has inputs "
                f"{[*self._staging[tape]]}; expected {[*chosen.values()]}. Compile the model again."
            )
        out = {field: self._staging[tape][name] for field, name in chosen.items()}
        source.adapt({field: buffer.shape[1:] for field, buffer in out.items()})
        source.check_layout(out)
        for field, name in chosen.items():
            if name.startswith(TARGET) and field != "y":  # target bytes are not pixels
                source.scale.pop(field, None)
        return Staging(source, out, self._staging[tape].get(WEIGHT))

    def limits(self, source: Source) -> dict[str, int]:
        """Upper bounds of the source's integer fields."""
        chosen = fields(source, self.program, terms=self.terms)
        limits = self.program.limits
        return {field: limits[name] for field, name in chosen.items() if name in limits}

    def ignored(self, source: Source) -> dict[str, int]:
        """Ignored values of the source's fields, except the loss's target; limits don't apply to
        them."""
        chosen = fields(source, self.program, terms=self.terms).items()
        result = {field: self.program.ignored_of(name) for field, name in chosen if field != "y"}
        return {field: value for field, value in result.items() if value is not None}

    @property
    def lr(self) -> float:
        """Base learning rate, which the schedule multiplies (default: the optimizer's)."""
        return float(self.reals[control.BASE_LR])

    @lr.setter
    def lr(self, value: float) -> None:
        self.executor.check_process()
        self.reals[control.BASE_LR] = value

    @property
    def max_grad_norm(self) -> float:
        """Gradients are clipped to this norm; 0: no clipping (default: the Program's).

        Raises:
          UsageError: the Program has fused updates, so gradients can't be clipped.
        """
        return self._max_grad_norm

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        if self.program.recipe.get("fused_update"):
            raise UsageError(
                "max_grad_norm: this Program was compiled with fused_update, so gradients can't be "
                "clipped. Leave max_grad_norm out, or compile without fused_update."
            )
        with self.turn:
            self._check_idle("changed")
            for item in self._sets.values():
                item.executor.put("update", "grad_finish", "max_norm", value)
            self._max_grad_norm = value

    def set_loss_scale(self, value: float) -> None:
        """Set the loss scale; in fp16 it continues to adapt."""
        with self.turn:
            self.reals[control.LOSS_SCALE] = value

    def set_schedule(self, schedule: Schedule, total_steps: int) -> None:
        """Set the schedule for all further minibatches.

        Args:
          total_steps: length of the whole run; rewirings depend on it too.
        """
        with self.turn:
            self.ints[control.TOTAL_STEPS] = total_steps
            self.ints[control.WARMUP] = schedule.warmup_steps
            numbers = schedule.numbers()
            self.reals[control.RATE : control.RATE + len(numbers)] = numbers
            operands = {"ctl": self.program.slot("ctl").offset}
            calls = [(call.kernel, {**call.args, **operands}) for call in schedule.calls()]
            self._plan[layout.RATE] = self.executor.add("rate", calls)

    def minibatch(self, samples: int, filler: Filler) -> StepResult | None:
        """Run the next minibatch: all microbatches, one update, and rewiring if due.

        Args:
          samples: number of training samples; each pass has another order.
          filler: called with the sample indices of a microbatch, int64 [microbatch]; fills the
            staging buffers, or returns False to discard the minibatch.
        Returns:
          None if the minibatch was discarded: its gradients are zeroed, as when `filler` raises,
          and nothing else changes.
        """
        with self.turn:
            self._check_idle("called")
            self._plan[layout.SAMPLES] = samples
            if self._run(self._train, filler, 1):
                return None
            count, norm = int(self.ints[control.TARGETS]), float(self.reals[control.GRAD_NORM])
            return StepResult(
                loss=float(self.reals[control.LAST_LOSS]) if count else math.nan,
                grad_norm=norm,
                skipped=bool(self.ints[control.SKIP]),
                finite=math.isfinite(norm),
                counted=count,
                lr=float(self.reals[control.LR]),
                rewired=self._rewired() if self.ints[control.REWIRE_DUE] else None,
                uncounted="" if count else self._uncounted,
            )

    def partial_minibatch(
        self, count: int, filler: Callable[[int, int], bool | None]
    ) -> StepResult | None:
        """Run a step of `count` staged samples, at most a minibatch.

        Args:
          filler: called with the first sample of a microbatch and the number of samples that count;
            fills all staging buffers, or returns False to discard the step.
        Returns:
          Like `minibatch`.
        """
        each = self.program.microbatch
        whole = -(-count // each) * each
        starts = iter(range(0, count, each))

        def part(indices: np.ndarray) -> bool | None:
            start = next(starts)
            valid = min(each, count - start)
            self.ints[control.COUNT] = valid
            return filler(start, valid)

        with self.turn:
            self._check_idle("called")
            self._plan[layout.MINIBATCH] = whole
            try:
                return self.minibatch(whole, part)
            finally:
                self._plan[layout.MINIBATCH] = self.program.minibatch

    def _run(self, entry: int, filler: Filler, *operands: int) -> int:
        """Call one of the step loop's kernels; returns its status."""
        plan = self._plan_address
        self._driving = True
        try:
            self.sample_callback.run(lambda: self.executor.call(entry, plan, *operands), filler)
        finally:
            self._driving = False
        return int(self._plan[layout.STATUS])

    def _check_idle(self, what: str) -> None:
        """Raise UsageError if a filler is running: sums and staging buffers are in use."""
        if self._driving:
            raise UsageError(
                f"session: {what} was called by the data while it returns samples. Train, "
                "evaluate, predict and close between minibatches, for example in a callback."
            )

    def _rewired(self) -> dict[str, float]:
        """Results of the last rewiring: nonzeros moved, and the next threshold."""
        from ..formats.csr import PRUNED, TABLE, THRESHOLD

        table = self.values[TABLE]
        threshold = float(table.view(np.float64)[THRESHOLD])
        return {"dropped": int(table[PRUNED]), "threshold": threshold}

    def rewire(self) -> dict[str, float]:
        """Rewire the sparse weights now, between two minibatches.

        Returns:
          dropped: nonzeros moved.
          threshold: threshold of the next rewiring.
        """
        with self.turn:
            self._check_idle("called")
            self.executor.run("rewire")
            return self._rewired()

    def evaluate(self, samples: int, filler: Filler) -> dict[str, float]:
        """Mean loss and accuracy; NaN if all targets are ignored.

        Args:
          samples: number of samples, in order; a loss over a whole microbatch leaves a partial one
            out.
          filler: as in `minibatch`; padding of the last microbatch does not count.
        Raises:
          DataError: there are fewer samples than a microbatch, and the loss needs a whole one.
        """
        together = self.is_mean or "mixed_by" in self.program.account
        if together and (rest := samples % self.program.microbatch):
            if samples < self.program.microbatch:
                raise DataError(
                    f"evaluate: {samples} samples; the model evaluates "
                    f"{self.program.microbatch} at a time. Pass at least as many."
                )
            samples -= rest  # padding would affect the loss of the others
        with self.turn:
            self._check_idle("called")
            self._plan[[layout.EVAL_SAMPLES, layout.PREDICTIONS]] = samples, 0
            self._run(self._evaluate, filler)
            result = self.sums().results()
            return {"loss": result.pop("loss"), "samples": samples, **result}

    def sums(self) -> Sums:
        """What the losses have counted since the last reset."""
        return Sums.of(self.terms, self.ints, self.values.get(WEIGHTS))

    def predict(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The first of `predictions`."""
        return next(iter(self.predictions(inputs).values()))

    def predictions(self, inputs: Mapping[str, np.ndarray]) -> dict[str | None, np.ndarray]:
        """The outputs with losses, by name (None: the model's first), before a final softmax, in
        evaluation mode, float32 [n, ...].

        Args:
          inputs: arrays by name, samples along axis 0 regardless of the file's layout.
        Raises:
          DataError: inputs are missing, have wrong shapes or lengths, or are out of range.
        """
        inputs = {name: np.atleast_1d(array) for name, array in inputs.items()}
        sizes = {name: len(array) for name, array in inputs.items()}
        size = next(iter(sizes.values()), 0)
        expected = {*self.program.input_names}
        if sizes.keys() != expected or not size or {*sizes.values()} != {size}:
            found = ", ".join(f"{name} {n}" for name, n in sizes.items()) or "none"
            raise DataError(
                f"predict: samples per input: {found}; expected inputs "
                f"{', '.join(sorted(expected))} with the same number of samples, at least 1."
            )
        mixed = self.program.account.get("mixed_by")
        if size % self.program.microbatch and mixed and mixed != self.loss.joins_samples:
            raise DataError(
                f"predict: {size} samples; {mixed}, so they are evaluated "
                f"{self.program.microbatch} at a time. Pass a multiple of that."
            )
        value = self._outputs[0]
        if problem := self.program.unpredicted:
            raise DataError(problem)
        out = np.empty((size, *value.shape[1:]), np.float32)
        buffers, others = self._staging["eval"], OtherOutputs(self._outputs[1:], size)

        def filler(indices: np.ndarray) -> None:
            others.begin(len(indices))
            for name, array in inputs.items():
                stage(self.program, name, buffers[name], np.asarray(array)[indices])
            for name in buffers.keys() - inputs.keys():
                buffers[name][...] = 1 if name == WEIGHT else 0

        words = {
            layout.EVAL_SAMPLES: size,
            layout.OUTPUT: value.ctypes.data,
            layout.OUTPUT_TYPE: layout.TYPES.index(self.program.outputs["eval"][0].dtype),
            layout.OUTPUT_SIZE: value[0].size,
            layout.PREDICTIONS: out.ctypes.data,
        }
        with self.turn:
            self._check_idle("called")
            self._plan[[*words]] = [*words.values()]
            self._run(self._evaluate, filler)
            others.begin(0)
            whole = [out, *others.arrays]
            return dict(zip(self.program.output_names, whole, strict=True))

    def state(self) -> dict[str, np.ndarray]:
        """Arrays of a checkpoint, as views of the arena."""
        return {slot.name: self.values[slot.name] for slot in self.program.saved}

    def close(self) -> None:
        """Stop the worker threads after pending calls; can be called twice."""
        if self.executor.is_forked:
            return  # a thread that doesn't exist here may have the turn
        with self.turn:
            self._check_idle("closed")
            self.executor.close()
