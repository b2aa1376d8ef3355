"""The compiled search engine against the referee, and the search's promises."""

import random

import numpy as np
import pytest

from benchmarks.yardsticks import frontier, solve
from edgetrain.compiler.remat import Problem, Step, simulate
from edgetrain.compiler.remat.search.decisions import decisions
from edgetrain.compiler.remat.search.evaluate import INFEASIBLE, evaluate, new_trace
from edgetrain.compiler.remat.search.flat_problem import flatten
from edgetrain.compiler.remat.search.moves import random as throw
from edgetrain.compiler.remat.search.throws import throws
from edgetrain.errors import BudgetError, UsageError

from .problems import chain, random_problem


@pytest.mark.parametrize("seed", range(12))
def test_evaluate_agrees_with_the_referee_on_random_decisions(seed):
    problem = random_problem(seed)
    packed, rng = flatten(problem), random.Random(seed)
    trace = new_trace(packed, 12 * len(problem.steps))
    order = np.arange(len(problem.steps))
    fraction = sum(s.cost for s in problem.steps if s.recomputable)
    for _ in range(30):
        keys = {
            rng.randrange(len(problem.steps)) * len(problem.nbytes) + v
            for v in rng.sample(range(len(problem.nbytes)), 5)
        }
        drops = np.array(sorted(keys), np.int64)
        got = evaluate(packed, order, drops, len(drops), INFEASIBLE, trace)
        if got.peak == INFEASIBLE:
            continue
        schedule = tuple(trace.schedule[: got.length].tolist())
        simulation = simulate(problem, schedule)
        assert got.peak == simulation.peak_nbytes
        assert tuple(trace.profile[: got.length].tolist()) == simulation.profile
        assert got.extra * fraction == pytest.approx(simulation.extra_cost)


def test_decisions_give_a_recomputing_schedule_back():
    problem = chain(4)
    schedule = (0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 5, 0, 6, 7)
    order, drops = decisions(problem, schedule)
    packed = flatten(problem)
    trace = new_trace(packed, 50)
    got = evaluate(packed, order, drops, len(drops), INFEASIBLE, trace)
    assert simulate(problem, tuple(trace.schedule[: got.length].tolist())).peak_nbytes <= got.peak


@pytest.mark.parametrize("seed", range(4))
def test_frontier_is_strictly_monotone_and_ends_without_recompute(seed):
    problem = random_problem(seed, forwards=12)
    front = frontier(problem, 1)
    pairs = [(s.peak_nbytes, -s.extra_cost) for _, s in front]
    assert pairs == sorted(set(pairs))
    assert front[-1][1].extra_cost == 0
    assert all(simulate(problem, schedule) == simulation for schedule, simulation in front)
    assert frontier(problem, 1) == front


def test_solve_keeps_to_the_budget_and_never_charges_more_for_more_bytes():
    problem = chain(16)
    regular = simulate(problem, solve(problem)).peak_nbytes
    least = simulate(problem, solve(problem, min_peak=True, effort=1)).peak_nbytes
    costs = []
    for budget in range(least, regular + 8, 8):
        simulation = simulate(problem, solve(problem, budget=budget, effort=1))
        assert simulation.peak_nbytes <= budget
        costs.append(simulation.extra_cost)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0


def test_solve_refuses_what_does_not_fit():
    problem = chain(8)
    least = simulate(problem, solve(problem, min_peak=True, effort=1)).peak_nbytes
    with pytest.raises(BudgetError) as caught:
        solve(problem, budget=least - 1, effort=1)
    assert caught.value.min_budget_nbytes == least
    with pytest.raises(UsageError, match="expected one of"):
        solve(problem, solver="magic")


def test_solve_limits_recomputed_flops():
    problem = chain(16)
    simulation = simulate(problem, solve(problem, max_extra=0.5, effort=1))
    assert 0 < simulation.extra_flops <= 8


def residual_chain(blocks: int) -> Problem:
    """Blocks x -> c -> x + d, one byte each; backward needs x, c and the gradient."""
    steps, nbytes = [], [1]
    xs, cs = [0], []
    for _ in range(blocks):
        c, x = len(nbytes), len(nbytes) + 1
        nbytes += [1, 1]
        k = len(steps)
        steps += [
            Step(k, f"c{k}", (xs[-1],), (c,), cost=1.0, flops=1, recomputable=True),
            Step(k + 1, f"x{k}", (xs[-1], c), (x,), cost=1.0, flops=1, recomputable=True,
                 inplace=((x, xs[-1]),)),
        ]  # fmt: skip
        cs.append(c)
        xs.append(x)
    grad = len(nbytes)
    nbytes.append(1)
    for b in reversed(range(blocks)):
        inner = len(nbytes)
        nbytes.append(1)
        k = len(steps)
        first = ((), (grad,)) if b == blocks - 1 else ((grad,), ())
        steps += [
            Step(k, f"dc{b}", (cs[b], *first[0]), (inner, *first[1]), cost=2.0),
            Step(k + 1, f"dx{b}", (xs[b], inner), (), (grad,), cost=2.0),
        ]
    return Problem(tuple(nbytes), tuple(steps), frozenset({0}))


@pytest.mark.parametrize("effort", [1, 3, 8])
def test_general_reaches_the_working_set_of_a_residual_chain_whatever_the_effort(effort):
    # The input, a block's x and c, its gradient and the inner one: no block keeps anything.
    front = frontier(residual_chain(16), effort, solver="general")
    assert front[0][1].peak_nbytes == 5


def test_throws_are_the_numbers_of_the_compiled_moves():
    one, other = (np.array([88172645463325252], np.uint64) for _ in range(2))
    assert throws(one, 50) == [throw(other) for _ in range(50)]
    assert one[0] == other[0]
