"""Processes a model twice side by side, and rewrites nodes in the second run; see rebatch.py."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import ModelError
from ...ops.allowance import Allowance
from ...ops.model import Model
from ...ops.onnx_ops import OnnxNode, Subgraph, joined, onnx_op
from .context import Context, bound_context
from .rebatch_layout import Factor, factor_of, places

_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101)
_ALL = 2**62

# A change to a node: ("place", k): the k-th candidate for the batch axis of a view; ("rows", input,
# axis): an input with equal rows; ("grow", axis): an Expand to the batch.
Fix = tuple


def _is_free(node: OnnxNode) -> bool:
    """Whether its outputs need not have a batch: sizes, statistics, a branch's results."""
    op = onnx_op(node.op_type)
    branches = any(isinstance(value, Subgraph) for value in node.attrs.values())
    return branches or bool(op.measure or op.buffers)


def baked_batch(model: Model) -> int:
    """The fixed size of the inputs' batch axes in the file; 0 if symbolic."""
    sizes = [spec.dims[spec.batch] for spec in model.inputs if spec.dims]
    return max((size for size in sizes if isinstance(size, int)), default=0)


class Probe(Context):
    """A context that can be queried and changed by ONNX name."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape of the value with this ONNX name so far, or None."""
        array = self.array(name)
        if array is not None:
            return array.shape
        value = self._names.get(name)
        if value is not None:
            return self._builder.values[value].shape
        weight = self._model.initializers.get(name)
        return None if weight is None else weight.shape

    def array(self, name: str) -> np.ndarray | None:
        """The constant with this name, or None."""
        return self._consts.get(name)

    def sizes(self) -> set[int]:
        """The sizes of all dimensions of all values."""
        shapes = [v.shape for v in self._builder.values.values()]
        shapes += [array.shape for array in self._consts.values()]
        return {int(d) for shape in shapes for d in shape}

    def fresh(self, name: str) -> str:
        """`name` with a suffix that makes it unique in the file."""
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name

    def define(self, name: str, array: np.ndarray) -> None:
        """Add a constant to the file."""
        self._consts[name] = array

    def forget(self, name: str) -> None:
        """Forget a name, so a node can define it again."""
        self._names.pop(name, None)
        self._consts.pop(name, None)


