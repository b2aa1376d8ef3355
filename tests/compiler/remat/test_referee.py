"""The rules of a schedule, one by one."""

import pytest

from benchmarks.yardsticks import SOLVERS
from benchmarks.yardsticks.peak import peak_nbytes
from edgetrain.compiler.remat import Problem, Replay, ScheduleError, Step, simulate
from edgetrain.compiler.remat.search.flat_problem import flatten

from .problems import chain, random_problem


def test_simulate_holds_every_value_until_its_last_read():
    simulation = simulate(chain(2, nbytes=4), (0, 1, 2, 3))
    assert simulation.profile == (8, 12, 20, 12)
    assert (simulation.peak_nbytes, simulation.extra_cost, simulation.extra_flops) == (20, 0, 0)


def test_simulate_counts_a_recomputed_instance_and_its_cost():
    simulation = simulate(chain(2, nbytes=4), (0, 1, 0, 2, 3))
    assert (simulation.peak_nbytes, simulation.extra_cost, simulation.extra_flops) == (20, 1, 1)
    lives = [(i.start, i.stop) for i in simulation.instances if i.value == 1]
    assert lives == [(0, 2), (2, 5)]


def test_simulate_takes_bytes_over_once_when_the_read_value_dies():
    steps = (
        Step(0, "make", (), (0,)),
        Step(1, "relu", (0,), (1,), inplace=((1, 0),)),
        Step(2, "use", (1,), ()),
    )
    problem = Problem((8, 8), steps)
    simulation = simulate(problem, (0, 1, 2))
    assert simulation.profile == (8, 8, 8)
    assert [i.source for i in simulation.instances] == [-1, 0]
    used_later = (*steps[:2], Step(2, "use", (0, 1), ()))
    assert simulate(Problem((8, 8), used_later), (0, 1, 2)).profile == (8, 16, 16)


def test_simulate_gives_an_unread_optional_value_no_bytes():
    assert simulate(Problem((8,), (Step(0, "make", (), (0,)),)), (0,)).peak_nbytes == 8
    problem = Problem((8,), (Step(0, "make", (), (0,)),), optional=frozenset({0}))
    assert simulate(problem, (0,)).peak_nbytes == 0


def test_simulate_keeps_outputs_and_counts_workspace():
    steps = (Step(0, "make", (), (0,), workspace=5), Step(1, "other", (), (1,)))
    problem = Problem((8, 1), steps, kept=frozenset({0}))
    assert simulate(problem, (0, 1)).profile == (13, 9)


def test_simulate_does_not_take_over_a_kept_value_in_the_last_step():
    steps = (Step(0, "make", (), (0,)), Step(1, "use", (0,), (1,), inplace=((1, 0),)))
    problem = Problem((8, 8), steps, kept=frozenset({0, 1}))
    for measure in (Replay(problem), lambda schedule: simulate(problem, schedule)):
        found = measure((0, 1))
        assert found.profile == (8, 16)
        assert [i.source for i in found.instances] == [-1, -1]
    assert peak_nbytes(problem, flatten(problem), (0, 1)) == problem.lower_bound() == 16


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ((1, 0, 2, 3), "which is not in memory"),
        ((0, 1, 3, 2), "must come after"),
        ((0, 1, 2, 3, 3), "only once"),
        ((0, 1, 2), "never runs"),
        ((0, 9), "position 1: there is no step 9"),
    ],
)
def test_simulate_refuses_an_invalid_schedule(schedule, words):
    with pytest.raises(ScheduleError, match=words):
        simulate(chain(2), schedule)


@pytest.mark.parametrize("seed", range(6))
def test_fast_peak_is_the_referees(seed):
    for problem in (chain(12, nbytes=3, saved=2), random_problem(seed)):
        for schedule in SOLVERS["general"](problem, 1):
            peak = simulate(problem, schedule).peak_nbytes
            assert peak_nbytes(problem, flatten(problem), schedule) == peak
