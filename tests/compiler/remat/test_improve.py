"""Pruning recomputations and shortening lifetimes: what they improve, what they must not change."""

import importlib

import numpy as np
import pytest

from benchmarks.yardsticks import solve
from edgetrain.compiler.remat import shorten_lifetimes, simulate
from edgetrain.compiler.remat.search.anneal_search import Search
from edgetrain.compiler.remat.search.prune_drops import prune_between, prune_drops

from .problems import chain, random_problem


def _searched(problem) -> Search:
    search = Search(problem)
    search.offer(tuple(range(len(problem.steps))))
    search.drop_idle()
    return search


def _front(search: Search) -> list[tuple[int, float]]:
    simulations = [simulate(search.problem, schedule) for schedule in search.schedules()]
    return [(s.peak_nbytes, s.extra_cost) for s in simulations]


@pytest.mark.parametrize("seed", range(6))
def test_prune_between_keeps_or_improves_every_point(seed):
    search = _searched(random_problem(seed, forwards=14))
    before = _front(search)
    prune_between(search.flat, search.traces[0], search.archive, search.walk, 50_000, search.state)
    after = _front(search)
    assert after == sorted(after) and [e for _, e in after] == sorted((e for _, e in after))[::-1]
    for peak, extra in before:
        assert any(p <= peak and e <= extra + 1e-9 for p, e in after)


def test_prune_drops_takes_back_what_a_larger_budget_does_not_need():
    problem = chain(40)
    search = _searched(problem)
    front = _front(search)
    budget = front[1][0] - 1
    assert len(front) > 2 and budget > front[0][0]
    prune_drops(search.flat, search.traces[0], search.archive, search.walk, 0, budget, 1e9)
    cheapest = min(extra for peak, extra in _front(search) if peak <= budget)
    assert 0 < cheapest < front[0][1]


@pytest.mark.parametrize("seed", range(6))
def test_shorten_lifetimes_keeps_peak_and_cost_and_makes_room_below(seed):
    problem = random_problem(seed, forwards=14)
    schedule = solve(problem, min_peak=True, effort=1)
    before = simulate(problem, schedule)
    again = shorten_lifetimes(problem, schedule, 8.0, seed + 1)
    after = simulate(problem, again)
    assert after.peak_nbytes <= before.peak_nbytes
    assert after.extra_cost == pytest.approx(before.extra_cost, abs=1e-9)
    assert again == shorten_lifetimes(problem, schedule, 8.0, seed + 1)
    crowd = [
        sum((live / before.peak_nbytes) ** 8 for live in found.profile) for found in (before, after)
    ]
    assert crowd[1] <= crowd[0] + 1e-9


@pytest.mark.parametrize("order", [range(8), range(7, -1, -1)], ids=["no_drops", "no_schedule"])
def test_shorten_lifetimes_returns_the_schedule_whose_other_form_is_worse(monkeypatch, order):
    problem = chain(4)
    schedule = (0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 5, 0, 6, 7)
    worse = np.array(order), np.zeros(0, np.int64)
    module = importlib.import_module("edgetrain.compiler.remat.search.shorten_lifetimes")
    monkeypatch.setattr(module, "decisions", lambda problem, schedule: worse)
    assert shorten_lifetimes(problem, schedule, 8.0, 1) == schedule
