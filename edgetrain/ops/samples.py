"""Rules that tell whether ops keep the samples of a batch independent (`Op.samples`).

For a batch of b samples, a value is

  FREE    independent of the samples: a parameter, a constant, or computed from those;
  EACH    divided into samples: element e depends only on sample (e // stride) % b;
  POOLED  a mean over samples of something that depends on one sample each;

times b ** degree: a sum over the batch is POOLED of degree 1, the constant 1 / b FREE of degree -1.
A stride locates samples independently of the shape, so views keep it. A rule returns the state of
its output, or raises `Mixes` with the reason; an op without a rule mixes samples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..ir import Graph, Node
from .strides import contiguous, prod

FREE, EACH, POOLED = "free", "each", "pooled"
Shape = Sequence[int]


class Mixes(Exception):
    """Samples depend on each other; the text continues "node N "."""


@dataclass(frozen=True, slots=True)
class State:
    """What is known about a value.

    Attributes:
      stride: stride of samples in elements, for EACH.
      degree: power of the batch size it is multiplied by.
      step: offset added per sample, as in row numbers of a flattened table.
      below: without steps, values are integers in [0, below); 0: unknown.
    """

    kind: str
    stride: int = 0
    degree: int = 0
    step: int = 0
    below: int = 0


@dataclass(frozen=True)
class Look:
    """A node and the states of its inputs (None if absent).

    Attributes:
      array: returns the constant of a value, or None.
    """

    node: Node
    graph: Graph
    batch: int
    states: tuple[State | None, ...]
    array: Callable[[str], np.ndarray | None]

    @property
    def present(self) -> list[tuple[State, Shape]]:
        """(state, shape) of the inputs that are not absent."""
        named = zip(self.states, self.node.inputs, strict=True)
        return [(state, self.graph.values[name].shape) for state, name in named if state]

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an input."""
        return self.graph.values[self.node.inputs[index]].shape

    def out(self, index: int = 0) -> tuple[int, ...]:
        """Shape of an output."""
        return self.graph.values[self.node.outputs[index]].shape

    def has(self, kind: str) -> bool:
        """Whether some input is of this kind."""
        return any(state.kind == kind for state, _ in self.present)

    def number(self, index: int) -> float | None:
        """The value of a constant input with one element; None otherwise."""
        array = self.array(self.node.inputs[index])
        return float(array.ravel()[0]) if array is not None and array.size == 1 else None


Rule = Callable[[Look], "State | Sequence[State | None]"]


# Position of samples.


def along(shape: Shape, stride: int, batch: int) -> list[int]:
    """Axes along which the sample changes."""
    steps = contiguous(shape)
    return [
        k
        for k, (size, step) in enumerate(zip(shape, steps, strict=True))
        if size > 1 and stride % (step * size) and step % (stride * batch)
    ]


