"""A Program in memory: arena filled with initial values, staging bytes, one step at a time."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..data.source import Source
from ..errors import DataError, ProgramError
from ..formats.csr import POOL, PRUNED, TABLE, THRESHOLD
from ..kernels import control
from ..program import Program
from .arena import Arena, views
from .executor import Executor
from .patterns import check_instructions, check_pattern, sparse_layers
from .staging import TARGET, stage

SAVED_ROLES = ("parameter", "buffer", "index", "state")


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one minibatch gave.

    Attributes:
      loss: mean over the targets that count; NaN where none does.
      grad_norm: of the mean gradient, before clipping.
      skipped: the update was not applied, running statistics did not move.
      finite: no gradient and no staged statistic overflowed; `grad_norm` is NaN where one did.
      counted: targets that are not ignored; 0 is a reason to skip of its own.
    """

    loss: float
    grad_norm: float
    skipped: bool
    finite: bool
    counted: int

    @property
    def reason(self) -> str | None:
        """Why the step was skipped; None where it was not."""
        if not self.skipped:
            return None
        return "gradients not finite" if self.counted else "all targets ignored"


class Session:
    """Arena, executor and control block of one Program."""

    def __init__(self, program: Program, threads: int | None = None) -> None:
        self.program = program
        self.arena = Arena(program.arena_nbytes)
        self.values = views(self.arena, program)
        for name, array in program.init.items():
            self.values[name][...] = array
        control_block = self.values["ctl"]
        self.ints, self.reals = control_block, control_block.view(np.float64)
        self.layers = sparse_layers(program)
        check_pattern(self.layers, self.values, program.model_name, ProgramError)
        self.executor = Executor(program, self.arena, threads)
        check_instructions(program, self.layers)
        self._staging = {
            tape: {s.name: self.arena.view(s) for s in program.inputs[tape]}
            | {TARGET: self.arena.view(program.targets[tape])}
            for tape in ("micro", "eval")
        }
        self._outputs = [self.arena.view(s) for s in program.outputs["eval"]]
        self.ints[control.SEED] = int(program.recipe["seed"])
        self.reals[control.LOSS_SCALE] = 1.0
        self.reals[control.BIAS1] = self.reals[control.BIAS2] = 0.0  # 1 - beta^0

    def staging(self, source: Source, tape: str) -> dict[str, np.ndarray]:
        """Source field -> bytes in the arena that it fills.

        Raises:
          DataError: the source has not the fields that the model needs, or another layout.
        """
        buffers = self._staging[tape]
        names = [name for name in buffers if name != TARGET]
        fields = [name for name in source.fields if name != "y"]
        if len(names) == len(fields) == 1:
            chosen = {fields[0]: buffers[names[0]]}
        elif set(names) == set(fields):
            chosen = {name: buffers[name] for name in names}
        else:
            raise DataError(
                f"{source.name}: its inputs are {', '.join(fields) or 'none'}; the model's are "
                f"{', '.join(names)}. Use data with fields of these names."
            )
        if "y" not in source.fields:
            raise DataError(f"{source.name}: it has no target field 'y'.")
        out = chosen | {"y": buffers[TARGET]}
        source.check_layout(out)
        return out

    def limits(self, source: Source) -> dict[str, int]:
        """Upper bounds of the source's integer fields."""
        limits = dict(self.program.limits)
        fields = [name for name in source.fields if name != "y"]
        out = {}
        for name, limit in limits.items():
            if name == TARGET:
                out["y"] = limit
            else:
                out[name if name in source.fields else fields[0]] = limit
        return out

    def train_step(
        self,
        step: int,
        lr: float,
        loss_scale: float,
        fills: Iterable,
    ) -> StepResult | None:
        """One minibatch: accumulate every microbatch, update once.

        Args:
          fills: yields once for each microbatch after the staging bytes are filled; yields False
            to discard the minibatch.
        Returns:
          None where the minibatch was discarded: its gradients are zeroed, as they are where
          `fills` raises. Running statistics move in the update, so they are what they were.
        """
        self.executor.check_process()
        ints, reals = self.ints, self.reals
        ints[control.STEP], reals[control.LR] = step, lr
        reals[control.LOSS_SCALE] = loss_scale
        reals[control.NOMINAL] = self.program.minibatch * self.program.target_count
        self._reset(self.program.microbatch)
        if not self._accumulate(fills):
            return None
        count, total = int(ints[control.TARGETS]), float(reals[control.LOSS_SUM])
        self.executor.run("update")
        norm = float(reals[control.GRAD_NORM])
        skipped = bool(ints[control.SKIP])
        loss = total / count if count else math.nan
        return StepResult(loss, norm, skipped, bool(np.isfinite(norm)), count)

    def _accumulate(self, fills: Iterable) -> bool:
        """Run every microbatch; where that is cut short, no gradient is left behind."""
        done = False
        try:
            for number, filled in enumerate(fills):
                if filled is False:
                    return False
                self.ints[control.MICROBATCH] = number
                self.executor.run("micro")
            done = True
        finally:
            if not done:
                for slot in self.program.persistent:
                    if slot.role == "accumulator":
                        self.values[slot.name][...] = 0
        return True

    def _reset(self, count: int) -> None:
        self.ints[control.COUNT] = count
        self.ints[control.TARGETS] = self.ints[control.CORRECT] = 0
        self.reals[control.LOSS_SUM] = 0.0

    def rewire(self, keep_state: bool = False) -> dict[str, float]:
        """Drop and grow nonzeros of the sparse weights, between two minibatches.

        Args:
          keep_state: weights that stay keep their optimizer state; else all of it is reset.
        Returns:
          dropped: nonzeros that moved; threshold: of the next rewiring.
        """
        self.executor.run("rewire")
        for slot in self.program.persistent:
            if slot.role == "state" and slot.name.startswith(POOL) and not keep_state:
                self.values[slot.name][...] = 0
        table = self.values[TABLE]
        threshold = float(table.view(np.float64)[THRESHOLD])
        return {"dropped": int(table[PRUNED]), "threshold": threshold}

    def evaluate(self, batches: Iterable[int]) -> dict[str, float]:
        """Mean loss and accuracy; NaN where every target is ignored.

        Args:
          batches: yields the number of samples that count, after the staging bytes are filled.
        """
        self.executor.check_process()
        self._reset(0)
        samples = 0
        for valid in batches:
            self.ints[control.COUNT] = valid
            samples += valid
            self.executor.run("eval")
        count = int(self.ints[control.TARGETS]) or math.nan
        out = {"loss": float(self.reals[control.LOSS_SUM]) / count, "samples": samples}
        if self.program.recipe["loss"]["kind"] == "cross_entropy":
            out["accuracy"] = int(self.ints[control.CORRECT]) / count
        return out

    def predict(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The model's output (before a final softmax) in evaluation mode, float32 [n, ...].

        Raises:
          DataError: inputs are missing, of other shapes or lengths, or out of range.
        """
        inputs = {name: np.atleast_1d(array) for name, array in inputs.items()}
        sizes = {name: len(array) for name, array in inputs.items()}
        size = next(iter(sizes.values()), 0)
        expected = self._staging["eval"].keys() - {TARGET}
        if sizes.keys() != expected or not size or {*sizes.values()} != {size}:
            found = ", ".join(f"{name} {n}" for name, n in sizes.items()) or "none"
            raise DataError(
                f"predict: samples per input: {found}; expected the inputs "
                f"{', '.join(sorted(expected))}, one sample or more, as many for each."
            )
        m = self.program.microbatch
        parts = []
        self.executor.check_process()
        self._reset(0)
        for start in range(0, size, m):
            valid = min(m, size - start)
            for name, array in inputs.items():
                buffer = self._staging["eval"][name]
                stage(self.program, name, buffer[:valid], array[start : start + valid])
                buffer[valid:] = 0
            self._staging["eval"][TARGET][...] = 0
            self.executor.run("eval")
            parts.append(self._outputs[0][:valid].astype(np.float32))
        return np.concatenate(parts)

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds, on the arena's own bytes."""
        return {
            s.name: self.values[s.name] for s in self.program.persistent if s.role in SAVED_ROLES
        }

    def close(self) -> None:
        """End the workers."""
        self.executor.close()
