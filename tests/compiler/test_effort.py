"""Search effort: more effort continues where less stopped, and the effort used is recorded."""

import dataclasses

import pytest

import edgetrain as et
from benchmarks.nets import residual_model
from edgetrain.api import make_options
from edgetrain.compiler import plan_model
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.plan import effort as efforts
from edgetrain.compiler.plan.frontier import search_frontier
from edgetrain.compiler.remat import schedules_of_use, simulate
from edgetrain.compiler.remat.search import Level, anneal_levels
from edgetrain.compiler.remat.search.anneal_search import LEAST
from edgetrain.errors import BudgetError, UsageError
from edgetrain.units.efforts import EFFORTS, NORMAL, QUICK, THOROUGH

from .remat.problems import chain, random_problem

OPTIONS = {"minibatch": 8, "optimizer": "sgd"}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make efforts small, and far enough apart that each finds more than the one before."""
    monkeypatch.setattr(efforts, "MOST", 0.02)
    monkeypatch.setitem(efforts.LEVELS, NORMAL, efforts.Effort(32, 0.0, 1))
    monkeypatch.setitem(efforts.LEVELS, THOROUGH, efforts.Effort(64, 0.0, 2))


def _fronts(problem, *levels: Level) -> list[list[tuple[int, float]]]:
    found = anneal_levels(problem, levels, [()] * len(levels))
    simulations = [[simulate(problem, s) for s in schedules] for schedules in found]
    return [[(s.peak_nbytes, s.extra_cost) for s in some] for some in simulations]


@pytest.mark.parametrize("seed", range(4))
def test_a_level_ends_where_the_next_one_goes_on(seed):
    problem = random_problem(seed, forwards=14)
    short, long = Level(0.05), Level(0.4)
    assert _fronts(problem, short, long)[0] == _fronts(problem, short)[0]
    assert _fronts(problem, short, long) == _fronts(problem, short, long)


def test_a_search_ends_once_a_doubling_gains_too_little():
    """No doubling can gain all of the time (gain=1.0), so the search stops after the least work."""
    problem = chain(30)
    spent = 0.015 * len(problem.steps)
    while spent < LEAST:
        spent *= 2
    assert spent < len(problem.steps)
    assert _fronts(problem, Level(4 * spent, gain=1.0)) == _fronts(problem, Level(spent))


def test_more_effort_finds_every_plan_that_less_does(small_steps):
    model = residual_model(7)
    options = make_options(**OPTIONS)
    found = [
        search_frontier(Compilation(model, dataclasses.replace(options, effort=name)))
        for name in EFFORTS
    ]
    assert {frontier.bound_nbytes for frontier in found} == {found[0].bound_nbytes}
    for less, more in zip(found, found[1:], strict=False):
        for plan in less.plans:
            assert any(
                p.arena_nbytes <= plan.arena_nbytes and p.cost <= plan.cost for p in more.plans
            )
    sizes = [[(p.arena_nbytes, p.cost) for p in frontier.plans] for frontier in found]
    assert sizes[0] != sizes[1]  # otherwise this test's efforts are too close together
    assert all(found[0].bound_nbytes <= arena for arena, _ in sizes[-1])


def test_a_budget_that_a_quick_search_misses_is_searched_for_with_more(small_steps):
    model, options = residual_model(7), make_options(effort=QUICK, **OPTIONS)
    quick = plan_model(model, options)[2]["min_budget_nbytes"]
    normal = plan_model(model, dataclasses.replace(options, effort=NORMAL))[2]["min_budget_nbytes"]
    assert normal < quick  # otherwise this test's efforts are too close together
    plan, _, facts = plan_model(model, options, normal)
    assert facts["effort"] == NORMAL == plan.candidate.options.effort
    assert plan_model(model, options, quick)[2]["effort"] == QUICK
    with pytest.raises(BudgetError) as refused:
        plan_model(model, options, normal - 1)
    assert refused.value.min_budget_nbytes == normal


def test_effort_changes_no_bit_and_is_recorded():
    model = residual_model(3)
    programs = [et.compile(model, effort=name, **OPTIONS) for name in (QUICK, NORMAL)]
    assert [p.account["effort"] for p in programs] == [QUICK, NORMAL]
    assert [p.recipe.get("effort", NORMAL) for p in programs] == [QUICK, NORMAL]
    assert programs[0].digest() == programs[1].digest()
    assert et.plan(model, **OPTIONS)["effort"] == QUICK


def test_efforts_are_the_ones_with_a_meaning():
    assert [*efforts.LEVELS] == [*EFFORTS]
    with pytest.raises(UsageError, match="effort 'long': expected one of quick, normal, thorough"):
        make_options(effort="long")


def test_levels_of_what_needs_no_search_are_one():
    problem = chain(4)
    levels = [Level(1.0), Level(2.0)]
    found = schedules_of_use(problem, levels, enough=10**12)
    assert found == [[tuple(range(len(problem.steps)))]] * 2
