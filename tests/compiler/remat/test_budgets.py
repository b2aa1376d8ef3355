"""Fifty budgets per graph: peaks stay within the budget, and more bytes never cost more time."""

import numpy as np
import pytest

from benchmarks.schedule import to_problem
from benchmarks.yardsticks import frontier, solve
from edgetrain.compiler.remat import Problem, simulate

from .problems import chain, random_problem


def residual_graph(blocks: int) -> dict:
    """A residual network in the graph file format: convolution, norm, ReLU, addition."""
    nodes = [{"fwd_flops": 0, "out_bytes": 64, "saved": 0, "bwd_in": [], "bwd_out": False}]
    edges: list[list[int]] = []

    def node(inputs: list[int], flops: int, saved: int, reads_own: bool = False) -> int:
        edges.extend([u, len(nodes)] for u in inputs)
        wanted = inputs[:1] if flops > 100 else []
        nodes.append({
            "fwd_flops": flops, "out_bytes": 64, "saved": saved, "bwd_in": wanted,
            "bwd_out": reads_own,
        })  # fmt: skip
        return len(nodes) - 1

    x = 0
    for _ in range(blocks):
        y = node([x], 1000, 0)
        y = node([y], 20, 8)
        y = node([y], 10, 0, reads_own=True)
        x = node([y, x], 10, 0) if x else y
    return {"nodes": nodes, "edges": edges, "input_node": 0, "output_node": x}


PROBLEMS: dict[str, Problem] = {
    "residual": to_problem(residual_graph(6))[0],
    "branches": random_problem(3, forwards=14),
    "chain": chain(24, nbytes=8, saved=4),
    "long_chain": chain(140, nbytes=2),
}


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_solve_is_monotone_and_within_each_of_fifty_budgets(name):
    problem = PROBLEMS[name]
    front = frontier(problem, 1, points=None)
    least, regular = front[0][1].peak_nbytes, front[-1][1].peak_nbytes
    costs = []
    for budget in np.linspace(least, regular, 50).astype(int).tolist():
        found = simulate(problem, solve(problem, budget=budget, effort=1))
        assert found.peak_nbytes <= budget
        costs.append(found.extra_cost)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
