"""Plans to choose from: one candidate per microbatch, and its schedules."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...ops.registry import op
from ...units.phases import phase
from .. import arena, remat
from ..arena.problem import aligned
from ..compilation import Compilation
from ..options import Options
from ..passes.fused_update import keeps_weights
from ..pipeline import Graphs, build_graphs
from ..remat.problem import Problem, Schedule, Simulation
from ..tapes.steps import ALIGN, Placed, TapeProblem, buffers_of, tape_problem
from ..tapes.update import UpdateTape, update_tape
from .effort import levels_to

# Plans per microbatch: MEASURED steps in total, but within two bounds.
MEASURED, FEWEST, POINTS = 48_000, 48, 96
AGAIN = 6.0  # millions of simulated steps: above this, further microbatches are not searched
PLACE_EFFORT, MOST_PLACED = 0.25, 55_000  # most placement effort: per buffer; divided by buffers


@dataclass(frozen=True)
class Candidate:
    """Everything that the plans of one microbatch share.

    Attributes:
      compilation: its source; of the allowed memory options, its options contain only those in
        use.
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
    compilation: Compilation

    @property
    def options(self) -> Options:
        return self.compilation.options

    @cached_property
    def replay(self) -> remat.Replay:
        """Measures schedules of the training tape."""
        return remat.Replay(self.train.problem)

    @cached_property
    def cost(self) -> float:
        """Relative seconds of a microbatch without recomputation."""
        return sum(step.cost for step in self.train.problem.steps)

    @property
    def has_shortcuts(self) -> bool:
        """Whether some node uses an algorithm chosen for its shapes instead of the direct one."""
        graphs = self.graphs.train, self.graphs.evaluate
        return any(op(node.op).shortcut(node) for graph in graphs for node in graph.nodes)

    @property
    def mapped_nbytes(self) -> int:
        """Bytes of weights and constants that stay in the Program's file, each aligned."""
        return sum(aligned(value.nbytes, ALIGN) for value in self.update.mapped)

    def arena_nbytes(self, transient: int) -> int:
        """Arena size with `transient` bytes for the transient values of training."""
        return self.persistent_nbytes + max(transient, self.floor_nbytes)


class _Scheduled:
    """Properties of a plan before and after placement."""

    candidate: Candidate
    simulation: Simulation

    @property
    def extra_forward(self) -> float:
        """Recomputed forward FLOPs, as a fraction of one forward's."""
        return self.simulation.extra_flops / max(1, self.candidate.train.problem.forward_flops())


@dataclass(frozen=True)
class Draft(_Scheduled):
    """A schedule that is not placed yet.

    Attributes:
      cost: relative seconds of a minibatch.
    """

    candidate: Candidate
    schedule: Schedule
    simulation: Simulation
    cost: float

    @property
    def arena_nbytes(self) -> int:
        """A lower bound of the arena: no placement takes less."""
        return self.candidate.arena_nbytes(self.simulation.peak_nbytes)

    def placed(self, times: float = 1) -> "Plan":
        """Assign an offset to every value; `times`: work, relative to that for a quick plan."""
        placed = buffers_of(self.candidate.train.problem, self.schedule, self.simulation)
        count = len(placed.buffers)
        effort = min(arena.DEFAULT_EFFORT, PLACE_EFFORT * count, MOST_PLACED / max(count, 1))
        effort *= times
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
            f"{100 * self.extra_forward:.1f} % of a forward pass)"
        )


def make_candidate(compilation: Compilation, microbatch: int) -> Candidate:
    """Build the graphs, problems and everything else that does not depend on the schedule."""
    options, target = compilation.options, compilation.processor
    graphs = build_graphs(compilation, microbatch)
    train = tape_problem(graphs.train, options.threads, target)
    evaluate = tape_problem(graphs.evaluate, options.threads, target, kept=graphs.evaluate.outputs)
    order = remat.store_all(evaluate.problem, 0)[0]
    simulation = remat.simulate(evaluate.problem, order)
    placed = buffers_of(evaluate.problem, order, simulation)
    offsets, height = arena.place(placed.buffers)
    sparse = graphs.layers, graphs.rewiring
    update = update_tape(graphs.train, options, target, *sparse, graphs.group_optimizers)
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
        compilation,
    )


@dataclass(frozen=True)
class Search:
    """The search results for one microbatch.

    Attributes:
      schedules: all of them, by rising peak.
      drafts: schedules to be placed, spread over the peaks.
    """

    candidate: Candidate
    schedules: tuple[Schedule, ...]
    drafts: tuple[Draft, ...]


def search_schedules(candidates: Sequence[Candidate], options: Options) -> list[list[Search]]:
    """Schedules of every microbatch, after each effort up to that of the options.

    The smallest microbatch, whose plans nearly always win, is searched first. Another one with the
    same steps reuses its schedules; if the search is short, it continues from there while it gains
    something.
    """
    efforts = levels_to(options.effort)
    known: list[Search] = []
    result: list[list[Search]] = [[] for _ in efforts]
    for candidate in reversed(candidates):
        problem = candidate.train.problem
        levels = [effort.level(len(problem.steps)) for effort in efforts]
        same = bool(known) and _same_steps(problem, known[0].candidate.train.problem)
        if same and levels[0].effort > AGAIN:
            drafts = [[make_draft(candidate, d.schedule) for d in s.drafts] for s in known]
            pairs = zip(known, drafts, strict=True)
            searches = [Search(candidate, s.schedules, tuple(d)) for s, d in pairs]
        else:
            seeds = [search.schedules for search in known] if same else None
            with phase(f"searching schedules of microbatch {candidate.microbatch}"):
                searches = _searched(candidate, levels, seeds)
        for level, search in zip(result, searches, strict=True):
            level.append(search)
        known = searches
    return result


def _searched(
    candidate: Candidate,
    levels: Sequence[remat.Level],
    seeds: Sequence[Sequence[Schedule]] | None,
) -> list[Search]:
    """The searches of one microbatch after each level; `seeds` as in `schedules_of_use`."""
    problem, searches = candidate.train.problem, []  # type: tuple[Problem, list[Search]]
    points = max(FEWEST, min(POINTS, MEASURED // len(problem.steps)))
    for some in remat.schedules_of_use(problem, levels, candidate.floor_nbytes, seeds):
        if searches and some == list(searches[-1].schedules):
            searches.append(searches[-1])
            continue
        result = keeps_weights(candidate.train.nodes, candidate.train.graph, some)
        chosen = remat.measured(problem, result, points, candidate.replay)
        drafts = [make_draft(candidate, schedule, sim) for schedule, sim in chosen]
        searches.append(Search(candidate, tuple(result), tuple(drafts)))
    return searches


def make_draft(
    candidate: Candidate, schedule: Schedule, simulation: Simulation | None = None
) -> Draft:
    """A schedule with its memory and cost; pass `simulation` if it is known."""
    simulation = simulation or candidate.replay(schedule)
    repeats = candidate.options.minibatch // candidate.microbatch
    cost = repeats * (candidate.cost + simulation.extra_cost)
    return Draft(candidate, schedule, simulation, cost)


def _same_steps(first: Problem, second: Problem) -> bool:
    """Whether a schedule of one is a schedule of the other."""
    return [(s.reads, s.writes, s.updates, s.after, s.recomputable) for s in first.steps] == [
        (s.reads, s.writes, s.updates, s.after, s.recomputable) for s in second.steps
    ]
