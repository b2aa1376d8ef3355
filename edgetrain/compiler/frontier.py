"""The frontier of plans: microbatch x recomputation, each placed, none dominated.

What is found does not depend on the budget, so more bytes never cost more time and the smallest
plan is the same whoever asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..errors import BudgetError, UsageError
from ..kernels import jit
from ..ops.model import Model
from ..units import format_bytes
from . import arena, remat
from .options import Options
from .pipeline import Graphs, build_graphs
from .remat.problem import Problem, Schedule, Simulation
from .steps import Placed, TapeProblem, buffers_of, tape_problem
from .update import UpdateTape, update_tape

MIN_BATCH_NORM_BATCH = 8
POINTS = 48  # plans kept of each microbatch
EFFORT = 32  # of the recomputation search over all microbatches, in its own unit of work
LONG_SCHEDULE = 600  # from so many steps on half of both; from five times as many less effort


@dataclass(frozen=True)
class Candidate:
    """Everything of one microbatch that its plans share.

    Attributes:
      persistent_nbytes: parameters, state, accumulators, control block, each aligned.
      floor_nbytes: transient bytes that evaluation and update need whatever the schedule.
    """

    microbatch: int
    graphs: Graphs
    train: TapeProblem
    evaluate: TapeProblem
    eval_simulation: Simulation
    eval_placed: Placed
    eval_offsets: tuple[int, ...]
    update: UpdateTape
    persistent_nbytes: int
    floor_nbytes: int


class _Scheduled:
    """What a plan is before and after it is placed."""

    candidate: Candidate
    simulation: Simulation

    @property
    def extra_forward(self) -> float:
        """Recomputed forward FLOPs over one forward's."""
        return self.simulation.extra_flops / max(1, self.candidate.train.problem.forward_flops())


@dataclass(frozen=True)
class Draft(_Scheduled):
    """A schedule that is not placed.

    Attributes:
      cost: relative seconds of a minibatch.
    """

    candidate: Candidate
    schedule: Schedule
    simulation: Simulation
    cost: float

    @property
    def arena_nbytes(self) -> int:
        """No placement takes less."""
        return self._arena_nbytes(self.simulation.peak_nbytes)

    def _arena_nbytes(self, transient: int) -> int:
        return self.candidate.persistent_nbytes + max(transient, self.candidate.floor_nbytes)

    def placed(self) -> "Plan":
        """With an address for every value."""
        placed = buffers_of(self.candidate.train.problem, self.schedule, self.simulation)
        offsets, height = arena.place(placed.buffers)
        return Plan(
            self.candidate, self.schedule, self.simulation, placed, tuple(offsets),
            self._arena_nbytes(height), self.cost,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan(_Scheduled):
    """One placed schedule.

    Attributes:
      offsets: of `placed.buffers`, in bytes from the start of the transient region.
      cost: relative seconds of a minibatch.
    """

    candidate: Candidate
    schedule: Schedule
    simulation: Simulation
    placed: Placed
    offsets: tuple[int, ...]
    arena_nbytes: int
    cost: float


_Costed = TypeVar("_Costed", Draft, Plan)


def find_frontier(model: Model, options: Options, target: jit.Target) -> list[Plan]:
    """Plans by rising arena and falling cost.

    Raises:
      UsageError: no microbatch is allowed.
    """
    candidates = [make_candidate(model, options, m, target) for m in microbatches(model, options)]
    drafts = _drafts(candidates, options)
    if options.max_extra_forward is not None:
        drafts = [d for d in drafts if d.extra_forward <= options.max_extra_forward + 1e-12]
    plans = [draft.placed() for draft in _undominated(drafts)]
    return _undominated(plans)


def _undominated(items: list[_Costed]) -> list[_Costed]:
    """By rising bytes and falling cost."""
    front: list[_Costed] = []
    for item in sorted(items, key=lambda item: (item.arena_nbytes, item.cost)):
        if not front or item.cost < front[-1].cost:
            front.append(item)
    return front


def choose_plan(front: Sequence[Plan], budget: int | None) -> Plan:
    """The cheapest plan of at most `budget` bytes.

    Raises:
      BudgetError: names the smallest plan, its peak step and the largest values live there.
    """
    if budget is None:
        return front[-1]
    fitting = [plan for plan in front if plan.arena_nbytes <= budget]
    if fitting:
        return fitting[-1]
    smallest = front[0]
    step, live = peak_of(smallest)
    largest = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in live[:3])
    raise BudgetError(
        f"training needs {smallest.arena_nbytes} bytes ({format_bytes(smallest.arena_nbytes)}), "
        f"budget {budget} ({format_bytes(budget)}); peak at step {step[0]} ({step[1]}), largest "
        f"live: {largest}. {_advice(smallest)}",
        smallest.arena_nbytes,
    )


