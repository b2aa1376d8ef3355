"""The array-based replay agrees with the referee on good and bad schedules."""

import random

import pytest

from edgetrain.compiler.remat import Problem, Replay, ScheduleError, Step, simulate

from .problems import chain, random_problem


def said(measure, schedule):
    """Return all results of a simulation, or its error message."""
    try:
        found = measure(schedule)
    except ScheduleError as error:
        return str(error)
    costs = found.peak_nbytes, found.extra_cost, found.extra_flops
    return *costs, found.profile, found.instances


def schedules(problem: Problem, seed: int):
    """Yield orders with recomputations inserted anywhere and sometimes two steps swapped."""
    rng = random.Random(seed)
    again = [step.id for step in problem.steps if step.recomputable]
    for _ in range(40):
        order = list(range(len(problem.steps)))
        for _ in range(rng.randrange(4)):
            order.insert(rng.randrange(len(order) + 1), rng.choice(again))
        if rng.random() < 0.3:
            a, b = rng.randrange(len(order)), rng.randrange(len(order))
            order[a], order[b] = order[b], order[a]
        yield tuple(order)


@pytest.mark.parametrize("seed", range(8))
def test_replay_says_what_the_referee_says(seed):
    for problem in (chain(6, nbytes=3, saved=2), random_problem(seed, 8 + seed)):
        replay = Replay(problem)
        for schedule in schedules(problem, seed):
            assert said(replay, schedule) == said(lambda s, p=problem: simulate(p, s), schedule)


def test_replay_keeps_a_value_that_is_made_twice_until_the_end():
    steps = (
        Step(0, "make", (), (0,), recomputable=True),
        Step(1, "use", (0,), (1,), inplace=((1, 0),)),
        Step(2, "end", (1,), ()),
    )
    problem = Problem((8, 8), steps, kept=frozenset({0}))
    for schedule in ((0, 1, 2), (0, 1, 0, 2), (0, 0, 1, 2)):
        assert said(Replay(problem), schedule) == said(lambda s: simulate(problem, s), schedule)