class Stuck(Exception):
    """A node loses the batch; `at` is its index in the file."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.at = index


@dataclass
class Trial:
    """A run with a prime as the batch size, and the rewritten nodes."""

    probe: Probe
    nodes: list[OnnxNode] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    factors: dict[str, Factor] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)  # node -> candidates for its batch axis
    origins: dict[str, str] = field(default_factory=dict)  # new name -> name in the file

    def run(self, node: OnnxNode) -> None:
        self.nodes.append(node)
        self.probe.run(node)

    def constant(self, name: str, array) -> str:
        """Add a constant to the model; returns its name."""
        name = self.probe.fresh(name)
        self.arrays[name] = np.asarray(array)
        self.probe.define(name, self.arrays[name])
        return name


class Lockstep:
    """Processes a model with its own batch and with a prime, side by side."""

    def __init__(self, model: Model, dims: Mapping[str, int]) -> None:
        self._model, self._dims, self._baked = model, dims, baked_batch(model)
        sizes = {s.name: s.dims[s.batch] for s in model.inputs if s.dims}
        if any(isinstance(size, int) and size != self._baked for size in sizes.values()):
            raise self._refusal(f"its inputs have different batch sizes: {sizes}")
        self._allowance = Allowance()
        self._truth, self._needed = bound_context(model, self._baked, dims, Probe, self._allowance)
        taken = self._truth.sizes()
        free = [p for p in _PRIMES if p not in taken and p != self._baked]
        if len(free) < 2:
            raise self._refusal("the batch can't be told from its other sizes")
        self._primes, self._runs, self._own_rows = free[:2], 0, ""
        self._makers = {o: index for index, n in enumerate(self._needed) for o in n.outputs if o}

    def _refusal(self, why: str) -> ModelError:
        return ModelError(
            f"{self._model.source or self._model.name}: the batch size {self._baked} is fixed "
            f"in this file ({why}). Use --minibatch {self._baked}, or export with dynamic_shapes."
        )

    # One trial.

    def _trial(self, fixes: Mapping) -> Trial:
        probe = Probe(self._model, self._primes[0], self._dims, self._allowance)
        trial = self._last = Trial(probe)
        probe.expect(self._needed, self._model.outputs)
        for spec in self._model.inputs:
            trial.factors[spec.name] = Factor(spec.batch, 1, 1)
        first = self._model.inputs[0]
        self._size = probe.fresh("batch")
        part = {"start": first.batch, "end": first.batch + 1}
        trial.run(OnnxNode(self._size, "Shape", (first.name,), (self._size,), part))
        by_node: dict[int, list[Fix]] = {}
        for (index, *_), fix in fixes.items():
            by_node.setdefault(index, []).append(fix)
        for index, node in enumerate(self._needed):
            self._runs += 1
            try:
                self._step(trial, index, node, by_node.get(index, []))
            except ModelError as error:
                raise Stuck(index, str(error).rstrip(".")) from error
        outputs = [trial.factors.get(name) for name in self._model.outputs]
        if not any(outputs):
            raise Stuck(len(self._needed), "no output has a batch")
        for name, factor in zip(self._model.outputs, outputs, strict=True):
            if factor and factor.count > 1 and not factor.inner:
                raise Stuck(
                    len(self._needed), f"output {name!r} mixes samples and others along an axis"
                )
        return trial

    def _step(self, trial: Trial, index: int, node: OnnxNode, fixes: list[Fix]) -> None:
        for fix in fixes:
            if fix[0] == "rows":
                node = self._with_rows(trial, node, fix[1], fix[2])
        factors = [trial.factors.get(name) if name else None for name in node.inputs]
        batched = [f for f in factors if f]
        grow = next((fix[1] for fix in fixes if fix[0] == "grow"), None)
        if grow is not None:
            self._grow(trial, node, grow)
        elif onnx_op(node.op_type).reshapes and factors and factors[0]:
            choice = next((fix[1] for fix in fixes if fix[0] == "place"), 0)
            self._view(trial, index, node, factors[0], choice)
            return
        elif factors and factors[0] and node.op_type in ("Expand", "Slice", "Resize"):
            self._resized(trial, node, factors[0])
        else:
            trial.run(node)
        if factors and factors[0]:
            axes, what = joined(trial.probe, node, len(trial.probe.shape(node.inputs[0]) or ()))
            if factors[0].axis in axes:
                raise node.fail(f"the batch is {what}", "independent samples")
        for name in node.outputs:
            factor = self._factor(trial, node, name)
            if factor:
                known = [f.inner for f in batched if f.count == factor.outer and f.inner]
                inner = 1 if factor.outer == 1 else next(iter(known), 0)
                outer = factor.outer // max(1, inner)
                trial.factors[name] = Factor(factor.axis, outer, inner)
            elif batched and not _is_free(node) and trial.probe.shape(name) is not None:
                raise node.fail(f"output {name!r} has lost the batch", "an axis of samples")

    def _factor(self, trial: Trial, node: OnnxNode, name: str) -> Factor | None:
        before, after = self._truth.shape(name), trial.probe.shape(name)
        if not name or before is None or after is None:
            return None
        return factor_of(node, before, after, self._baked, self._primes[0])

    # Rewriting nodes.

    def _view(self, trial: Trial, index: int, node: OnnxNode, given: Factor, choice: int) -> None:
        """Handle Reshape and similar ops: the batch keeps its stride."""
        source = self._truth.shape(trial.origins.get(node.inputs[0], node.inputs[0])) or ()
        shape = self._truth.shape(node.outputs[0]) or ()
        result = places(source, shape, given, self._baked)
        if not result:
            raise node.fail(f"shape {list(source)} becomes {list(shape)}", "a batch in one axis")
        trial.places[index] = len(result)
        chosen = result[min(choice, len(result) - 1)]
        wanted = list(shape)
        wanted[chosen.axis] = chosen.count * self._primes[0]
        if choice or not self._runs_as_it_is(trial, node, wanted):
            wanted[chosen.axis] = -1
            sizes = trial.constant(f"{node.outputs[0]}.sizes", np.array(wanted, np.int64))
            node = OnnxNode(node.name, "Reshape", (node.inputs[0], sizes), node.outputs[:1])
            trial.run(node)
        else:
            trial.nodes.append(node)
        trial.factors[node.outputs[0]] = chosen

    def _runs_as_it_is(self, trial: Trial, node: OnnxNode, wanted: Sequence[int]) -> bool:
        made = None
        with suppress(ModelError):
            trial.probe.run(node)
            made = trial.probe.shape(node.outputs[0])
        if made is not None and list(made) == list(wanted):
            return True
        trial.probe.forget(node.outputs[0])
        return False

    def _resized(self, trial: Trial, node: OnnxNode, given: Factor) -> None:
        """Handle Expand, Slice and Resize: sizes along the batch axis follow the batch."""
        source = self._truth.shape(trial.origins.get(node.inputs[0], node.inputs[0])) or ()
        shape = self._truth.shape(node.outputs[0]) or ()
        axis = given.axis + (len(shape) - len(source) if node.op_type == "Expand" else 0)
        wanted = list(shape)
        if not 0 <= axis < len(shape) or shape[axis] != source[given.axis]:
            raise node.fail(f"shape {list(source)} becomes {list(shape)}", "an unchanged batch")
        wanted[axis] = given.count * self._primes[0]
        is_kept = node.op_type != "Slice" or self._keeps_order(node, axis, given.count)
        if is_kept and self._runs_as_it_is(trial, node, wanted):
            trial.nodes.append(node)
            return
        if node.op_type == "Expand":
            target = [1 if k == axis else d for k, d in enumerate(shape)]
            sizes = trial.constant(f"{node.outputs[0]}.sizes", np.array(target, np.int64))
            node = replace(node, inputs=(node.inputs[0], sizes))
        elif node.op_type == "Slice":
            node = self._whole_slice(trial, node, axis)
        else:
            node = self._resize(trial, node, axis)
        trial.run(node)

    def _keeps_order(self, node: OnnxNode, axis: int, count: int) -> bool:
        """Whether a Slice keeps the order along an axis with `count` rows per sample.

        Raises:
          ModelError: it reverses the samples of a batch.
        """
        starts, axes = self._truth.ints(node, 1, "starts") or [], self._truth.ints(node, 3, "axes")
        steps = self._truth.ints(node, 4) or [1] * len(starts)
        rank = len(self._truth.shape(node.outputs[0]) or ())
        places = range(len(starts)) if axes is None else axes
        kept = all(s > 0 for s, a in zip(steps, places, strict=True) if a % rank == axis)
        if not kept and (self._baked > 1 or count > 1):
            raise node.fail("the batch is reversed", "independent samples")
        return kept

    def _whole_slice(self, trial: Trial, node: OnnxNode, axis: int) -> OnnxNode:
        truth = self._truth
        starts, ends = truth.ints(node, 1, "starts") or [], truth.ints(node, 2, "ends") or []
        axes = truth.ints(node, 3, "axes") or list(range(len(starts)))
        rank = len(truth.shape(node.outputs[0]) or ())
        steps = truth.ints(node, 4) or [1] * len(starts)
        parts = [
            part for part in zip(starts, ends, axes, steps, strict=True) if part[2] % rank != axis
        ] or [(0, _ALL, axis, 1)]
        names = [
            trial.constant(f"{node.outputs[0]}.{tag}", np.array(numbers, np.int64))
            for tag, numbers in zip(
                ("starts", "ends", "axes", "steps"), zip(*parts, strict=True), strict=True
            )
        ]
        return OnnxNode(node.name, "Slice", (node.inputs[0], *names), node.outputs)

    def _resize(self, trial: Trial, node: OnnxNode, axis: int) -> OnnxNode:
        sizes = list(self._truth.ints(node, 3) or [])
        if axis or "axes" in node.attrs or not sizes:
            raise node.fail("sizes that include the batch", "scales, or sizes of the image only")
        rest = trial.constant(f"{node.outputs[0]}.rest", np.array(sizes[1:], np.int64))
        sizes_name = trial.probe.fresh(f"{node.outputs[0]}.sizes")
        trial.run(OnnxNode(sizes_name, "Concat", (self._size, rest), (sizes_name,), {"axis": 0}))
        return replace(node, inputs=(*node.inputs[:3], sizes_name))

    def _with_rows(self, trial: Trial, node: OnnxNode, index: int, axis: int) -> OnnxNode:
        """The node with an input of equal rows, one per sample."""
        name = node.inputs[index]
        shape = self._truth.shape(name) or ()
        count = shape[axis] // self._baked
        array = self._truth.array(name)
        if array is not None:
            self._allowance.spend(node, array.size, 4)
            blocks = array.reshape(*shape[:axis], self._baked, count, *shape[axis + 1 :])
            row = blocks.take([0], axis)
            if not np.array_equal(np.broadcast_to(row, blocks.shape), blocks, equal_nan=True):
                error = node.fail(
                    f"constant {name!r} of shape {list(shape)} has a different row per sample",
                    "equal rows",
                )
                self._own_rows = str(error).rstrip(".")
                raise error
            first = row.reshape(*shape[:axis], count, *shape[axis + 1 :])
            source = trial.constant(f"{name}.row", first)
        else:
            source = name
        tiled = self._tiled(trial, source, len(shape), axis, f"{name}.rows")
        inputs = list(node.inputs)
        inputs[index] = tiled
        trial.origins[tiled] = name
        return replace(node, inputs=tuple(inputs))

    def _grow(self, trial: Trial, node: OnnxNode, axis: int) -> None:
        """Handle an Expand along an axis that becomes the batch."""
        shape = list(self._truth.shape(node.outputs[0]) or ())
        count = shape[axis] // self._baked
        shape[axis] = count
        sizes = trial.constant(f"{node.outputs[0]}.sizes", np.array(shape, np.int64))
        narrow = trial.probe.fresh(f"{node.outputs[0]}.row")
        trial.run(OnnxNode(narrow, "Expand", (node.inputs[0], sizes), (narrow,)))
        self._tiled(trial, narrow, len(shape), axis, node.outputs[0], exact=True)

    def _tiled(
        self, trial: Trial, source: str, rank: int, axis: int, name: str, *, exact: bool = False
    ) -> str:
        """`source` repeated per sample along `axis`."""
        out = name if exact else trial.probe.fresh(name)
        parts = [
            trial.constant(f"{out}.{tag}", np.ones(length, np.int64)) if length else ""
            for tag, length in (("before", axis), ("after", rank - axis - 1))
        ]
        times = trial.probe.fresh(f"{out}.times")
        pieces = tuple(part for part in (parts[0], self._size, parts[1]) if part)
        trial.run(OnnxNode(times, "Concat", pieces, (times,), {"axis": 0}))
        trial.run(OnnxNode(out, "Tile", (source, times), (out,)))
        after = trial.probe.shape(out) or ()
        trial.factors[out] = Factor(axis, 1, after[axis] // self._primes[0])
        return out
