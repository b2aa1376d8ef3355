"""The chain solver against enumeration, other solvers' Pareto fronts, and its own promises."""

import json
from functools import cache
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pytest

from benchmarks.schedule import load_graph, to_problem
from benchmarks.yardsticks import frontier, solve
from edgetrain.compiler.remat import simulate
from edgetrain.compiler.remat.chain.rows import rows_of
from edgetrain.errors import BudgetError

from .problems import chain

SHARED = Path(__file__).resolve().parents[4] / "shared" / "planner"


@cache
def least_cost(depth: int, slots: int) -> float:
    """Recomputed forwards of a unit chain's best persistent schedule, by plain recursion."""

    @cache
    def cost(i: int, j: int, kept: bool, m: int) -> float:
        """Cost of backward j .. i + 1 from value i, with m unit slots. If `kept`, value j is in
        memory besides, and its slot is reused after its backward."""
        grads = (1 if j < depth else 0) + 1
        if j == i + 1:
            need = 1 + (1 if i else 0) + (0 if kept else 1)
            return (0 if kept else 1) if m >= need else float("inf")
        best = float("inf")
        for k in range(i + 1, j):
            if m < grads - 1 + (2 if k > i + 1 else 1):
                break
            for f in (False, True):
                right = cost(k, j, kept, m - 1)
                left = cost(i, k, f, m - (1 if f else 0) + (1 if kept else 0))
                best = min(best, k - i + right + left)
        return best

    return cost(0, depth, False, slots) - depth


@pytest.mark.parametrize("depth", [5, 9, 14])
def test_chain_is_as_cheap_as_enumeration_on_unit_chains(depth):
    problem = chain(depth, nbytes=1)
    for budget in range(5, depth + 4):
        expected = least_cost(depth, budget - 1)
        found = simulate(problem, solve(problem, budget=budget, solver="chain"))
        assert found.peak_nbytes <= budget
        assert found.extra_flops <= expected


def least_forwards(depth: int, values: int) -> int:
    """Minimum forwards of a unit chain with this many values in memory, by shortest path.

    A state is which values are in memory (bit k) and how many backwards have run.
    """
    first = (1, 0)
    known, waiting = {first: 0}, [(0, first)]
    while waiting:
        runs, (held, done) = heappop(waiting)
        j = depth - done
        if not j:
            return runs
        if known[held, done] < runs:
            continue
        room = values - held.bit_count() - (1 if done else 0)
        after = [(runs, (held & ~(1 << k), done)) for k in range(1, depth + 1) if held >> k & 1]
        if room >= 1:
            ways = [k for k in range(1, depth + 1) if (held >> (k - 1)) & 3 == 1]
            after += [(runs + 1, (held | 1 << k, done)) for k in ways]
        if (held >> (j - 1)) & 3 == 3 and room >= (0 if done else 1) + (1 if j > 1 else 0):
            after.append((runs, (held, done + 1)))
        for runs_then, state in after:
            if runs_then < known.get(state, 1 << 30):
                known[state] = runs_then
                heappush(waiting, (runs_then, state))
    raise AssertionError(values)


@pytest.mark.parametrize("depth", [6, 9])
def test_chain_is_as_cheap_as_any_schedule_on_unit_chains(depth):
    problem = chain(depth, nbytes=1)
    found = [
        simulate(problem, solve(problem, budget=budget, solver="chain")).extra_flops + depth
        for budget in range(5, depth + 4)
    ]
    assert found == [least_forwards(depth, budget) for budget in range(5, depth + 4)]


def test_chain_costs_never_rise_with_more_bytes():
    problem = chain(40, nbytes=8, saved=20)
    costs = []
    for budget in range(80, 1400, 64):
        try:
            found = simulate(problem, solve(problem, budget=budget, solver="chain"))
        except BudgetError:
            assert not costs
            continue
        assert found.peak_nbytes <= budget
        costs.append(found.extra_cost)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0


def test_chain_plans_a_long_chain_in_groups():
    problem = chain(300, nbytes=1)
    found = simulate(problem, solve(problem, budget=40))
    assert found.peak_nbytes <= 40
    assert found.extra_flops < 300
    tight = simulate(problem, solve(problem, budget=10))
    assert tight.peak_nbytes <= 10
    assert tight.extra_flops < 5 * 300


def test_chain_has_a_schedule_for_the_smallest_budget_of_a_long_chain():
    problem = chain(300, nbytes=1)
    found = simulate(problem, solve(problem, budget=5))
    assert found.peak_nbytes == 5
    assert found.extra_flops <= 299 * 300 // 2


@pytest.mark.shared
@pytest.mark.parametrize("name", ["chain_unit28", "chain_unit100", "chain_wrn28_10"])
def test_chain_is_at_or_below_published_pareto_rows(name):
    if not SHARED.is_dir():
        pytest.skip(f"needs the instances in {SHARED}")
    problem, _ = to_problem(load_graph(SHARED / "graphs" / f"{name}.json"))
    once = sum(step.cost for step in problem.steps)
    for peak, slowdown in json.loads((SHARED / "peers.json").read_text())[name]["pareto"]:
        found = simulate(problem, solve(problem, budget=peak, solver="chain"))
        assert found.peak_nbytes <= peak
        assert 1 + found.extra_cost / once <= slowdown + 1e-9


@pytest.mark.parametrize(("values", "runs"), [(8, 6999), (49, 954)])
def test_chain_of_a_thousand_equal_stages_is_as_cheap_as_the_whole_table(values, runs):
    problem = chain(1000, nbytes=1)
    found = simulate(problem, solve(problem, budget=values, solver="chain"))
    assert (found.peak_nbytes, found.extra_flops) == (values, runs)


def test_rows_are_shared_by_equal_stretches_and_by_no_others():
    parts = [np.array([0, 1, 2, 1, 2, 1])]
    row = rows_of(parts, True, True)
    # Stages 2, 3 and 4, 5 follow a stage of the same kind (4, 5 end the chain); 1, 2 begin it.
    assert row[1, 2] == row[3, 4] != row[0, 1]
    assert len({row[1, 3], row[3, 5], row[0, 2]}) == 3
    assert (row[np.tril_indices(6)] == -1).all()
    coarse = rows_of([np.arange(200)], True, True, reach=8, longest=50)
    assert coarse[0, 33] == -1 < coarse[0, 32] < coarse[3, 44] < coarse[0, 199]


def test_frontier_of_a_chain_ends_without_recompute():
    front = frontier(chain(30, nbytes=4, saved=4), solver="chain")
    assert front[-1][1].extra_cost == 0
    assert 10 <= len(front) <= 30