def place(shape: Shape, stride: int, batch: int) -> tuple[int, int]:
    """(axis, inner): the one axis of samples, whose rows are outer x batch x inner.

    Raises:
      Mixes: the batch is not whole in one axis.
    """
    axes = along(shape, stride, batch)
    if len(axes) == 1:
        step = contiguous(shape)[axes[0]]
        if stride % step == 0 and shape[axes[0]] % (stride // step * batch) == 0:
            return axes[0], stride // step
    raise Mixes("splits the batch axis")


def stride_at(shape: Shape, axis: int, inner: int) -> int:
    """The sample stride if samples are at this axis, with `inner` elements per step."""
    return inner * prod(shape[axis + 1 :])


def _plain(look: Look) -> None:
    """Check operands of a nonlinear op: no sums, and nothing that grows with the batch or the
    sample."""
    for state, _ in look.present:
        if state.kind == POOLED:
            raise Mixes("computes with a sum or mean over the batch")
        if state.degree or state.step:
            raise Mixes("computes with the batch size or a sample's position")


def _broadcast(look: Look) -> State:
    """State of the output of operands that broadcast, with the position of samples."""
    out, strides = look.out(), set()
    for state, shape in look.present:
        if state.kind == EACH and tuple(shape) != tuple(out):
            axis, inner = place(shape, state.stride, look.batch)
            size, axis = shape[axis], axis + len(out) - len(shape)
            if out[axis] != size:
                raise Mixes("splits the batch axis")
            strides.add(stride_at(out, axis, inner))
        elif state.kind == EACH:
            strides.add(state.stride)
    if not strides:
        return State(FREE)
    if len(strides) > 1:
        raise Mixes("combines different samples")
    (stride,) = strides
    axes = along(out, stride, look.batch)
    for state, shape in look.present:
        padded = [1] * (len(out) - len(shape)) + list(shape)
        if state.kind == FREE and any(padded[k] > 1 for k in axes):
            raise Mixes("uses different numbers for the samples of a batch")
    return State(EACH, stride)


# Rules.


def apart(look: Look) -> State:
    """Elementwise with broadcasting; not linear."""
    _plain(look)
    return _broadcast(look)


def linear(look: Look) -> State:
    """One operand, possibly broadcast."""
    ((state, _),) = look.present
    return replace(state, stride=_broadcast(look).stride) if state.kind == EACH else state


def negated(look: Look) -> State:
    """One operand times -1."""
    state = linear(look)
    return replace(state, step=-state.step, below=0)


def unchanged(look: Look) -> State:
    """The same bytes, or an op that keeps each element's place."""
    return look.present[0][0]


def dropped(look: Look) -> State:
    """Each element is kept or dropped independently."""
    _plain(look)
    return look.present[0][0]


def added(look: Look) -> State:
    """Sums of two operands, of the same degree: otherwise the batch size would weight them."""
    return _added(look, 1)


def subtracted(look: Look) -> State:
    """Differences; like sums."""
    return _added(look, -1)


def _added(look: Look, sign: int) -> State:
    states = [state for state, _ in look.present]
    degrees = {state.degree for state in states}
    if len(degrees) > 1:
        raise Mixes("adds a sum over the batch to another value")
    (degree,) = degrees
    if look.has(POOLED):
        if look.has(EACH):
            raise Mixes("combines samples with a sum or mean over the batch")
        return State(POOLED, degree=degree)
    first, second = states
    below = first.below + second.below - 1 if first.below and second.below and sign > 0 else 0
    step = first.step + sign * second.step
    return replace(_broadcast(look), degree=degree, step=step, below=below)


def multiplied(look: Look) -> State:
    """Products: a sum or mean over the batch times a FREE value remains one."""
    states = [state for state, _ in look.present]
    degree = sum(state.degree for state in states)
    if look.has(POOLED):
        if sum(state.kind == FREE for state in states) < len(states) - 1:
            raise Mixes("multiplies sums or means over the batch")
        return State(POOLED, degree=degree)
    result = replace(_broadcast(look), degree=degree)
    numbers = [look.number(k) for k in range(2)]
    for state, number in zip(states, numbers[::-1], strict=True):
        if number is not None and number >= 0 and number % 1 == 0:
            below = (state.below - 1) * int(number) + 1 if state.below else 0
            return replace(result, step=state.step * int(number), below=below)
    _without_steps(states)
    return result


def divided(look: Look) -> State:
    """Quotients: the divisor may be FREE or per sample."""
    top, bottom = (state for state, _ in look.present)
    if bottom.kind == POOLED or top.kind == POOLED and bottom.kind == EACH:
        raise Mixes("divides with a sum over the batch")
    _without_steps([top, bottom])
    if top.kind == POOLED:
        return State(POOLED, degree=top.degree - bottom.degree)
    return replace(_broadcast(look), degree=top.degree - bottom.degree)


def remainder(look: Look) -> State:
    """A remainder is below a known divisor."""
    _plain(look)
    number = look.number(1)
    whole = number is not None and number > 0 and number == int(number)
    return replace(_broadcast(look), below=int(number) if whole and number else 0)


def _without_steps(states: Sequence[State]) -> None:
    if any(state.step for state in states):
        raise Mixes("computes with a sample's position in the batch")


def _over(look: Look, axes: Sequence[int]) -> list[int]:
    """The axes along which samples change; the input is EACH."""
    state, shape = look.present[0]
    return [k for k in along(shape, state.stride, look.batch) if k in axes]


def _kept(look: Look, axes: Sequence[int]) -> State:
    """Samples keep their order when axes inside of them are reduced."""
    state, shape = look.present[0]
    steps = contiguous(shape)
    inside = [shape[k] for k in axes if state.stride % (steps[k] * shape[k]) == 0]
    return State(EACH, state.stride // prod(inside), state.degree)


def summed(look: Look) -> State:
    """Sums over axes: over the whole batch they are POOLED, with one degree more."""
    return _pooled(look, 1)


def averaged(look: Look) -> State:
    """Means over axes: over the whole batch they are POOLED, with the same degree."""
    return _pooled(look, 0)


def _pooled(look: Look, degrees: int) -> State:
    state, shape = look.present[0]
    _without_steps([state])
    axes = look.node.attrs["axes"]
    if state.kind != EACH:
        return replace(state, below=0)
    over = _over(look, axes)
    if not over:
        return _kept(look, axes)
    if over != along(shape, state.stride, look.batch):
        raise Mixes("sums over part of the batch")
    return State(POOLED, degree=state.degree + degrees)


def totalled(look: Look) -> State:
    """Sums of a function of each element over axes: over the whole batch they are POOLED."""
    _plain(look)
    state, shape = look.present[0]
    axes = look.node.attrs["axes"]
    if state.kind == FREE:
        return State(FREE)
    over = _over(look, axes)
    if not over:
        return _kept(look, axes)
    if over != along(shape, state.stride, look.batch):
        raise Mixes("sums over part of the batch")
    return State(POOLED, degree=1)


def reduced(look: Look) -> State:
    """Extremes and products over axes other than the batch."""
    _plain(look)
    if look.present[0][0].kind == FREE:
        return State(FREE)
    axes = look.node.attrs["axes"]
    if _over(look, axes):
        raise Mixes("reduces over the batch")
    return _kept(look, axes)


def over_axis(look: Look) -> State:
    """An op along attrs['axis'] that keeps the shape."""
    _plain(look)
    state = look.present[0][0]
    if state.kind == EACH and _over(look, [look.node.attrs["axis"]]):
        raise Mixes("works along the batch axis")
    return state


def over_rows(look: Look) -> State:
    """An op on rows of attrs['n'] elements that keeps the shape; further inputs are FREE."""
    _plain(look)
    first, *others = (state for state, _ in look.present)
    if any(state.kind != FREE for state in others) or first.stride % look.node.attrs["n"]:
        raise Mixes("works along the batch axis")
    return first


def images(look: Look) -> State:
    """[n, channels, ...] to another such value, image by image; other inputs are FREE."""
    _plain(look)
    (first, shape), *others = look.present
    if any(state.kind != FREE for state, _ in others):
        raise Mixes("has a weight that depends on the samples")
    if first.kind == FREE:
        return first
    axis, inner = place(shape, first.stride, look.batch)
    if axis or look.out()[0] != shape[0]:
        raise Mixes("uses the batch axis as a channel or image axis")
    return State(EACH, stride_at(look.out(), 0, inner))


def along_axis(look: Look, is_whole: Callable[[int], bool]) -> State:
    """Each sample by itself, along any axis that is carried over as it is (`is_whole`)."""
    _plain(look)
    ((state, shape),) = look.present
    if state.kind == FREE:
        return state
    axis, inner = place(shape, state.stride, look.batch)
    if not is_whole(axis):
        raise Mixes("pads the batch")
    return State(EACH, stride_at(look.out(), axis, inner))


def product(look: Look) -> State:
    """A matrix product and its bias: samples are rows, columns or separate products, never summed
    over."""
    states, out = [state for state, _ in look.present], look.out()
    degree = states[0].degree + states[1].degree
    if any(state.kind != FREE or state.degree != degree for state in states[2:]):
        raise Mixes("adds a bias that depends on the samples or the batch size")
    _without_steps(states)
    if look.has(POOLED):
        if FREE not in (states[0].kind, states[1].kind):
            raise Mixes("multiplies sums or means over the batch")
        return State(POOLED, degree=degree)
    strides = {
        _through_product(look, index)
        for index, state in enumerate(states[:2])
        if state.kind == EACH
    }
    if not strides:
        return State(FREE, degree=degree)
    if len(strides) > 1:
        raise Mixes("multiplies different samples")
    (stride,) = strides
    axes = along(out, stride, look.batch)
    if all(state.kind == EACH for state in states[:2]) and any(k >= len(out) - 2 for k in axes):
        raise Mixes("multiplies different samples")
    for index, (state, shape) in enumerate(look.present[:2]):
        padded = [1] * (len(out) - len(shape)) + list(shape)
        batched = [k for k in axes if k < len(out) - 2]
        if state.kind == FREE and any(padded[k] > 1 for k in batched):
            raise Mixes(f"uses different matrices {'ab'[index]} for the samples of a batch")
    return State(EACH, stride, degree)


def _through_product(look: Look, index: int) -> int:
    """The stride that operand `index` (a or b) gives to the output."""
    state, shape = look.present[index]
    axis, inner = place(shape, state.stride, look.batch)
    rows = len(shape) - 2
    turned = look.node.attrs.get(("ta", "tb")[index], False)
    if axis >= rows:
        kept = rows + (index if not turned else 1 - index)  # the axis kept in the output
        if axis != kept:
            raise Mixes("sums products over the batch")
        axis = len(look.out()) - 2 + index
    else:
        axis += len(look.out()) - len(shape)
        if look.out()[axis] != shape[axis - len(look.out()) + len(shape)]:
            raise Mixes("splits the batch axis")
    return stride_at(look.out(), axis, inner)


def gathered(look: Look) -> State:
    """Rows of x by indices: of a table, or of the sample itself by its own indices."""
    (x, shape), (index, places) = look.present
    axis, lead = look.node.attrs["axis"], len(places)
    if POOLED in (x.kind, index.kind) or index.degree or x.step:
        raise Mixes("looks up a sum over the batch")
    if index.kind == FREE:
        if x.kind == FREE:
            return State(FREE, degree=x.degree)
        found_axis, inner = place(shape, x.stride, look.batch)
        if found_axis == axis:
            raise Mixes("picks samples by their position in the batch")
        found_axis += lead - 1 if found_axis > axis else 0
        return State(EACH, stride_at(look.out(), found_axis, inner), x.degree)
    found_axis, inner = place(places, index.stride, look.batch)
    result = State(EACH, stride_at(look.out(), axis + found_axis, inner), x.degree)
    if x.kind == FREE:
        if index.step:
            raise Mixes("picks rows by a sample's position in the batch")
        return result
    own, rows = place(shape, x.stride, look.batch)
    fits = own == axis and shape[axis] == rows * look.batch
    if not fits or index.step != rows or not 0 < index.below <= rows:
        raise Mixes("picks rows of other samples")
    return result


def ranked(look: Look) -> State:
    """Indices along attrs['axis'], which keeps its position but changes its size."""
    _plain(look)
    state, shape = look.present[0]
    axis = look.node.attrs["axis"]
    if state.kind == FREE:
        return State(FREE)
    found_axis, inner = place(shape, state.stride, look.batch)
    if found_axis == axis:
        raise Mixes("works along the batch axis")
    return State(EACH, stride_at(look.out(), found_axis, inner), below=shape[axis])


def picked(look: Look) -> State:
    """Elements along attrs['axis'] of the sample's own rows, by its own indices."""
    (x, shape), (index, places) = look.present
    result = ranked(look)
    if result.kind == FREE and index.kind == FREE:
        return result
    _plain(look)
    if x.kind != index.kind:
        raise Mixes("picks elements by a sample's position in the batch")
    if place(shape, x.stride, look.batch) != place(places, index.stride, look.batch):
        raise Mixes("picks elements of other samples")
    return replace(result, below=0)


def scattered(look: Look) -> State:
    """Rows [outer, count, inner] written into [outer, rows, inner]: the inverse of `gathered`."""
    (u, shape), (index, places) = look.present
    if POOLED in (u.kind, index.kind) or index.degree or u.step:
        raise Mixes("scatters a sum over the batch")
    if index.kind == FREE:
        found_axis, inner = place(shape, u.stride, look.batch)
        if found_axis == 1:
            raise Mixes("writes samples by their position in the batch")
        return State(EACH, stride_at(look.out(), found_axis, inner), u.degree)
    _, rows, inner = look.out()
    own = rows // look.batch
    fits = shape[0] == 1 and index.step == own and 0 < index.below <= own
    if u.kind != EACH or u.stride != index.stride * inner or not fits:
        raise Mixes("writes rows of other samples")
    return State(EACH, own * inner, u.degree)


def copied(look: Look) -> State:
    """Strided copies from inputs to the output: each moves whole samples to their places."""
    moves, fill = look.node.attrs["moves"], look.node.attrs.get("fill") or 0.0
    given = [state for state, _ in look.present]
    if len({state.degree for state in given}) > 1 or fill and given[0].degree:
        raise Mixes("concatenates a sum over the batch with another value")
    first = given[0]
    if look.has(POOLED):
        if look.has(EACH):
            raise Mixes("concatenates samples with a sum or mean over the batch")
        return State(POOLED, degree=first.degree)
    if not look.has(EACH):
        return State(FREE, degree=first.degree)
    if not moves:  # only the fill, equal for all samples
        stride, rest = divmod(prod(look.out()), look.batch)
        return State(FREE, degree=first.degree) if rest else replace(first, stride=stride)
    if len(given) > 1 or len(moves) > 1 or fill:
        _without_steps(given)
    strides = set()
    for source, xo, yo, dims, xs, ys in moves:
        if given[source].kind == EACH:
            result = _digit(dims, xs, xo, given[source].stride, look.batch)
            stride = ys[result[0]] * result[1]
            if stride < 1 or _digit(dims, ys, yo, stride, look.batch) != result:
                raise Mixes("splits samples")
            strides.add(stride)
    if len(strides) > 1 or prod(look.out()) % (max(strides) * look.batch):
        raise Mixes("combines different samples")
    (stride,) = strides
    for source, _, yo, dims, xs, ys in moves:
        if given[source].kind == FREE:
            result = _digit(dims, ys, yo, stride, look.batch)
            if xs[result[0]]:
                raise Mixes("uses different rows for the samples of a batch")
    below = max(state.below for state in given) if all(state.below for state in given) else 0
    return replace(first, kind=EACH, stride=stride, step=max(s.step for s in given), below=below)


def _digit(dims: Shape, steps: Shape, offset: int, stride: int, batch: int) -> tuple[int, int]:
    """(dimension of a copy along which the sample changes, its steps per sample).

    Raises:
      Mixes: the copy does not treat all samples alike.
    """
    low = high = offset % stride
    result = None
    for k, (size, step) in enumerate(zip(dims, steps, strict=True)):
        if size == 1 or step % (stride * batch) == 0:
            continue
        reach = step * (size - 1)
        if abs(reach) < stride:
            low, high = low + min(0, reach), high + max(0, reach)
            continue
        inner = stride // step if step > 0 and stride % step == 0 else 0
        if result or not inner or size % (inner * batch):
            raise Mixes("uses only some samples of the batch")
        result, high = (k, inner), high + step * (inner - 1)
    if result is None or low < 0 or high >= stride or offset // stride % batch:
        raise Mixes("uses only some samples of the batch")
    return result


def statistics(look: Look) -> State:
    """Batch-norm statistics, the one exception: treated as independent of the samples."""
    state = look.present[0][0]
    if state.kind == POOLED or state.degree:
        raise Mixes("takes statistics of a sum over the batch")
    return State(FREE)


_AXES = {"y": 2, "yh": 1, "yc": 1, "gates": 2, "cells": 2}  # sample axis of a recurrence's outputs
_STATES = {0: 1, 4: 0, 5: 1, 6: 1}  # and in its inputs that have one: x, lens, h0, c0


def recurrent(look: Look) -> Sequence[State | None]:
    """Sequences [time, samples, features], each independent of the others."""
    _plain(look)
    inners = set()
    for index, state in enumerate(look.states):
        if state is not None and state.kind == EACH:
            axis, inner = place(look.shape(index), state.stride, look.batch)
            if _STATES.get(index) != axis:
                raise Mixes("uses the batch axis as time or features")
            inners.add(inner)
        elif state is not None and index in _STATES and look.shape(index)[_STATES[index]] > 1:
            raise Mixes("has different initial states for the samples of a batch")
    made = look.node.attrs["made"]
    if len(inners) != 1:
        raise Mixes("combines different samples")
    (inner,) = inners
    shapes = [look.out(index) for index in range(len(made))]
    return [
        State(EACH, stride_at(shape, _AXES[key], inner))
        for key, shape in zip(made, shapes, strict=True)
    ]
