"""The yardstick, and the other solvers held against it."""

import pytest

from edgetrain.compiler.remat import simulate, solve
from edgetrain.compiler.remat.milp import cheapest

from .problems import chain, random_problem


@pytest.mark.parametrize("budget", [6, 7, 9])
def test_milp_and_chain_agree_on_a_small_chain(budget):
    problem = chain(6, nbytes=1)
    schedule = cheapest(problem, budget)
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
    schedule = cheapest(problem, budget)
    if schedule is None:
        pytest.skip(f"no schedule of this graph fits {budget} bytes")
    exact = simulate(problem, schedule)
    found = simulate(problem, solve(problem, budget=budget, solver="general", effort=2))
    assert found.extra_cost <= exact.extra_cost