def _advice(plan: Plan) -> str:
    if plan.candidate.microbatch > 1:
        return "Try a smaller --microbatch or --precision fp16."
    return "Try --precision fp16, or freeze parameters."


def microbatches(model: Model, options: Options) -> list[int]:
    """Divisors of the minibatch that may be tried, largest first."""
    if options.microbatch is not None:
        return [options.microbatch]
    least = 1
    if any(node.op_type == "BatchNormalization" for node in model.nodes):
        least = min(MIN_BATCH_NORM_BATCH, options.minibatch)
    divisors = [m for m in range(options.minibatch, 0, -1) if options.minibatch % m == 0]
    return [m for m in divisors if m >= least] or [options.minibatch]


def make_candidate(
    model: Model, options: Options, microbatch: int, target: jit.Target
) -> Candidate:
    """Graphs, problems and the parts that do not depend on the schedule."""
    graphs = build_graphs(model, options, microbatch)
    train = tape_problem(graphs.train, options.threads, target)
    evaluate = tape_problem(graphs.evaluate, options.threads, target, kept=graphs.evaluate.outputs)
    order = remat.store_all(evaluate.problem, 0)[0]
    simulation = remat.simulate(evaluate.problem, order)
    placed = buffers_of(evaluate.problem, order, simulation)
    offsets, height = arena.place(placed.buffers)
    update = update_tape(graphs.train, options, target, graphs.layers)
    return Candidate(
        microbatch, graphs, train, evaluate, simulation, placed, tuple(offsets), update,
        update.persistent_nbytes, max(height, update.transient_nbytes),
    )  # fmt: skip


def _drafts(candidates: Sequence[Candidate], options: Options) -> list[Draft]:
    """Schedules of every microbatch.

    A long graph is searched once, for the smallest microbatch, whose plans are nearly always the
    ones that are kept; the others take its schedules where their steps are the same.
    """
    known: tuple[Problem, list[Schedule]] | None = None
    drafts: list[Draft] = []
    for candidate in reversed(candidates):
        problem = candidate.train.problem
        if known is not None and _same_steps(problem, known[0]):
            found = [(schedule, remat.simulate(problem, schedule)) for schedule in known[1]]
        elif len(problem.steps) > LONG_SCHEDULE:
            part = 2 if len(problem.steps) <= 5 * LONG_SCHEDULE else 4
            found = remat.frontier(problem, EFFORT // part, points=POINTS // 2)
            known = problem, [schedule for schedule, _ in found]
        else:
            found = remat.frontier(problem, max(4, EFFORT // len(candidates)), points=POINTS)
        repeats = options.minibatch // candidate.microbatch
        base = sum(step.cost for step in problem.steps)
        drafts += [Draft(candidate, s, sim, repeats * (base + sim.extra_cost)) for s, sim in found]
    return drafts


def _same_steps(one: Problem, other: Problem) -> bool:
    """Whether a schedule of one is a schedule of the other."""
    return [(s.reads, s.writes, s.updates, s.after, s.recomputable) for s in one.steps] == [
        (s.reads, s.writes, s.updates, s.after, s.recomputable) for s in other.steps
    ]


def peak_of(plan: Plan) -> tuple[tuple[int, str], list[tuple[str, int]]]:
    """((position, step name), [(value, bytes)] largest first) where most bytes are live."""
    profile = plan.simulation.profile
    position = max(range(len(profile)), key=profile.__getitem__)
    train = plan.candidate.train
    live = [
        (train.roots[i.value], train.problem.nbytes[i.value])
        for i in plan.simulation.instances
        if i.start <= position < i.stop
    ]
    name = train.problem.steps[plan.schedule[position]].name
    return (position, name), sorted(live, key=lambda item: -item[1])


def check_not_empty(front: Sequence[Plan], options: Options) -> None:
    """Raise where --max-extra-forward excluded every plan."""
    if not front:
        raise UsageError(
            f"max_extra_forward {options.max_extra_forward}: no plan recomputes that little; "
            "allow 0 or more."
        )
