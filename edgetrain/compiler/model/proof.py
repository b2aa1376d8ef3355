"""Whether the samples of a minibatch are independent up to the loss, so that it can be split.

The forward graph is bound twice, with the minibatch and with a batch of three. Axes whose sizes
differ contain the batch, and constants that differ depend on its size. The rules of ops/samples.py
are applied node by node; nodes, numbers and positions must be the same in both. Independent samples
can be split into microbatches. So can a sum or mean over the batch, scaled to the minibatch.
Anything else is a function of the whole minibatch, so the microbatch must be the minibatch.

If a file accepts only one batch size, nothing is known about larger ones: it is bound once, and a
minibatch is the mean over batches of that size, whatever the budget.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from ...errors import ModelError, UsageError
from ...ir import Node
from ...ops.model import Model
from ...ops.registry import op
from ...ops.samples import EACH, FREE, Look, Mixes, State, along
from ...ops.strides import contiguous, prod
from ..bind import Bindable, bind
from .model_options import ModelOptions
from .objective import choice_of, forward_of
from .weights import chosen_weights

INDEPENDENT, MEAN, SUM, MIXED = "independent", "mean", "sum", "mixed"
JOINED = "joined"  # independent in the model, but not in the loss
WEIGHED = "weighed"  # several losses, one of them with weighted targets: needs all samples at once
_FEW = 3  # samples of the second binding: with one, copies would become views


@dataclass(frozen=True)
class Samples:
    """How the loss depends on the samples of a minibatch.

    Attributes:
      kind: INDEPENDENT, MEAN, SUM, MIXED, JOINED or WEIGHED.
      degree: the loss of a batch of b samples is b ** degree times a mean over them.
      why: which node mixes samples, and how; "" if no node does.
      batch: the only batch size that the file accepts; 0: any.
      axis: the output's axis that counts samples.
    """

    kind: str
    degree: int = 0
    why: str = ""
    batch: int = 0
    axis: int = 0

    @property
    def whole(self) -> bool:
        """Whether a minibatch cannot be split."""
        return self.kind in (MIXED, JOINED, WEIGHED)

    def facts(self) -> dict[str, str]:
        """For the account: `samples`, and `mixed_by` if samples are mixed."""
        mixed = self.why and self.kind != WEIGHED
        return {"samples": self.kind} | ({"mixed_by": self.why} if mixed else {})

    def factor(self, minibatch: int, microbatch: int) -> float:
        """Factor of a microbatch's output: with it, the mean over microbatches is the minibatch's.

        Raises:
          UsageError: the minibatch can't be split.
        """
        if microbatch == self.batch:
            return 1.0
        if microbatch != minibatch and self.whole:
            raise UsageError(
                f"microbatch {microbatch}: {self.why}, so a minibatch of {minibatch} can't be "
                f"split. Use --microbatch {minibatch}, or --minibatch {microbatch}."
            )
        return float(minibatch // microbatch) ** self.degree


def proved(model: Model, options: ModelOptions) -> Samples:
    """How a laid-out model's loss depends on the samples of a minibatch, proved from its graph."""
    batch = Bindable(model, options.dims).only_batch
    return proof_of(batch, Bindable(chosen_weights(model, options), options.dims), options)


def proof_of(batch: int, chosen: Bindable, options: ModelOptions) -> Samples:
    """Like `proved`.

    Args:
      batch: the only batch size that the file accepts; 0 if it accepts any.
      chosen: the model with its chosen weights.
    """
    if batch:
        options = replace(options, minibatch=batch)
    if options.minibatch == 1 and not batch:  # one sample proves nothing about independence
        two = replace(options, minibatch=2)
        with contextlib.suppress(ModelError):  # the graph accepts only one sample
            return _of_batches(_Sides(chosen, two, fixed=False), two)
    sides = _Sides(chosen, options, fixed=bool(batch))
    result = replace(_of_batches(sides, options), batch=batch)
    why = "" if batch or result.kind == MIXED else _differs(sides)
    return replace(result, kind=MIXED, why=why) if why else result


