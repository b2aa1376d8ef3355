"""The peak of one schedule, compiled: it screens schedules of hundreds of thousands of steps."""

import numpy as np

from edgetrain.compiler.remat.problem import Problem, Schedule
from edgetrain.compiler.remat.referee import simulate
from edgetrain.compiler.remat.search.flat_problem import FlatProblem
from edgetrain.kernels.loops.functions import Unit, loop
from edgetrain.kernels.loops.kinds import IntRows, Ints

PEAK = Unit("peaks of schedules", "benchmarks.yardsticks", ("peak",))


def peak_nbytes(problem: Problem, flat: FlatProblem, schedule: Schedule) -> int:
    """The peak of a valid schedule in bytes, equal to the referee's.

    Problems that keep values or work in place are passed to the referee itself.
    """
    if problem.kept or any(step.inplace for step in problem.steps):
        return simulate(problem, schedule).peak_nbytes
    always = sum(problem.nbytes[v] for v in problem.always_live)
    change = np.zeros(len(schedule) + 1, np.int64)
    lives = np.full((3, len(problem.nbytes)), -1, np.int64)
    return always + int(_peak(flat, np.array(schedule, np.int64), lives, change))


@PEAK.entry
def _peak(p: FlatProblem, schedule: Ints, lives: IntRows, change: Ints) -> int:
    """`lives`: start and last use of each value's current instance, and whether it was read."""
    born, last, read = lives[0], lives[1], lives[2]
    for at in range(schedule.size):
        s = schedule[at]
        for k in range(p.read_at[s], p.read_at[s + 1]):
            last[p.read[k]] = at
            read[p.read[k]] = 1
        for k in range(p.write_at[s], p.write_at[s + 1]):
            v = p.write[k]
            _close(p, v, born, last, read, change)
            born[v], last[v], read[v] = at, at, 0
        for k in range(p.update_at[s], p.update_at[s + 1]):
            v = p.update[k]
            if born[v] < 0:
                born[v], read[v] = at, 0
            else:
                read[v] = 1
            last[v] = at
    for v in range(born.size):
        _close(p, v, born, last, read, change)
    live, peak = np.int64(0), np.int64(0)
    for at in range(schedule.size):
        live += change[at]
        peak = max(peak, live + p.workspace[schedule[at]])
    return peak


@loop
def _close(p, v, born, last, read, change):
    if born[v] >= 0 and not p.present[v] and (read[v] or not p.optional[v]):
        change[born[v]] += p.size[v]
        change[last[v] + 1] -= p.size[v]
