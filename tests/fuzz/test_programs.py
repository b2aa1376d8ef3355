"""Mutated Programs are refused or run a step; kernels stay within their declared extents."""

from collections.abc import Iterable
from itertools import chain

import pytest

from edgetrain.kernels import registry

from . import programs
from .kernels import alone, calls_of, extremes, faults, few, strain, strained
from .nets import ALL, BY_HAND, NETS, compiled, parts

SHORT = ("depthwise", "lstm", "sparse", "attention by blocks", "adapters", "slices", "two lengths")


def _right(found: Iterable[tuple[str, programs.Tally]], least: float) -> None:
    total = programs.Tally()
    for _, tally in found:
        total.add(tally)
    assert total.faults == []
    assert total.ran >= least * total.tried


def test_mutants_of_programs_are_refused_or_run() -> None:
    _right(programs.fuzz(150, 0, SHORT), 0.1)


@pytest.mark.slow
@pytest.mark.forks
def test_many_mutants_of_programs_are_refused_or_run() -> None:
    _right(programs.fuzz(20_000, 1), 0.25)


def test_kernels_touch_only_what_they_declare() -> None:
    assert faults(calls_of(compiled("depthwise")), 4, 0) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_kernels_of_every_net_touch_only_what_they_declare(name: str) -> None:
    assert faults(few(calls_of(compiled(name))), 60, 1) == []


@pytest.mark.slow
def test_every_kernel_is_in_a_net_or_called_by_hand() -> None:
    nets = (compiled(name) for name in NETS)
    programs_of_parts = (program for _, program in parts())
    reached = {row[0] for program in chain(nets, programs_of_parts) for row in program.kernels}
    names = [n for n in registry.names() if not n.startswith(("drive_", "test_"))]
    in_tapes = {n for n in names if n != "run_tape"}
    assert sorted(in_tapes - reached) == sorted(BY_HAND)


def test_extremes_of_every_integer_are_refused_or_stay_inside() -> None:
    nets = chain.from_iterable(calls_of(compiled(name)) for name in ("lstm", "slices", "rows"))
    found = strain(strained([*nets, *(alone(name) for name in BY_HAND)]), 0)
    assert found.faults == []
    assert min(found.refused, found.ran) > 500


@pytest.mark.slow
@pytest.mark.forks
def test_extremes_of_every_net_are_refused_or_stay_inside() -> None:
    tallies = [found for _, found in extremes(1)]
    assert [fault for found in tallies for fault in found.faults] == []
    assert sum(found.tried for found in tallies) > 5_000