def _differs(known: "_Sides") -> str:
    """Why a batch of one or two computes something else than a larger one; "" if it does not."""
    sides = []
    for batch in (1, 2, _FEW):
        with contextlib.suppress(ModelError):  # it accepts no such batch
            sides.append(known.of(batch))
    first, *others = [(side, _computing(side)) for side in reversed(sides)]
    for side, nodes in others:
        for node, other in zip_longest(first[1], nodes):
            if node is None or other is None or not _alike(node, other):
                item = node or other or side.graph.nodes[-1]
                return f"node {item.origin!r} ({item.op}) differs in a batch of {side.batch}"
        for name, array in first[0].arrays.items():
            own = side.arrays.get(name)
            if own is not None and own.shape == array.shape:
                try:
                    _degree([array, own], [first[0].batch, side.batch])
                except Mixes:
                    return f"constant {name!r} differs in a batch of {side.batch}"
    return ""


def _computing(side: "_Side") -> list[Node]:
    """The nodes that do more than move numbers, which may be views in a batch of one."""
    return [node for node in side.graph.nodes if not op(node.op).moves_only]


def _of_batches(sides: "_Sides", options: ModelOptions) -> Samples:
    pair = None
    try:
        pair = _Pair(sides, options.minibatch)
        state = pair.run()
    except Mixes as mixes:
        return Samples(MIXED, why=str(mixes), axis=pair.grown() if pair else 0)
    output, shape, batch = pair.last
    if state.kind != EACH and options.loss.takes_mean(shape):
        return Samples(SUM if state.degree else MEAN, state.degree)
    if state.kind != EACH:
        return Samples(MIXED, why=f"output {output!r} depends on the whole batch")
    axis = _axis(shape, state.stride, batch)
    if axis is None:
        why = f"output {output!r} of shape {list(shape)} has no batch axis"
        return Samples(MIXED, why=why, axis=pair.grown())
    if options.loss.joins_samples:
        return Samples(JOINED, why=options.loss.joins_samples, axis=axis)
    if state.degree or state.step:
        why = f"output {output!r} depends on the batch size"
        return Samples(MIXED, why=why, axis=axis)
    return Samples(INDEPENDENT, axis=axis)


def _axis(shape: tuple[int, ...], stride: int, batch: int) -> int | None:
    """The axis that is exactly the batch, if samples are `stride` apart."""
    steps = contiguous(shape)
    own = [k for k, size in enumerate(shape) if (size, steps[k]) == (batch, stride)]
    return own[0] if own and (batch == 1 or along(shape, stride, batch) == own) else None


