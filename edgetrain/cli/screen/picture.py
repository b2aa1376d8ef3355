"""Turns a plan into drawings: the arena over time, the available plans, torch's memory."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ...compiler import Plan
from ...compiler.arena.problem import aligned
from ...compiler.plan.eager import eager_account
from ...compiler.tapes.assemble import account, kind_of, read_by_backward
from ...compiler.tapes.steps import ALIGN, TapeProblem
from ...report.charts import Point
from ...report.plan_page import Frontier
from ...report.scene import Arena, Box, Phase, make_arena, module_of

_UPDATE_SHARE = 0.04  # of the picture's width; the update is not a step of the microbatch


def plan_arena(plan: Plan, title: str, minibatch: int, budget: int | None) -> Arena:
    """The arena over time: persistent values at the bottom, values of the microbatch above.

    Args:
      minibatch: samples per update.
      budget: memory limit, or None.
    """
    train = plan.candidate.train
    spans = _spans(plan)
    steps = [
        train.problem.steps[step].name
        for step, (start, stop) in zip(plan.schedule, spans, strict=True)
        for _ in range(start, stop)
    ]
    wide = max(1, round(_UPDATE_SHARE * len(steps)))
    last, base = len(steps) + wide, 0
    backward, modules = read_by_backward(train), _Modules(train)
    boxes: list[Box] = []
    for value in plan.candidate.update.persistent:
        kind = kind_of(value, backward)
        boxes.append(Box(0, last, base, value.nbytes, kind, value.name, modules(value.name)))
        base += aligned(value.nbytes, ALIGN)
    boxes += _lives(plan, spans, base, backward, modules)
    update = plan.candidate.update.transient_nbytes
    if update:
        boxes.append(Box(len(steps), last, base, update, "workspace", "workspace of the update"))
    live = [
        base + nbytes
        for nbytes, (start, stop) in zip(plan.simulation.profile, spans, strict=True)
        for _ in range(start, stop)
    ]
    return make_arena(
        title,
        boxes,
        [*steps, *["update"] * wide],
        nbytes=plan.arena_nbytes,
        phases=[*_phases(plan, spans), Phase("update", len(steps), last)],
        live=[*live, *[base + update] * wide],
        budget=budget,
        repeats=minibatch // plan.candidate.microbatch,
    )


Spans = list[tuple[int, int]]


def _spans(plan: Plan) -> Spans:
    """First and last instruction of each step of the schedule, because pages count tape
    instructions."""
    result, index = [], 0
    for step in plan.schedule:
        count = max(1, len(plan.candidate.train.instructions[step]))  # inputs have none
        result.append((index, index + count))
        index += count
    return result


def _lives(
    plan: Plan, spans: Spans, base: int, backward: set[str], modules: "_Modules"
) -> list[Box]:
    """Boxes for the lifetimes of values and the workspace of each step."""
    train, placed, boxes = plan.candidate.train, plan.placed, []
    first: set[int] = set()
    again: set[int] = set()
    for position, step in enumerate(plan.schedule):
        (again if step in first else first).add(position if step in first else step)
    for number, instance in zip(placed.of_instance, plan.simulation.instances, strict=True):
        name = train.roots[instance.value]
        boxes.append(
            Box(
                spans[instance.start][0],
                spans[instance.stop - 1][1],
                base + plan.offsets[number],
                train.problem.nbytes[instance.value],
                kind_of(train.graph.values[name], backward),
                name,
                modules(name),
                instance.start in again,
            )
        )
    for position, number in placed.scratch_of.items():
        nbytes, name = (
            int(placed.buffers[number, 2]),
            train.problem.steps[plan.schedule[position]].name,
        )
        offset = base + plan.offsets[number]
        boxes.append(Box(*spans[position], offset, nbytes, "workspace", f"workspace of {name}"))
    return boxes


def _phases(plan: Plan, spans: Spans) -> list[Phase]:
    """Consecutive steps of one phase; recomputation is a phase of its own."""
    nodes, seen = plan.candidate.train.nodes, set[int]()
    runs: list[Phase] = []
    for position, step in enumerate(plan.schedule):
        node = nodes[step]
        name = "inputs" if node is None else "recompute" if step in seen else node.phase
        seen.add(step)
        if runs and runs[-1].name == name:
            runs[-1] = Phase(name, runs[-1].start, spans[position][1])
        else:
            runs.append(Phase(name, *spans[position]))
    return runs


class _Modules:
    """The torch module of a value, derived from node and parameter names."""

    def __init__(self, train: TapeProblem) -> None:
        self._made = {
            name: node
            for node in reversed(train.graph.nodes)
            if node.phase in ("forward", "loss")
            for name in node.writes
        }
        self._parameters = {
            name for name, v in train.graph.values.items() if v.role in ("parameter", "buffer")
        }

    def __call__(self, name: str) -> str:
        if name in self._parameters:
            return name.rpartition(".")[0]
        node = self._made.get(name)
        if node is not None:
            return module_of(node.origin or node.name)
        if "/" in name:
            return module_of(name)
        stem = name.rpartition(".")[0]
        return self(stem) if stem else ""


def plan_frontier(front: Sequence[Plan], chosen: Plan) -> Frontier:
    """Bytes and time of every plan, with labels."""
    fastest = front[-1].cost or 1.0
    points = []
    for plan in front:
        group, time = f"microbatch {plan.candidate.microbatch}", plan.cost / fastest
        words = (
            f"{plan.arena_nbytes:,} bytes, {time:.2f} times the fastest\n{group}, recomputed "
            f"{100 * plan.extra_forward:.1f} % of a forward pass"
        )
        points.append(Point(plan.arena_nbytes, max(time, 1e-3), group, words))
    return Frontier(points, next(k for k, plan in enumerate(front) if plan is chosen))


def plan_beside(front: Sequence[Plan], chosen: Plan) -> list[tuple[str, Mapping[str, int]]]:
    """Bytes by kind: estimate for torch, then the fastest, the chosen and the smallest plan."""
    rows: list[tuple[str, Mapping[str, int]]] = [("torch, at least", eager_account(chosen))]
    for name, plan in (("fastest plan", front[-1]), ("this plan", chosen), ("least", front[0])):
        if plan is chosen and name != "this plan":
            continue
        rows.append((name, asdict(account(plan))))
    return rows
