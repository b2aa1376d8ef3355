"""Mutated Programs are refused or run a step; kernels keep to what they declare."""

import pytest

from . import programs
from .kernels import calls_of, faults
from .nets import NETS, compiled

SHORT = ("depthwise", "lstm", "sparse")


def _right(found, least: float) -> None:
    wrong = [fault for tally in found.values() for fault in tally.faults]
    assert wrong == []
    tried, ran = (sum(getattr(t, what) for t in found.values()) for what in ("tried", "ran"))
    assert ran >= least * tried


def test_mutants_of_programs_are_refused_or_run() -> None:
    _right(programs.fuzz(120, 0, SHORT), 0.1)


@pytest.mark.slow
def test_many_mutants_of_programs_are_refused_or_run() -> None:
    _right(programs.fuzz(20_000, 1), 0.25)


def test_kernels_touch_only_what_they_declare() -> None:
    assert faults(calls_of(compiled("depthwise")), 4, 0) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_kernels_of_every_net_touch_only_what_they_declare(name: str) -> None:
    assert faults(calls_of(compiled(name)), 60, 1) == []
