"""One step of parity: sets the engine to the reference's state, runs both, compares all tensors."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edgetrain.api import gradients
from edgetrain.compiler import Options
from edgetrain.compiler.model.groups import own_optimizers
from edgetrain.compiler.model.model_options import ModelOptions
from edgetrain.compiler.model.objective import choice_of
from edgetrain.compiler.model.trained import Choice
from edgetrain.compiler.passes.autodiff import accumulator_name
from edgetrain.compiler.passes.batch_norm import staged_name
from edgetrain.exporters.parity_slots import Slots
from edgetrain.exporters.reference import Reference, StepResult, Storage, scale_of, with_state
from edgetrain.exporters.twins import twin_of
from edgetrain.formats import FP32, MEMORIES, PRECISIONS
from edgetrain.ir import Format, Graph
from edgetrain.kernels import control
from edgetrain.losses import Loss
from edgetrain.ops.model import Model
from edgetrain.optim import Optimizer
from edgetrain.runtime.microbatch import run_minibatch
from edgetrain.runtime.session import Session

# fp32 torch differs from fp64 by its sums and by mask flips (a ReLU at zero); the engine need not
# be better.
TORCH_ERROR_FACTOR = 3.0
# A gradient that should be zero (a bias before batch-norm) is compared with the total norm.
NEAR_ZERO, NEAR_ZERO_ROUNDED = 1e-4, 1e-2  # the latter if backward reads rounded values
# Share of the loss: a gradient by which doubling the weight changes the loss by less consists of
# rounding errors of terms that should cancel.
_UNSEEN = 8 * 2.0**-23
STATISTICS_TOLERANCE = 1e-5
# For weights and optimizer state, relative to their norm: a few float32 roundings.
UPDATE_TOLERANCE = 1e-6
ROUNDINGS = 16  # of the numbers that an update reads and writes in a short format

# Relative change of perturbed weights: 8 units in the last place of float32, because a Winograd
# convolution can have 8 times the error of a direct sum, but at least half a unit of the format
# that values are stored in. Number of perturbed torch runs, and maximum while something differs.
_MOVED = 8 * 2.0**-23
_PERTURBED_RUNS, _MOST_RUNS = 4, 24


Distances = dict[tuple[str, str], float]  # (kind, name) -> relative error
KINDS = ("forward", "loss", "statistic", "gradient", "parameter", "state")


def _spacing(storage: Format) -> float:
    """The distance from 1 to the next number of a format."""
    halves = 2.0 ** -np.arange(1, 24, dtype=np.float32)
    stored = storage.decode(storage.encode(1 + halves)).astype(np.float64) - 1
    return float(stored[stored == halves].min())


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison; with tolerance None it is shown, not judged."""

    step: int
    kind: str
    name: str
    error: float
    tolerance: float | None
    torch_error: float | None = None

    @property
    def ok(self) -> bool:
        """A NaN is never ok."""
        return self.tolerance is None or self.error <= self.tolerance


