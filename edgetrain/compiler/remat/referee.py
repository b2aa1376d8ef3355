"""Checks and measures a schedule. Deliberately simple; shares no code with the solvers."""

from itertools import accumulate

import numpy as np

from edgetrain.errors import UsageError

from .problem import Problem, Schedule, Simulation


class ScheduleError(UsageError):
    """A schedule reads a value that is not in memory, or runs a step too often, early or never."""


def simulate(problem: Problem, schedule: Schedule) -> Simulation:
    """Simulate a schedule without computing anything.

    Args:
      problem: steps and sizes.
      schedule: step ids in order of execution.
    Raises:
      ScheduleError: names the first position that breaks a rule, and the rule.
    """
    _check_runs(problem, schedule)
    lives = _lives(problem, schedule)
    takeovers = _takeovers(problem, schedule, lives)
    change = [0] * (len(schedule) + 1)
    for k, (value, start, stop, read) in enumerate(lives):
        if read or value not in problem.optional:
            change[start + (k in takeovers)] += problem.nbytes[value]
            change[stop] -= problem.nbytes[value]
    profile = list(accumulate(change))[:-1]
    cost, flops, seen = 0.0, 0, set[int]()
    for position, k in enumerate(schedule):
        step = problem.steps[k]
        profile[position] += step.workspace
        if k in seen:
            cost += step.cost
            flops += step.flops
        seen.add(k)
    rows = [
        (value, start, stop, takeovers.get(k, -1))
        for k, (value, start, stop, _) in enumerate(lives)
    ]
    live, table = np.array(profile, np.int64), np.array(rows, np.int64).reshape(-1, 4)
    return Simulation(max(profile, default=0), cost, flops, live, table)


def _check_runs(problem: Problem, schedule: Schedule) -> None:
    runs = [0] * len(problem.steps)
    for position, k in enumerate(schedule):
        if not 0 <= k < len(runs):
            raise ScheduleError(f"schedule position {position}: there is no step {k}")
        step = problem.steps[k]
        for before in step.after:
            if not runs[before]:
                raise ScheduleError(
                    f"schedule position {position}: step {k} ({step.name}) must come after "
                    f"step {before} ({problem.steps[before].name}), which has not run"
                )
        runs[k] += 1
        if runs[k] > 1 and not step.recomputable:
            raise ScheduleError(
                f"schedule position {position}: step {k} ({step.name}) may run only once"
            )
    for k, count in enumerate(runs):
        if not count:
            raise ScheduleError(f"schedule: step {k} ({problem.steps[k].name}) never runs")


def _lives(problem: Problem, schedule: Schedule) -> list[tuple[int, int, int, bool]]:
    """(value, start, stop, whether read) of every instance, `always_live` ones first."""
    total = len(schedule)
    lives = [[value, 0, total, True] for value in sorted(problem.always_live)]
    current = {life[0]: life for life in lives}

    def make(value: int, position: int) -> None:
        if value not in problem.always_live:
            stop = total if value in problem.kept else position + 1
            current[value] = [value, position, stop, value in problem.kept]
            lives.append(current[value])

    for position, k in enumerate(schedule):
        step = problem.steps[k]
        for value in step.reads:
            if value not in current:
                raise ScheduleError(
                    f"schedule position {position}: step {k} ({step.name}) reads value {value}, "
                    "which is not in memory"
                )
            current[value][2:] = max(current[value][2], position + 1), True
        for value in step.writes:
            if value in problem.kept and value in current:
                current[value][2] = position
            make(value, position)
        for value in step.updates:
            if value in current:
                current[value][2:] = max(current[value][2], position + 1), True
            else:
                make(value, position)
    return [(value, start, stop, bool(read)) for value, start, stop, read in lives]


def _takeovers(problem: Problem, schedule: Schedule, lives) -> dict[int, int]:
    """Maps the index of an instance to that of the instance whose bytes it takes over."""
    starts = {(value, start): k for k, (value, start, _, _) in enumerate(lives)}
    stops = {(value, stop): k for k, (value, _, stop, _) in enumerate(lives)}
    result: dict[int, int] = {}
    taken: set[int] = set()
    for position, k in enumerate(schedule):
        for written, read in problem.steps[k].inplace:
            new, old = starts.get((written, position)), stops.get((read, position + 1))
            if new is None or old is None or written == read:
                continue
            if read in problem.always_live or read in problem.kept:
                continue
            unread = written in problem.optional and not lives[new][3]
            same = problem.nbytes[written] == problem.nbytes[read]
            if same and not unread and old not in taken and new not in result:
                result[new] = old
                taken.add(old)
    return result
