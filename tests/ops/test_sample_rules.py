"""Rules for samples (`Op.samples`), checked against the meanings of cases, one sample at a time.

A rule says how an output depends on the samples of a batch. Here single samples are changed, so a
rule that claims too much shows even in a net that can't be split for another reason. Operands that
are parameters in the case are also tried as means over the batch. Each other axis of an operand is
tried as the samples too, as behind a transposition.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto

from edgetrain.compiler.bind import Bound, bind
from edgetrain.errors import ModelError
from edgetrain.importer.decode import decode
from edgetrain.importer.load import parse
from edgetrain.ops.model import Model
from edgetrain.ops.registry import op
from edgetrain.ops.samples import EACH, FREE, POOLED, Look, Mixes, State
from edgetrain.ops.strides import prod

from ..cases import CASES, Case
from ..op_case import A, C, Ids, P, X
from . import harness

ONNX_TYPES = {torch.int64: TensorProto.INT64, torch.bool: TensorProto.BOOL}
RANDOM = ("Bernoulli", "Dropout")
WITH_SAMPLES = [case for case in CASES if any(isinstance(a, X | Ids) for a in case.args)]


def _state(bound: Bound, output: str, batch: int, states: dict[str, State]) -> State | None:
    """The output's state, from its operands' states; None if samples are mixed."""
    graph = bound.graph

    def of(name: str) -> State:
        return states.get(name) or states.get(graph.root(name)) or State(FREE)

    for node in graph.nodes:
        read = tuple(of(name) if name else None for name in node.inputs)
        if all(state is None or (state.kind, state.degree) == (FREE, 0) for state in read):
            continue
        rule = op(node.op).samples
        if rule is None or op(node.op).spreads:
            return None
        try:
            result = rule(Look(node, graph, batch, read, bound.arrays.get))
        except Mixes:
            return None
        result = [result] if isinstance(result, State) else result
        for name, state in zip(node.outputs, result, strict=False):
            if name and state is not None:
                states.setdefault(name, state)
    return of(bound.outputs[output])


class _Operands:
    """A case's operands as functions of the samples; those in `pooled` are means over them.

    Attributes:
      axes: operand -> its axis of samples.
      batch: number of samples.
    """

    def __init__(
        self, case: Case, pooled: Sequence[int], output: int, axes: Mapping[int, int] | None = None
    ) -> None:
        self.case, self.index, maker = case, output, harness.Maker(case, True)
        given = {k: 0 for k, arg in enumerate(case.args) if isinstance(arg, X | Ids)}
        self.values, self.axes = maker.values, given if axes is None else axes
        self.batch = next(self.values[k].shape[axis] for k, axis in self.axes.items())
        self.parts = {k: maker.numbers((self.batch, *case.args[k].shape), True) for k in pooled}

    def output(self, *changed: int, times: int = 1) -> np.ndarray:
        """The output with these samples changed, and with all samples repeated."""
        values = []
        for k, (arg, value) in enumerate(zip(self.case.args, self.values, strict=True)):
            if k in self.axes:
                samples = enumerate(value.unbind(self.axes[k]))
                rows = [_changed(arg, v) if j in changed else v for j, v in samples]
                value = torch.stack(rows * times, self.axes[k]).detach()
            elif k in self.parts:
                parts = [p + 0.3 * (j in changed) for j, p in enumerate(self.parts[k])]
                sign = -1 if isinstance(arg, A) and arg.positive else 1
                value = value.detach() + 0.1 * sign * torch.tensor(np.mean(parts, 0))
            values.append(value)
        y = _parts(self.case.meaning(*values))[self.index]
        return y.detach().double().numpy()

    def of_twice_as_many(self) -> np.ndarray | None:
        """The output for all samples twice; None if the meaning is of this batch only."""
        if any(self.axes.values()):
            return None
        constants = [arg.array.shape for arg in self.case.args if isinstance(arg, C)]
        if any(len(shape) > 1 and shape[0] == self.batch for shape in constants):
            return None
        try:
            return self.output(times=2)
        except RuntimeError:  # torch's, about a shape
            return None


def _changed(arg: X | Ids, sample: torch.Tensor) -> torch.Tensor:
    """Another sample with values in the same range."""
    if isinstance(arg, Ids):
        return (sample + 1) % arg.high
    if isinstance(arg.positive, tuple):
        return sum(arg.positive) - sample
    return 1.5 * sample + 0.25


def _check(operands: _Operands, state: State) -> None:
    first, batch = operands.output(), operands.batch
    other = operands.output(0)
    if state.kind == EACH:
        shape = (-1, batch, state.stride)
        assert _equal(other.reshape(shape)[:, 1:], first.reshape(shape)[:, 1:])
    elif state.kind == POOLED:  # a sum over samples: changes add up
        both = operands.output(0, 1)
        assert _equal(both + first, other + operands.output(1))
    else:
        assert _equal(other, first)
    expected = first * 2.0**state.degree
    if state.kind == EACH:
        expected = np.tile(expected.reshape(-1, batch, state.stride), (1, 2, 1))
    twice = operands.of_twice_as_many()
    if twice is not None and twice.size == expected.size:  # else its meaning fixes the batch
        assert _equal(twice.ravel(), expected.ravel())


def _equal(one: np.ndarray, two: np.ndarray) -> bool:
    return np.allclose(one, two, rtol=1e-7, atol=1e-7, equal_nan=True)


def _model(case: Case, output: int) -> tuple[Model, list[str]]:
    """A model of the case's node alone, with one of its outputs; names of the operands."""
    maker = harness.Maker(case, True)
    parts = _parts(case.meaning(*maker.values))
    maker.node(parts)
    proto = maker.model(f"y{output}", parts[output].shape)
    declared = case.attrs.get("to") or ONNX_TYPES.get(parts[output].dtype)
    if declared:
        proto.graph.output[0].type.tensor_type.elem_type = declared
    return decode(parse(proto.SerializeToString(), case.id), Path(case.id)), maker.names