class Comparison:
    """Compares a session of the engine with a float64 reference and its torch optimizer.

    Args:
      asked: what the session's Program should compute; its own record may be wrong.
    """

    def __init__(self, model: Model, session: Session, exact: Reference, asked: Options) -> None:
        self._model, self._session, self._exact = model, session, exact
        recipe = session.program.recipe
        self._loss = Loss.of_json(recipe["loss"])
        self._optimizer = asked.optimizer
        values = recipe["precision"]
        weights = MEMORIES[recipe["weights"] or recipe["model_memory"] or values]
        # The reference already has the rounded values of blocks: see _take_blocks.
        self._storage = Storage(PRECISIONS[values], FP32 if weights.block > 1 else weights)
        tolerances = zip(*(format.tolerances for format in self._storage), strict=True)
        self._loss_tolerance, self._tolerance = map(max, tolerances)
        self._loss_scale = scale_of(self._storage.values)
        if recipe.get("saved"):
            self._tolerance = max(self._tolerance, MEMORIES[recipe["saved"]].tolerances[1])
        self._near_zero = NEAR_ZERO_ROUNDED if recipe.get("saved") else NEAR_ZERO
        twin = twin_of(self._optimizer)
        self._choice = choice_of(model, ModelOptions.of(asked))
        self._torch = _grouped(twin, asked, model, self._choice, exact.parameters)
        self._state: Mapping[str, str] = twin.STATE
        self._slots = Slots(session)
        names = gradient_order(exact.graph)
        self._order = [name for name in names if self._slots.trains(name)]

    def step(
        self, step: int, inputs: Mapping[str, np.ndarray], target: np.ndarray | None
    ) -> list[Row]:
        """Set the engine to the reference's state, run both, compare, then update the reference.

        If the engine stores values more coarsely than fp32, it is judged against torch with values
        rounded the same way. As in training, an overflow halves the loss scale.
        """
        self._round_and_load(step)
        session = self._session
        self._exact.moment = session.program.recipe["seed"], session.step
        state = self._arrays()
        value = run_minibatch(session, inputs, target)  # first: it reports wrong inputs by name
        while self._loss_scale > 1 and not self._is_finite():
            self._loss_scale /= 2
            session.executor.run("update")  # clears the gradients
            self._round_and_load(step)
            value = run_minibatch(session, inputs, target)
        result = self._exact.step(inputs, target, self._loss)
        lost = list(self._lost(step, result))
        expected = self._masked(result)
        own = self._distances(self._own_result(value, expected), expected)
        torchs = self._distances(self._single(state, inputs, target), expected)
        overflows = not self._is_finite() and _are_finite(expected.gradients.values())
        rows = list(self._rows(step, own, torchs, overflows))
        judged = [row for row in rows if row.tolerance is not None]
        if not all(row.ok and row.error <= self._tolerance for row in judged):
            for count, run in enumerate(self._perturbed(state, inputs, target), 1):
                others = self._distances(run, expected)
                torchs = {key: max(torchs[key], others[key]) for key in torchs}
                rows = list(self._rows(step, own, torchs, overflows))
                if count >= _PERTURBED_RUNS and all(row.ok for row in rows):
                    break
        return [*rows, *lost, *self._update(step, expected)]

    def _lost(self, step: int, expected: StepResult) -> Iterator[Row]:
        """Rows of parameters that should be trained, but are not."""
        for name, gradient in expected.gradients.items():
            if self._choice(name) and not self._slots.trains(name) and gradient.any():
                yield Row(step, "gradient", name, math.inf, self._tolerance)

    def _is_finite(self) -> bool:
        """Whether the engine's gradients are; otherwise an update changes nothing."""
        return _are_finite(self._slots.read(name, accumulator_name("")) for name in self._order)

    def _own_result(self, loss: float, expected: StepResult) -> StepResult:
        """The session's results after a minibatch."""
        values, buffers = self._session.values, {}
        for name in expected.buffers:
            if name in values:
                staged = staged_name(name)  # holds the new statistics until the update commits them
                buffers[name] = values[staged if staged in values else name]
        return StepResult(loss, gradients(self._session), buffers)

    def _distances(self, result: StepResult, expected: StepResult) -> Distances:
        """Relative errors of loss, running statistics and gradients."""
        found = {
            ("loss", "loss"): abs(result.loss - expected.loss) / max(abs(expected.loss), 1e-30)
        }
        for name, array in expected.buffers.items():
            if name in self._session.values:
                apart = np.abs(result.buffers[name].astype(np.float64) - array)
                found["statistic", name] = float(np.max(apart / (1.0 + np.abs(array)), initial=0.0))
        whole = math.sqrt(sum(float(np.sum(g * g)) for g in expected.gradients.values()))
        for name in self._order:
            true = expected.gradients[name]
            apart = result.gradients[name].astype(np.float64) - true
            size = float(torch.linalg.vector_norm(self._exact.parameters[name].detach()))
            unseen = _UNSEEN * abs(expected.loss) / size if size else 0.0
            scale = max(float(np.linalg.norm(true)), self._near_zero * whole, unseen, 1e-30)
            found["gradient", name] = float(np.linalg.norm(apart)) / scale
        return found

    def _rows(self, step: int, own: Distances, torchs: Distances, overflows: bool) -> Iterator[Row]:
        """Rows with tolerances. Comparisons and rounding to integers cause jumps, so a tolerance is
        at least the error of torch with the same storage. If gradients overflow, those that do in
        torch too are not judged."""
        for (kind, name), error in own.items():
            most = TORCH_ERROR_FACTOR * torchs[kind, name]
            least = self._loss_tolerance if kind == "loss" else STATISTICS_TOLERANCE
            if kind == "gradient":
                stored = self._slots.stored(name, accumulator_name("")).tolerances[1]
                least = max(self._tolerance, stored)
            is_judged = kind != "statistic" or self._storage == (FP32, FP32)
            if overflows and kind == "gradient":
                is_judged = math.isfinite(torchs[kind, name])
            tolerance = max(least, most) if is_judged else None
            yield Row(step, kind, name, error, tolerance, torchs[kind, name])

    def _single(
        self, state, inputs, target, moves: Mapping[str, np.ndarray] | None = None
    ) -> StepResult:
        """The same step in torch's float32, with the engine's storage formats.

        Args:
          moves: factors of parameters; values saved for backward are rounded too.
        """
        exact, recipe = self._exact, self._session.program.recipe
        choice = {key: recipe[key] for key in ("train", "freeze", "train_constants", "freeze_bn")}
        single = Reference(
            with_state(self._model, state),
            exact.batch,
            device=str(exact.device),
            dtype=torch.float32,
            dims=recipe["dims"],
            output=exact.output_name,
            axis=exact.axis,
            storage=self._storage,
            terms=exact.terms,
            axes=exact.axes,
            moves=moves,
            **choice,
        )
        single.factor, single.moment = exact.factor, exact.moment
        single.loss_scale = self._loss_scale
        return self._masked(single.step(inputs, target, self._loss))

    def _masked(self, result: StepResult) -> StepResult:
        """Remove gradients that the engine doesn't have: of frozen weights, and outside the
        nonzeros."""
        for name, gradient in result.gradients.items():
            mask = self._slots.mask(name) if self._slots.trains(name) else 0.0
            if mask is not None:
                gradient *= mask
        return result

    def _perturbed(self, state, inputs, target) -> Iterator[StepResult]:
        """Torch's float32 with the last digits of weights changed.

        A single float32 run can happen to miss mask flips caused by another order of summation. In
        ResNet-18 they are so few and so large that even four runs may miss them. If values are
        stored in fewer bits, the values that backward reads are rounded here too: the slope 1 - y^2
        of a saturated tanh then loses most of its digits. And whether a value is rounded up or down
        depends on the engine's fusions, which don't store every value of the graph.
        """
        draw = np.random.default_rng(0)
        most = max(_MOVED, _spacing(self._storage.values) / 2)
        for _ in range(_MOST_RUNS):
            moves = {
                name: 1 + draw.choice([-1, 0, 1], array.shape) * most
                for name, array in state.items()
                if name in self._exact.parameters
            }
            yield self._single(state, inputs, target, moves)

    def _arrays(self) -> dict[str, np.ndarray]:
        state = {**self._exact.parameters, **self._exact.buffers}
        return {n: t.detach().cpu().numpy().astype(np.float32) for n, t in state.items()}

    def _round_and_load(self, step: int) -> None:
        """Give both sides the same float32 numbers."""
        exact, slots = self._exact, self._slots
        with torch.no_grad():
            for tensor in (*exact.parameters.values(), *exact.buffers.values()):
                tensor.copy_(tensor.float())
            for name, tensor in exact.parameters.items():
                mask = self._slots.mask(name)
                if mask is not None:
                    tensor.mul_(exact.tensor(mask))
            for state in self._torch.state.values():
                for tensor in state.values():
                    if isinstance(tensor, torch.Tensor) and tensor.dim():
                        tensor.copy_(tensor.float())
        for name, array in self._arrays().items():
            if slots.has(name):
                slots.write(name, array)
        for name, tensor in exact.parameters.items():
            for tag, of_torch in self._state.items():
                array = self._torch.state.get(tensor, {}).get(of_torch)
                if array is not None and slots.has(name, f".{tag}"):
                    slots.write(name, array.cpu().numpy(), f".{tag}")
        self._take_blocks()
        session = self._session
        session.ints[control.STEP] = step - 1
        session.ints[control.ADAM_T] = step - 1
        session.ints[control.TARGETS] = session.ints[control.CORRECT] = 0
        session.reals[control.LOSS_SUM] = session.reals[control.WEIGHT] = 0.0
        session.reals[control.LR] = self._optimizer.lr
        session.reals[control.LOSS_SCALE] = self._loss_scale
        for word, beta in zip((control.BIAS1, control.BIAS2), self._optimizer.betas, strict=True):
            session.reals[word] = 1.0 - beta ** (step - 1)

    def _take_blocks(self) -> None:
        """Copy weights that the engine stores in blocks, or as frozen, to the reference."""
        exact, slots = self._exact, self._slots
        with torch.no_grad():
            for name, tensor in exact.parameters.items():
                if slots.is_given(name):
                    tensor.copy_(exact.tensor(slots.read(name)))

    def _update(self, step: int, expected: StepResult) -> Iterator[Row]:
        """Run both optimizers with the reference's gradient as float32, and compare."""
        session, exact, slots = self._session, self._exact, self._slots
        factor = (
            session.reals[control.NOMINAL] / session.divisor / session.reals[control.LOSS_SCALE]
        )
        trained = {n: t for n, t in exact.parameters.items() if slots.trains(n)}
        for name, tensor in trained.items():
            gradient = expected.gradients[name].astype(np.float32)
            tensor.grad = exact.tensor(gradient)
            slots.write(name, gradient / np.float32(factor), accumulator_name(""))
        overflows = not self._is_finite()
        session.executor.run("update")
        most = session.program.recipe["max_grad_norm"]
        if most:
            torch.nn.utils.clip_grad_norm_(trained.values(), most)
        before = {n: self._of_torch(n, t) for n, t in trained.items()}
        if not overflows:
            self._torch.step()
        for name, tensor in trained.items():
            for tag, array in self._of_torch(name, tensor).items():
                error = float(np.linalg.norm(slots.read(name, tag) - array))
                # If a sum cancels, rounding errors are relative to its terms.
                terms = (array, before[name].get(tag, array))
                tolerance, least = self._update_tolerance(name, tag)
                least = max(least * array.size**0.5, 1e-12)
                error /= max(*(float(np.linalg.norm(term)) for term in terms), least)
                yield Row(step, "state" if tag else "parameter", name + tag, error, tolerance)

    def _of_torch(self, name: str, tensor: torch.Tensor) -> dict[str, np.ndarray]:
        """Tag -> copy of a parameter ("") and of the optimizer state that the engine also has."""
        result = {"": tensor}
        for tag, of_torch in self._state.items():
            state = self._torch.state.get(tensor, {}).get(of_torch)
            if state is not None and self._slots.has(name, f".{tag}"):
                result[f".{tag}"] = state
        return {tag: t.detach().cpu().numpy().copy() for tag, t in result.items()}

    def _update_tolerance(self, name: str, tag: str) -> tuple[float | None, float]:
        """(tolerance of an update, number below which errors of its storage are absolute).

        The tolerance follows from the storage of everything that the update reads and writes; a
        clipped update reads every accumulator, through their norm. It is None for blocks, whose
        numbers are rounded together, and for sparse layers if the optimizer sums over all of them,
        unlike torch's.
        """
        tags = ("", accumulator_name(""), *(f".{tag}" for tag in self._state))
        read = [(name, tag) for tag in tags]
        if self._session.program.recipe["max_grad_norm"]:
            read += [(other, accumulator_name("")) for other in self._order]
        if self._optimizer.sums and self._slots.mask(name) is not None:
            return None, 0.0
        stored = {self._slots.stored(*slot) for slot in read if self._slots.has(*slot)}
        if self._storage.weights.block > 1 or any(format.block > 1 for format in stored):
            return None, 0.0
        if self._storage.weights is FP32 and stored == {FP32}:
            return UPDATE_TOLERANCE, 0.0
        relative = max(format.spacing[0] for format in stored)
        own, smallest = self._slots.stored(name, tag).spacing
        return ROUNDINGS * relative, smallest / own / self._slots.scale(name, tag)


