"""Schedule a graph file with the planner's solvers.

usage: python -m benchmarks.schedule GRAPH.json (--budget BYTES | --max-extra FRACTION | --min-peak)
           [--seconds S] [--solver NAME] --out SCHEDULE.json

GRAPH.json lists nodes (`fwd_flops`, `out_bytes`, `saved`, `bwd_in`, `bwd_out`) and edges; the
schedule is a JSON list of ["F", id] and ["B", id].
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.yardsticks import solve
from benchmarks.yardsticks.peak import peak_nbytes
from edgetrain.compiler.remat import Problem, Schedule, Step
from edgetrain.compiler.remat.search.flat_problem import flatten
from edgetrain.errors import EdgetrainError

# Millions of simulated steps that two concurrent searches do in about a second, on a slow machine.
EFFORT_PER_SECOND = 13


def load_graph(path: str | Path) -> dict:
    """Read the graph from a file."""
    return json.loads(Path(path).read_text())


def to_problem(graph: dict) -> tuple[Problem, list[tuple[str, int]]]:
    """Convert the graph to a planning problem; also name each step ("F" or "B", node).

    Node v has the values v (its output), n + v (saved for backward) and 2 n + v (its
    gradient). The gradient of the output appears with the first backward step.
    """
    nodes, source, target = graph["nodes"], graph["input_node"], graph["output_node"]
    n = len(nodes)
    preds: list[list[int]] = [[] for _ in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for u, v in graph["edges"]:
        if u not in preds[v]:
            preds[v].append(u)
            users[u].append(v)
    nbytes = [node["out_bytes"] for node in nodes] + [node["saved"] for node in nodes]
    nbytes += [node["out_bytes"] for node in nodes]
    forwards = [v for v in range(n) if v != source]
    names = [("F", v) for v in forwards] + [("B", v) for v in reversed(forwards)]
    index = {name: k for k, name in enumerate(names)}
    steps = []
    for k, (what, v) in enumerate(names):
        node = nodes[v]
        flops = node["fwd_flops"]
        if what == "F":
            writes = (v, n + v) if node["saved"] else (v,)
            step = Step(
                k, f"F{v}", tuple(preds[v]), writes, cost=flops, flops=flops, recomputable=True
            )
        else:
            reads = set(node["bwd_in"] or []) | ({v} if node["bwd_out"] else set())
            reads |= {n + v} if node["saved"] else set()
            reads |= {2 * n + v} if v != target else set()
            writes = (2 * n + v,) if v == target else ()
            updates = tuple(2 * n + u for u in preds[v] if u != source)
            after = [index["B", w] for w in users[v]] + [index["F", v]]
            step = Step(
                k, f"B{v}", tuple(sorted(reads)), writes, updates, tuple(after),
                cost=node.get("bwd_flops") or 2 * flops,
            )  # fmt: skip
        steps.append(step)
    saved = frozenset(range(n, 2 * n))
    return Problem(tuple(nbytes), tuple(steps), frozenset({source}), optional=saved), names


def to_json(schedule: Schedule, names: Sequence[tuple[str, int]]) -> list[list]:
    """Convert the schedule to the list that is written to the file."""
    return [list(names[k]) for k in schedule]


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan one graph, write the schedule, and print its requirements as a JSON object."""
    parser = argparse.ArgumentParser(prog="benchmarks.schedule", description=__doc__)
    parser.add_argument("graph", type=Path)
    demand = parser.add_mutually_exclusive_group(required=True)
    demand.add_argument("--budget", type=int, metavar="BYTES")
    demand.add_argument("--max-extra", type=float, metavar="FRACTION")
    demand.add_argument("--min-peak", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0, help="effort, not a clock")
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    problem, names = to_problem(load_graph(options.graph))
    try:
        schedule = solve(
            problem,
            budget=options.budget,
            max_extra=options.max_extra,
            min_peak=options.min_peak,
            solver=options.solver,
            effort=max(1, int(options.seconds * EFFORT_PER_SECOND)),
        )
    except EdgetrainError as error:
        print(f"{options.graph.name}: {error}", file=sys.stderr)
        return error.exit_status
    options.out.write_text(json.dumps(to_json(schedule, names)))
    flops = sum(problem.steps[step].flops for step in schedule)
    again = flops - sum(step.flops for step in problem.steps)
    print(json.dumps({
        "peak_bytes": peak_nbytes(problem, flatten(problem), schedule),
        "extra_fwd_fraction": again / max(1, problem.forward_flops()),
    }))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
