"""Plans that are not yet chosen from: one candidate a microbatch, and its schedules."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...kernels.cache import jit
from ...ops.model import Model
from ...units.stages import stage
from .. import arena, remat
from ..arena.problem import aligned
from ..options import Options
from ..passes.fused_update import keeps_weights
from ..pipeline import Graphs, build_graphs
from ..remat.problem import Problem, Schedule, Simulation
from ..tapes.steps import ALIGN, Placed, TapeProblem, buffers_of, tape_problem
from ..tapes.update import UpdateTape, update_tape

POINTS = 96  # plans kept of each microbatch
SHORT_SCHEDULE = 100  # up to so many steps each microbatch is searched by itself
HALF_LONG = 300  # up to so many a search finds more for its work
LONG_SCHEDULE = 600  # from so many on half the points
# By steps of the problem: effort of a search at most, and at most for each step.
EFFORTS = (
    (SHORT_SCHEDULE, 8, 0.06),
    (HALF_LONG, 64, 0.48),
    (LONG_SCHEDULE, 8, 0.06),
    (5 * LONG_SCHEDULE, 12, 0.06),
    (2**31, 5, 0.06),
)
PLACE_EFFORT, MOST_PLACED = 0.25, 55_000  # of placement at most: each buffer's, over buffers
# Part of the front that rounds of the search must improve for more; where a short one has seeds.
GAIN, SHORT_GAIN = 0.01, 0.001


@dataclass(frozen=True)
class Candidate:
    """Everything of one microbatch that its plans share.

    Attributes:
      options: what it was made with; of the rungs that were allowed, those that are taken.
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
    options: Options

    @cached_property
    def replay(self) -> remat.Replay:
        """Measures schedules of the training tape."""
        return remat.Replay(self.train.problem)

    @cached_property
    def cost(self) -> float:
        """Relative seconds of a microbatch that recomputes nothing."""
        return sum(step.cost for step in self.train.problem.steps)

    @property
    def mapped_nbytes(self) -> int:
        """Of weights and constants that stay in the Program's file, each aligned."""
        return sum(aligned(value.nbytes, ALIGN) for value in self.update.mapped)

    def arena_nbytes(self, transient: int) -> int:
        """Bytes of the arena with so many for the transient values of training."""
        return self.persistent_nbytes + max(transient, self.floor_nbytes)


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
        return self.candidate.arena_nbytes(self.simulation.peak_nbytes)

    def placed(self) -> "Plan":
        """With an address for every value."""
        placed = buffers_of(self.candidate.train.problem, self.schedule, self.simulation)
        count = len(placed.buffers)
        effort = min(arena.DEFAULT_EFFORT, PLACE_EFFORT * count, MOST_PLACED / max(count, 1))
        beside = self.candidate.persistent_nbytes
        offsets, height = arena.place(placed.buffers, effort=effort, beside=beside)
        return Plan(
            self.candidate,
            self.schedule,
            self.simulation,
            placed,
            tuple(offsets),
            self.candidate.arena_nbytes(height),
            self.cost,
        )


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        return (
            f"Plan({self.arena_nbytes:,} bytes, microbatch {self.candidate.microbatch}, recomputes "
            f"{100 * self.extra_forward:.1f} % of a forward)"
        )


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
    update = update_tape(graphs.train, options, target, graphs.layers, graphs.rewiring)
    return Candidate(
        microbatch,
        graphs,
        train,
        evaluate,
        simulation,
        placed,
        tuple(offsets),
        update,
        update.persistent_nbytes,
        max(height, update.transient_nbytes),
        options,
    )


@dataclass(frozen=True)
class Search:
    """What was found for one microbatch.

    Attributes:
      schedules: all of them, by rising peak.
      drafts: those to be placed, spread over the peaks.
    """

    candidate: Candidate
    schedules: tuple[Schedule, ...]
    drafts: tuple[Draft, ...]


def search_schedules(candidates: Sequence[Candidate], options: Options) -> list[Search]:
    """Schedules of every microbatch.

    The smallest microbatch, whose plans are nearly always the ones that are kept, is searched
    first. Where the steps of another are the same it takes that one's schedules; a short graph is
    searched again from there, as long as something is gained.
    """
    known: Search | None = None
    searches: list[Search] = []
    for candidate in reversed(candidates):
        problem, seeds = candidate.train.problem, ()  # type: tuple[Problem, Sequence[Schedule]]
        short = len(problem.steps) <= SHORT_SCHEDULE
        if known is not None and _same_steps(problem, known.candidate.train.problem):
            if not short:
                drafts = [make_draft(candidate, draft.schedule, options) for draft in known.drafts]
                searches.append(Search(candidate, known.schedules, tuple(drafts)))
                continue
            seeds = known.schedules
        with stage(f"searching schedules of microbatch {candidate.microbatch}"):
            found = _found(candidate, seeds)
        long = len(problem.steps) > LONG_SCHEDULE
        points = remat.measured(problem, found, POINTS // 2 if long else POINTS, candidate.replay)
        drafts = [make_draft(candidate, schedule, options, sim) for schedule, sim in points]
        searches.append(Search(candidate, tuple(found), tuple(drafts)))
        known = searches[-1]
    return searches


def _found(candidate: Candidate, seeds: Sequence[Schedule]) -> list[Schedule]:
    """What one search finds; a short one without seeds ends with its effort, others sooner."""
    problem = candidate.train.problem
    count = len(problem.steps)
    effort = next(min(most, count * each) for steps, most, each in EFFORTS if count <= steps)
    short = count <= SHORT_SCHEDULE
    gain = (SHORT_GAIN if seeds else 0.0) if short else GAIN
    found = remat.schedules_of_use(problem, effort, candidate.floor_nbytes, gain, seeds)
    return keeps_weights(candidate.train.nodes, candidate.train.graph, found)


def make_draft(
    candidate: Candidate, schedule: Schedule, options: Options, simulation: Simulation | None = None
) -> Draft:
    """A schedule with what it needs and costs; `simulation` where that is known."""
    simulation = simulation or candidate.replay(schedule)
    repeats = options.minibatch // candidate.microbatch
    cost = repeats * (candidate.cost + simulation.extra_cost)
    return Draft(candidate, schedule, simulation, cost)


def _same_steps(one: Problem, other: Problem) -> bool:
    """Whether a schedule of one is a schedule of the other."""
    return [(s.reads, s.writes, s.updates, s.after, s.recomputable) for s in one.steps] == [
        (s.reads, s.writes, s.updates, s.after, s.recomputable) for s in other.steps
    ]