class _Side:
    """The forward graph for one batch size."""

    def __init__(self, model: Model, options: ModelOptions, batch: int) -> None:
        bound = bind(model, batch, options.dims)
        self.graph, (self.output, *_) = forward_of(bound, options, choice_of(model, options))
        self.batch, self.arrays = batch, bound.arrays
        self.states: dict[str, State] = {}

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a constant, through views."""
        root = self.graph.root(name)
        known = self.graph.values[root].role == "constant"
        return self.arrays[root] if known else None


class _Sides:
    """The bindings of a model that a proof compares, each made once.

    Attributes:
      fixed: whether the file accepts only one batch size.
    """

    def __init__(self, chosen: Bindable, options: ModelOptions, *, fixed: bool) -> None:
        self.fixed = fixed
        self._model = chosen.model if fixed else chosen.freed()
        self._options = options
        self._known: dict[int, _Side] = {}

    def of(self, batch: int) -> _Side:
        """The binding with this batch.

        Raises:
          ModelError: the model does not accept it.
        """
        if batch not in self._known:
            self._known[batch] = _Side(self._model, self._options, batch)
        return self._known[batch]


class _Pair:
    """Applies the rules to both bindings of a model, node by node."""

    def __init__(self, sides: _Sides, minibatch: int) -> None:
        self._sides = [sides.of(minibatch)]
        if sides.fixed:
            return
        other = _FEW + (minibatch == _FEW)
        try:
            self._sides.append(sides.of(other))
        except ModelError as error:
            raise Mixes(f"the model does not accept a batch of {other} ({error})") from error

    @property
    def last(self) -> tuple[str, tuple[int, ...], int]:
        """Name, shape and batch of the output, in the binding whose state `run` returns."""
        side = self._sides[-1]
        return side.output, side.graph.values[side.output].shape, side.batch

    def grown(self) -> int:
        """The output axis that is as large as the batch; 0 if none or several are."""
        shapes = [(side.graph.values[side.output].shape, side.batch) for side in self._sides]
        ranks = {len(shape) for shape, _ in shapes}
        axes = [k for k in range(min(ranks)) if all(shape[k] == n for shape, n in shapes)]
        return axes[0] if axes and len(ranks) == 1 else 0

    def run(self) -> State:
        """The state of the output.

        Raises:
          Mixes: which node mixes samples, and how.
        """
        self._inputs()
        for nodes in zip(*(side.graph.nodes for side in self._sides), strict=False):
            self._check_alike(nodes)
            if nodes[0].writes:
                try:
                    self._node(nodes)
                except Mixes as mixes:
                    raise Mixes(f"node {nodes[0].origin!r} ({nodes[0].op}) {mixes}") from None
        if len({len(side.graph.nodes) for side in self._sides}) > 1:
            raise Mixes("the graph depends on the batch size")
        return self._of(len(self._sides) - 1, self._sides[-1].output)

    def _inputs(self) -> None:
        for side in self._sides:
            for name in side.graph.inputs:
                shape = side.graph.values[name].shape
                side.states[name] = State(EACH, prod(shape[1:]))

    def _check_alike(self, nodes: tuple[Node, ...]) -> None:
        """Check that nodes differ only in sizes; otherwise they depend on the batch size."""
        first, last = nodes[0], nodes[-1]
        alike = (first.inputs, first.outputs) == (last.inputs, last.outputs)
        if not alike or not _alike(first, last):
            raise Mixes(f"node {first.origin!r} ({first.op}) depends on the batch size")

    def _of(self, index: int, name: str) -> State:
        """The state of a value in one binding; constants and parameters are examined when read."""
        side = self._sides[index]
        if name not in side.states:
            value = side.graph.values[name]
            root = side.graph.root(name)
            if name != root and value.role not in ("constant", "parameter", "buffer"):
                return self._of(index, root)
            for other, state in zip(self._sides, self._persistent(name), strict=True):
                other.states[name] = state
        return side.states[name]

    def _persistent(self, name: str) -> list[State]:
        arrays = [side.constant(name) for side in self._sides]
        shapes = [side.graph.values[name].shape for side in self._sides]
        if arrays[0] is None or len(arrays) == 1 or arrays[1] is None:
            if len({*shapes}) > 1:
                raise Mixes("reads a stored value whose shape depends on the batch size")
            return [State(FREE)] * len(self._sides)
        pairs = zip(arrays, shapes, strict=True)
        shaped = [a.reshape(shape) for a, shape in pairs if a is not None]
        return _constants(shaped, [side.batch for side in self._sides])

    def _node(self, nodes: tuple[Node, ...]) -> None:
        rule = op(nodes[0].op).samples
        made: list[list[State | None]] = []
        for index, (side, node) in enumerate(zip(self._sides, nodes, strict=True)):
            states = tuple(self._of(index, name) if name else None for name in node.inputs)
            if all(state is None or (state.kind, state.degree) == (FREE, 0) for state in states):
                made.append([State(FREE)] * len(node.outputs))
                continue
            if rule is None:
                raise Mixes("may mix samples (no rule is known)")
            made_states = rule(Look(node, side.graph, side.batch, states, side.constant))
            made.append([made_states] if isinstance(made_states, State) else list(made_states))
        if op(nodes[0].op).spreads or not nodes[0].inputs:
            made = self._grown(nodes, made)
        if any(row != made[0] for row in made):
            raise Mixes("depends on the batch size")
        for side, node, row in zip(self._sides, nodes, made, strict=True):
            for name, state in zip(node.outputs, row, strict=False):
                if name and state is not None:
                    side.states[name] = state
        for name, state in zip(nodes[0].outputs, made[0], strict=False):
            if name and state is not None:
                self._check_shape(name, state)

    def _grown(self, nodes: tuple[Node, ...], made: list) -> list:
        """Turn values repeated or drawn once per sample into per-sample states."""
        shapes = [
            side.graph.values[node.outputs[0]].shape
            for side, node in zip(self._sides, nodes, strict=True)
        ]
        if len(shapes) < 2 or made[0][0].kind != FREE:
            return made
        if shapes[0] == shapes[1]:
            if not nodes[0].inputs:
                raise Mixes("draws random numbers for the whole batch")
            return made
        axis, count = _growth(shapes, [side.batch for side in self._sides])
        strides = [count * prod(shape[axis + 1 :]) for shape in shapes]
        return [
            [replace(row[0], kind=EACH, stride=s)] for row, s in zip(made, strides, strict=True)
        ]

    def _check_shape(self, name: str, state: State) -> None:
        """Check that the axis that grows with the batch is the axis of samples."""
        shapes = [side.graph.values[name].shape for side in self._sides]
        if len(shapes) < 2:
            return
        if state.kind != EACH:
            if shapes[0] != shapes[1]:
                raise Mixes("makes a value whose shape depends on the batch size")
            return
        axis, _ = _growth(shapes, [side.batch for side in self._sides])
        if along(shapes[0], state.stride, self._sides[0].batch) != [axis]:
            raise Mixes("splits the batch axis")


def _alike(first: Node, last: Node) -> bool:
    """Whether two nodes have the same op and the same real numbers as attributes."""
    if first.op != last.op or not (first.attrs or last.attrs):
        return first.op == last.op
    one, two = (
        [v for _, v in sorted(node.attrs.items()) if isinstance(v, float)] for node in (first, last)
    )
    return np.array_equal(one, two, equal_nan=True)


def _growth(shapes: Sequence[tuple[int, ...]], batches: Sequence[int]) -> tuple[int, int]:
    """(the axis that grows with the batch, its rows per sample).

    Raises:
      Mixes: no axis or several axes grow, or the size isn't a multiple of the batch.
    """
    first, last = shapes
    axes = [k for k, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]]
    if len(first) == len(last) and len(axes) == 1:
        (axis,) = axes
        count = first[axis] // batches[0]
        if (first[axis], last[axis]) == (count * batches[0], count * batches[1]):
            return axis, count
    raise Mixes(f"makes a value of shape {list(first)}, which is not a batch of samples")


def _constants(arrays: Sequence[np.ndarray], batches: Sequence[int]) -> list[State]:
    """States of a constant in both bindings: equal, a function of the batch size, or with rows per
    sample.
    """
    strides, step = [0] * len(arrays), 0
    if arrays[0].shape != arrays[1].shape:
        axis, count = _growth([array.shape for array in arrays], batches)
        rows, steps = [], []
        for index, (array, batch) in enumerate(zip(arrays, batches, strict=True)):
            before, after = array.shape[:axis], array.shape[axis + 1 :]
            samples = np.moveaxis(array.reshape(*before, batch, count, *after), axis, 0)
            first = samples[0]
            alike = np.array_equal(samples[0], samples[1], equal_nan=array.dtype.kind == "f")
            known = not alike and array.dtype.kind in "if" and np.isfinite(samples).all()
            each = (samples[1] - first).ravel()[0] if known else 0
            along_batch = np.arange(batch).reshape(-1, *[1] * first.ndim)
            if not np.array_equal(samples, first + each * along_batch, equal_nan=True):
                raise Mixes("reads a constant with different rows for the samples of a batch")
            rows.append(first)
            steps.append(each)
            strides[index] = count * prod(after)
        arrays, step = rows, int(steps[0])
        if steps[0] != steps[1] or step != steps[0]:
            raise Mixes("reads a constant that depends on the batch size")
    degree = _degree(arrays, batches)
    counting = arrays[0].dtype.kind in "iuf" and arrays[0].size and np.isfinite(arrays[0]).all()
    counting = counting and (arrays[0] >= 0).all() and (arrays[0] == np.floor(arrays[0])).all()
    below = int(arrays[0].max()) + 1 if counting and not degree else 0
    if strides[0]:
        return [State(EACH, stride, degree, step, below) for stride in strides]
    return [State(FREE, degree=degree) for _ in arrays]


def _degree(arrays: Sequence[np.ndarray], batches: Sequence[int]) -> int:
    """The power of the batch size that a constant is proportional to.

    Raises:
      Mixes: it is proportional to none.
    """
    first, last = arrays
    if np.array_equal(first, last, equal_nan=first.dtype.kind == "f"):
        return 0
    numbers = [np.asarray(array, np.float64) for array in arrays]
    for degree in (1, -1):
        ratio = (batches[0] / batches[1]) ** degree
        if np.allclose(numbers[0], ratio * numbers[1], rtol=1e-6, atol=0):
            return degree
    raise Mixes("reads a constant that depends on the batch size")
