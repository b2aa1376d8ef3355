"""ONNX Runtime's `Module`: a call returns the loss and accumulates gradients."""

import os
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..api import gradients as gradients_of
from ..errors import CheckpointError, UsageError
from ..kernels import control
from ..program import TARGET, Program
from ..program.trained import names_in_file, outputs_in_file
from ..runtime.run.state import load_state
from ..runtime.samples.handed_over import HandedOver, Samples
from ..runtime.training.evaluation import evaluate_batches
from ..runtime.training.trainer import Trainer
from ..units.memory_options import ROWS
from ..units.public import as_path, public_api
from ..units.wording import counted
from .state import EVALUATED, MODEL, UPDATED, CheckpointState


class Buffer(np.ndarray):
    """An array with the interface of an OrtValue."""

    def numpy(self) -> np.ndarray:
        """The array."""
        return np.asarray(self)


@public_api
class Module:
    """A Program that is called with inputs and targets.

    In training mode, calls accumulate gradients until `lazy_reset_grad` or an optimizer step. In
    evaluation mode, a call returns the loss and the outputs requested from `generate_artifacts`.

    Args:
      train_model_uri: path of `training_model.onnx` in the artifact directory, or of the .edge file
        itself.
      state: returned by `CheckpointState.load_checkpoint`.
      eval_model_uri: accepted and ignored; evaluation is part of the Program.
      device: cpu.
    Attributes:
      training: whether calls train.
    """

    def __init__(
        self,
        train_model_uri: str | PathLike,
        state: CheckpointState,
        eval_model_uri: str | PathLike | None = None,
        device: str = "cpu",
    ) -> None:
        if device != "cpu":
            raise UsageError(f"device {device!r}: expected 'cpu'.")
        if not isinstance(state, CheckpointState):
            raise UsageError(
                f"state {repr(state)[:60]}: expected the result of CheckpointState.load_checkpoint."
            )
        self._path, self.training = program_of(train_model_uri), True
        if eval_model_uri is not None and program_of(eval_model_uri) != self._path:
            raise UsageError(f"eval_model_uri {eval_model_uri}: of other artifacts. Leave it out.")
        self.trainer = Trainer(self._path)
        self.program, self.session = self.trainer.program, self.trainer.session
        if self.trainer.rewiring:
            raise UsageError(
                "Module: rewiring needs the run's length, which is unknown here. Pass "
                "rewiring='none' to generate_artifacts."
            )
        if problem := _without_gradients(self.program):
            raise UsageError(
                f"Module: {problem}, but calls must accumulate gradients. Leave it out in "
                "generate_artifacts."
            )
        self._handed_over, self._calls = HandedOver(self.session), 0
        self._counted = 0
        self._outputs = tuple(state.meta.get("outputs", ()))
        self.trained = frozenset(self.program.account["training"]["trained"]["names"])
        result = {
            name: index for index, name in reversed([*enumerate(names_in_file(self.program))])
        }
        own = [*self.trainer.parameters]
        self.names = tuple(sorted(own, key=lambda name: result.get(name, len(result))))
        self._restore(state)
        state.module = self

    def train(self, mode: bool = True) -> "Module":
        """Switch to training mode."""
        self.training = bool(mode)
        return self

    def eval(self) -> "Module":
        """Switch to evaluation mode."""
        return self.train(False)

    def input_names(self) -> list[str]:
        """The model's inputs in order, then the target if the loss takes one."""
        return [*self.program.input_names, *["target"] * self.session.loss.takes_target]

    def output_names(self) -> list[str]:
        """The loss, then the other outputs that a call returns."""
        return ["loss", *self._outputs]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run one batch of any number of samples.

        Args:
          inputs: arrays, or objects with a numpy() method, in the order of `input_names`; or all by
            name.
        Returns:
          The mean loss, a float32 scalar. With additional outputs, a tuple of the loss and these
          outputs, which are computed in evaluation mode, before the weights change.
        """
        samples = self._samples(self._ordered(inputs, named))
        more = [self._output(samples)] if self._outputs else []
        if self.training:
            loss = self._learn(samples)
        else:
            loss = evaluate_batches(self.session, [samples])["loss"]
        scalar = np.float32(loss)
        return (scalar, *more) if more else scalar

    def lazy_reset_grad(self) -> None:
        """Discard the accumulated gradients."""
        if self._calls:
            for slot in self.program.persistent:
                if slot.role == "accumulator":
                    self.session.values[slot.name].reshape(-1).view(np.uint8)[...] = 0
        self._calls = self._counted = 0

    def update(self, lr: float) -> None:
        """Apply the gradients; called by `Optimizer.step`.

        Raises:
          UsageError: there are no gradients.
        """
        if not self._calls:
            raise UsageError(
                "optimizer.step: no gradients. Call the module in training mode first."
            )
        ints, reals = self.session.ints, self.session.reals
        ints[control.TARGETS], reals[control.WEIGHT] = self._counted, 0.0
        reals[control.NOMINAL] = max(1, self._counted)  # gradients are already sums of means
        self.session.lr = reals[control.LR] = lr
        self.session.executor.run("update")
        ints[control.STEP] += 1
        self._calls = self._counted = 0

    def gradients(self) -> dict[str, np.ndarray]:
        """Accumulated gradients by name; empty if there are none."""
        if not self._calls:
            return {}
        ints, reals = self.session.ints, self.session.reals
        ints[control.TARGETS], reals[control.WEIGHT] = self._counted, 0.0
        reals[control.NOMINAL] = max(1, self._counted)
        return gradients_of(self.session)

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """Number of elements in all parameters, or in the trained ones only."""
        return sum(self.trainer.parameters[name].size for name in self._chosen(trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = False) -> Buffer:
        """The parameters as one float32 array, in the order of the ONNX file."""
        chosen = self._chosen(trainable_only)
        parts = [self.trainer.parameters[name].reshape(-1) for name in chosen]
        return np.concatenate([np.empty(0, np.float32), *parts]).view(Buffer)

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Write the result of `get_contiguous_parameters`, or another array of that size, back.

        Raises:
          UsageError: the size differs.
        """
        array = np.asarray(buffer.numpy() if hasattr(buffer, "numpy") else buffer).reshape(-1)
        size = self.get_parameters_size(trainable_only)
        if array.size != size:
            raise UsageError(
                f"copy_buffer_to_parameters: found {array.size} numbers; expected {size} with "
                f"trainable_only={trainable_only}."
            )
        index, result = 0, {}
        for name in self._chosen(trainable_only):
            shape = self.trainer.parameters[name].shape
            count = int(np.prod(shape))
            result[name] = array[index : index + count].reshape(shape)
            index += count
        self.trainer.parameters.put(result)

    def export_model_for_inferencing(
        self, inference_model_uri: str | PathLike, graph_output_names: Sequence[str] = ()
    ) -> None:
        """Write the trained model as ONNX, with the outputs of the original model.

        Raises:
          UsageError: the model doesn't have one of `graph_output_names`.
        """
        path = as_path("export_model_for_inferencing", inference_model_uri)
        wanted = [graph_output_names] if isinstance(graph_output_names, str) else graph_output_names
        wanted = () if wanted is None else wanted
        if not isinstance(wanted, Iterable):
            raise UsageError(f"graph_output_names {repr(wanted)[:60]}: expected a list of names.")
        result = outputs_in_file(self.program)
        for name in wanted:
            if name not in result:
                raise UsageError(f"output {name!r} not found; the model has {', '.join(result)}.")
        self.trainer.export_onnx(path)

    def kept(self, optimizer: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """(tensors, numbers) for a checkpoint."""
        roles = {slot.name: slot.role for slot in self.program.saved}
        tensors = {
            name: array
            for name, array in self.session.state().items()
            if optimizer or roles[name] != "state"
        }
        meta: dict[str, Any] = {"outputs": list(self._outputs), "optimizer": optimizer}
        if optimizer:
            meta |= {"step": self.session.step, "counters": self.session.counters()}
            meta["lr"] = self.trainer.lr
        return tensors, meta

    def _chosen(self, trainable_only: bool) -> list[str]:
        return [name for name in self.names if not trainable_only or name in self.trained]

    def _restore(self, state: CheckpointState) -> None:
        """Load the state's tensors, if it has any, over the Program's own."""
        if not state.tensors:
            return
        whole = {name: array.copy() for name, array in self.session.state().items()}
        strange = sorted({*state.tensors} - {*whole})
        if strange:
            raise CheckpointError(
                f"checkpoint: {strange[0]!r} does not belong to this model. Load a checkpoint "
                f"of this model."
            )
        whole |= state.tensors
        load_state(self.session, whole, "checkpoint")
        if state.meta.get("optimizer"):
            self.session.set_counters(state.meta["step"], state.meta["counters"])
            self.trainer.lr = state.meta["lr"]

    def _ordered(self, inputs: Sequence[Any], named: dict[str, Any]) -> Sequence[Any]:
        """Inputs in the order of `input_names`."""
        if not named:
            return inputs
        names = self.input_names()
        if inputs or {*named} != {*names}:
            result = ", ".join([*["a positional one"] * len(inputs), *named])
            raise UsageError(f"module: found inputs {result}; expected {', '.join(names)}.")
        return [named[name] for name in names]

    def _samples(self, inputs: Sequence[Any]) -> Samples:
        names = self.input_names()
        if len(inputs) != len(names):
            raise UsageError(
                f"module: {counted(len(inputs), 'input')}; expected {', '.join(names)}. Call "
                f"module({', '.join(names)})."
            )
        own = [hasattr(a, "numpy") and not hasattr(a, "detach") for a in inputs]  # not torch's
        arrays = [a.numpy() if plain else a for a, plain in zip(inputs, own, strict=True)]
        count = len(self.program.input_names)
        x = dict(zip(self.program.input_names, arrays, strict=False))
        return self._handed_over.samples(x, arrays[count] if len(arrays) > count else None)

    def _output(self, samples: Samples) -> np.ndarray:
        return self._handed_over.declared(self.session.predict(samples.inputs))

    def _learn(self, samples: Samples) -> float:
        """Accumulate the gradients of the mean loss; returns the loss."""
        session, ints, reals = self.session, self.session.ints, self.session.reals
        n, each = len(samples), self.program.microbatch
        counted = self._targets(samples)
        ints[control.TARGETS] = ints[control.CORRECT] = 0
        reals[control.LOSS_SUM] = reals[control.WEIGHT] = 0.0
        reals[control.NOMINAL] = max(1, counted)
        for start in range(0, n, each):
            valid = min(each, n - start)
            self._handed_over.stage(samples, start, valid)
            ints[control.COUNT], ints[control.MICROBATCH] = valid, self._calls
            session.executor.run("micro")
            self._calls += 1
        self._counted += int(ints[control.TARGETS])
        return float(reals[control.LOSS_SUM]) / session.divisor

    def _targets(self, samples: Samples) -> int:
        """Number of targets that count."""
        ignored = self.program.ignored_of(TARGET)
        if not samples.targets or ignored is None or self.session.joined:
            return len(samples) * self.program.target_count
        return int(np.count_nonzero(samples.targets[TARGET] != ignored))


def _without_gradients(program: Program) -> str:
    """Why a Program can't accumulate gradients over calls; "" if it can."""
    if program.recipe.get("fused_update"):
        return "with fused_update, gradients are not kept"
    if ROWS in program.recipe.get("allow", ()):
        return f"with allow {ROWS}, gradients cover only the rows of one minibatch"
    return ""


def program_of(uri: str | PathLike) -> Path:
    """The .edge file that belongs to a path of ONNX Runtime's artifacts.

    Raises:
      UsageError: the file is missing, or the path has another name.
    """
    path = as_path("artifacts", uri)
    if path.suffix == ".edge":
        return path
    for name in (MODEL, EVALUATED, UPDATED):
        if path.stem.endswith(name):
            result = path.with_name(f"{path.stem.removesuffix(name)}{MODEL}.edge")
            if os.path.exists(result):
                return result
            raise UsageError(f"{path}: {result} is missing. Call artifacts.generate_artifacts.")
    raise UsageError(f"{path}: expected {MODEL}.onnx of the artifacts, or a .edge file.")
