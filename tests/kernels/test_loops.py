"""The planner's compiled loops return what Python returns."""

import ast
import copy

import numpy as np
import pytest

from edgetrain.kernels.cache import jit
from edgetrain.kernels.loops import functions, instructions, text
from tests.kernels import looped


def table() -> looped.Table:
    return looped.Table(
        np.array([5, -2, 9, 3, 8]),
        np.array([7, -7], np.int32),
        np.array([88172645463325252], np.uint64),
        np.array([0.5, -1.25, 3.0]),
        np.array([0.1, 0.2, 0.7], np.float32),
        np.array([False, False]),
        np.array([[1, 2, 3], [40, 50, 60]]),
        1.5,
        11,
    )


NUMBERS = [(7, 3, 1.5), (-7, 3, 0.25), (7, -3, 3.75), (-7, -3, 1.0), (0, 5, 2.0), (-64, 16, 9.0)]


@pytest.mark.parametrize("numbers", NUMBERS)
def test_arithmetic_is_that_of_python(numbers: tuple[int, int, float]) -> None:
    wanted = looped.arithmetic.function(*numbers)
    found = looped.arithmetic(*numbers)
    assert found.whole == wanted.whole
    assert found.part == pytest.approx(wanted.part, rel=1e-14)  # log and exp of two libraries


@pytest.mark.parametrize("name", ["control", "memory"])
@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, 20, -1])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_loops_are_those_of_python(name: str, number: int) -> None:
    entry = getattr(looped, name)
    ours, theirs = table(), copy.deepcopy(table())
    found, wanted = entry(ours, number), entry.function(theirs, number)
    assert found == wanted
    for one, other in zip(ours[:7], theirs[:7], strict=True):
        assert (one == other).all()


def test_an_object_is_the_same_each_time() -> None:
    entries = {"et_memory": looped.memory, "et_control": looped.control}
    assert text.object_of(entries, jit.host()) == text.object_of(entries, jit.host())
    assert text.text_of(entries) == text.text_of(entries)


def test_what_loops_cannot_be_written_in_is_named_with_its_line() -> None:
    kinds = [instructions.INT, instructions.INT]
    body = text._Body(looped.memory.function, kinds, lambda *_: (None, ""))
    (statement,) = ast.parse("x = [1, 2]").body
    with pytest.raises(NotImplementedError, match="List is not supported") as caught:
        body._statements([statement])
    assert caught.value.__notes__[0].endswith("looped.py:1: x = [1, 2]")


def test_the_oldest_tables_of_records_are_given_up() -> None:
    kinds = looped.Table.__annotations__.values()
    records = [table() for _ in range(3 * functions._KEPT_TABLES)]
    for record in records:
        functions._table(tuple(kinds), record)
    assert len(functions._tables) == functions._KEPT_TABLES
    functions._tables.clear()