@pytest.mark.parametrize("case", WITH_SAMPLES, ids=lambda case: case.id)
def test_an_output_depends_on_samples_as_its_rule_says(case):
    if case.op in RANDOM or case.truth or not case.predicts:
        pytest.skip("random, of statistics of a microbatch, or a comparison hides changes")
    parameters = [k for k, arg in enumerate(case.args) if isinstance(arg, A) or _is_trained(arg)]
    checked = 0
    for output in range(_outputs(case)):
        model, names = _model(case, output)
        for pooled in [(), *((k,) for k in parameters)]:
            operands = _Operands(case, pooled, output)
            try:
                bound = bind(model, operands.batch)
            except ModelError as error:
                pytest.skip(f"the case fixes its batch: {error}")
            states = {
                name: State(EACH, prod(bound.graph.values[name].shape[1:]))
                for name in bound.graph.inputs
            }
            states |= {names[k]: State(POOLED) for k in pooled}
            state = _state(bound, f"y{output}", operands.batch, states)
            if state is not None and not state.step:
                _check(operands, state)
                checked += 1
    if not checked:
        pytest.skip("its rule claims nothing")


@pytest.mark.parametrize("case", WITH_SAMPLES, ids=lambda case: case.id)
def test_an_output_depends_on_samples_of_any_axis_as_its_rule_says(case):
    if case.op in RANDOM or case.truth or not case.predicts:
        pytest.skip("random, of statistics of a microbatch, or a comparison hides changes")
    values = harness.Maker(case, True).values
    shapes = [() if value is None else tuple(value.shape) for value in values]
    given = [k for k, arg in enumerate(case.args) if isinstance(arg, X | Ids)]
    longest = max((shapes[k] for k in given), key=len)
    checked = 0
    for output in range(_outputs(case)):
        model, names = _model(case, output)
        try:
            bound = bind(model, shapes[given[0]][0])
        except ModelError as error:
            pytest.skip(f"the case fixes its batch: {error}")
        for last in range(-len(longest) + 1, 0):
            size = longest[last]
            axes = {k: last for k in given if len(shapes[k]) >= -last and shapes[k][last] == size}
            states = {names[k]: State(EACH, prod(shapes[k][last:][1:])) for k in axes}
            state = _state(bound, f"y{output}", size, states) if size > 1 else None
            if state is not None and not state.step:
                _check(_Operands(case, (), output, axes), state)
                checked += 1
    if not checked:
        pytest.skip("its rule claims nothing")


def _outputs(case: Case) -> int:
    """How many of the node's outputs its meaning gives."""
    return len(_parts(case.meaning(*harness.Maker(case, True).values)))


def _is_trained(arg: object) -> bool:
    return isinstance(arg, P) and not arg.buffer


def _parts(y) -> tuple[torch.Tensor, ...]:
    return tuple(y) if isinstance(y, tuple | list) else (y,)
