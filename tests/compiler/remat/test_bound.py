"""The exact solver, and other solvers compared with it."""

import pytest

from benchmarks.yardsticks import frontier, solve
from edgetrain.compiler.remat import simulate
from edgetrain.compiler.remat.bound import least_cost, least_peak

from .problems import chain, random_problem


@pytest.mark.parametrize("budget", [6, 7, 9])
def test_milp_and_chain_agree_on_a_small_chain(budget):
    problem = chain(6, nbytes=1)
    schedule = least_cost(problem, budget).schedule
    assert schedule is not None
    exact = simulate(problem, schedule)
    assert exact.peak_nbytes <= budget
    found = simulate(problem, solve(problem, budget=budget, solver="chain"))
    assert found.extra_cost == exact.extra_cost


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_general_is_as_cheap_as_milp_on_small_graphs(seed):
    problem = random_problem(seed, forwards=6)
    peak = simulate(problem, solve(problem)).peak_nbytes
    budget = int(0.85 * peak)
    schedule = least_cost(problem, budget).schedule
    if schedule is None:
        pytest.skip(f"no schedule of this graph fits {budget} bytes")
    exact = simulate(problem, schedule)
    found = simulate(problem, solve(problem, budget=budget, solver="general", effort=2))
    assert found.extra_cost <= exact.extra_cost


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_reached_and_never_passed(seed):
    problem = random_problem(seed, forwards=5)
    peak = least_peak(problem)
    assert peak.complete and peak.schedule is not None
    assert simulate(problem, peak.schedule).peak_nbytes == peak.bound
    for schedule, simulation in frontier(problem, 1):
        cost = least_cost(problem, simulation.peak_nbytes)
        assert cost.schedule is not None, schedule
        assert cost.bound <= simulate(problem, cost.schedule).extra_cost
        assert peak.bound <= simulation.peak_nbytes
        assert cost.bound <= simulation.extra_cost


def test_no_schedule_fits_below_the_least_peak():
    problem = random_problem(3, forwards=5)
    assert least_cost(problem, int(least_peak(problem).bound) - 1).schedule is None