def _are_finite(arrays: Iterable[np.ndarray]) -> bool:
    return all(np.isfinite(array).all() for array in arrays)


def _grouped(
    twin: Any,
    asked: Options,
    model: Model,
    choice: Choice,
    parameters: Mapping[str, torch.Tensor],
) -> "_Groups":
    """Torch optimizers for each group of parameters."""
    own = own_optimizers(model, asked, choice)
    of: dict[Optimizer, list[torch.Tensor]] = {}
    for name, tensor in parameters.items():
        of.setdefault(own.get(name, asked.optimizer), []).append(tensor)
    return _Groups([(twin.optimizer(item, tensors), tensors) for item, tensors in of.items()])


class _Groups:
    """Several optimizers of different parameters, combined."""

    def __init__(self, parts: Sequence[tuple[torch.optim.Optimizer, list[torch.Tensor]]]) -> None:
        self._parts = [optimizer for optimizer, _ in parts]
        self._owner = {t: optimizer for optimizer, tensors in parts for t in tensors}

    @property
    def state(self) -> dict[torch.Tensor, Any]:
        """Optimizer state by parameter, if it has any."""
        return {t: o.state[t] for t, o in self._owner.items() if t in o.state}

    def step(self) -> None:
        for optimizer in self._parts:
            optimizer.step()


def gradient_order(graph: Graph) -> list[str]:
    """Parameters in the order in which backward reaches them, from the loss to the inputs."""
    seen: dict[str, None] = {}
    for node in reversed(graph.nodes):
        for name in node.reads:
            root = graph.root(name)
            if graph.values[root].role == "parameter":
                seen.setdefault(root)
    return list(seen)
