"""Every registered solver has a case here and returns valid schedules."""

import pytest

from benchmarks.yardsticks import SOLVERS, frontier
from edgetrain.compiler.remat import Problem, Step, simulate

from .problems import chain


def residual_net(blocks: int) -> Problem:
    """Blocks of convolution, cheap normalisation, addition; backward reads the forward inputs."""
    sizes, steps, tape, x = [8], [], [], 0
    for _ in range(blocks):
        for cost, reads in ((100, (x,)), (4, (len(sizes),)), (2, (len(sizes) + 1, x))):
            out = len(sizes)
            sizes.append(8)
            steps.append(
                Step(len(steps), f"F{out}", reads, (out,), cost=cost, flops=cost, recomputable=True)
            )
            tape.append((reads, out))
        x = len(sizes) - 1
    grads = {out: len(sizes) + k for k, (_, out) in enumerate(tape)}
    sizes += [8] * len(tape)
    for k, (reads, out) in enumerate(reversed(tape)):
        first = k == 0
        steps.append(
            Step(
                len(steps),
                f"B{out}",
                reads + (() if first else (grads[out],)),
                (grads[out],) if first else (),
                tuple(grads[v] for v in reads if v),
                (len(steps) - 1,),
                cost=2,
            )
        )
    return Problem(tuple(sizes), tuple(steps), frozenset({0}))


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_solver_gives_valid_schedules(solver):
    problem = residual_net(3 if solver == "milp" else 6)
    whole = simulate(problem, SOLVERS["store_all"](problem, 0)[0])
    front = frontier(problem, 1, solver=solver)
    assert front
    for schedule, simulation in front:
        assert simulate(problem, schedule) == simulation
        assert simulation.peak_nbytes <= whole.peak_nbytes


@pytest.mark.parametrize("solver", ["sqrt", "log", "no_bn", "residual_1", "residual_2", "chain"])
def test_auto_is_at_or_below_every_strategy(solver):
    problem = residual_net(6)
    best = frontier(problem, 4, points=None)
    for _, theirs in frontier(problem, 1, solver=solver):
        fit = [s for _, s in best if s.peak_nbytes <= theirs.peak_nbytes]
        assert fit
        assert fit[-1].extra_cost <= theirs.extra_cost


def test_sqrt_and_log_save_what_they_promise_on_a_chain():
    problem = chain(64, nbytes=1)
    whole = frontier(problem, 1, solver="store_all")[0][1].peak_nbytes
    sqrt = frontier(problem, 1, solver="sqrt")[0][1]
    log = frontier(problem, 1, solver="log")[0][1]
    assert sqrt.peak_nbytes <= 3 * 8 + 4 < whole
    assert sqrt.extra_flops <= 64
    assert log.peak_nbytes <= 2 * 6 + 4
    assert log.extra_flops <= 6 * 64
