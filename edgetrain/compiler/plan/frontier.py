"""The frontier of plans over microbatch and recomputation: each is placed, none is dominated.

The frontier does not depend on the budget, so more bytes never cost more time, and every command
finds the same smallest plan.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from ...errors import BudgetError, EdgetrainError, ModelError, UsageError
from ...formats import INT8, narrowest
from ...ops.model import name_file
from ...units import format_bytes
from ...units.convolutions import DIRECT
from ...units.phases import phase
from .. import remat
from ..attention import BLOCKS
from ..compilation import Compilation
from ..options import Options
from ..pareto import undominated
from ..passes.head import SLICES
from ..passes.saved import check_saved
from ..pipeline import Graphs, build_graphs
from .addresses import addressable
from .candidates import Candidate, Draft, Plan, Search, make_candidate, make_draft, search_schedules
from .effort import levels_to

MIN_BATCH_NORM_BATCH = 8
LOOSE = 0.005  # of the arena: a plan placed this far above its bound is worth another schedule
CROWDING = (16.0, 24.0, 8.0)  # powers for shortening the lifetimes in its schedule, tried in order
AGAIN = 4  # first, its own schedule is placed with this many times the work
TRIES = 2  # other schedules placed instead of it

_Costed = TypeVar("_Costed", Draft, Plan)


@dataclass(frozen=True)
class Frontier:
    """The result of a search for plans.

    Attributes:
      plans: by rising arena and falling cost.
      bound_nbytes: no plan takes less, however long the search.
    """

    plans: list[Plan]
    bound_nbytes: int


def find_frontier(compilation: Compilation) -> list[Plan]:
    """The plans of `search_frontier`."""
    return search_frontier(compilation).plans


def search_frontier(compilation: Compilation) -> Frontier:
    """Plans of every microbatch, found with the options' effort and with every lesser one.

    Raises:
      UsageError: no microbatch is allowed, an option has no effect in any of them, or the target
        can address no plan.
    """
    options, candidates = compilation.options, list[Candidate]()
    for microbatch in microbatches(compilation):
        with phase(f"steps of microbatch {microbatch}"):
            candidates += _candidates(compilation, microbatch)
    candidates = addressable(candidates, options)
    check_saved([candidate.train.graph for candidate in candidates], options.saved)
    plans: list[Plan] = []
    for effort, searches in zip(
        levels_to(options.effort), search_schedules(candidates, options), strict=True
    ):
        plans = _undominated([*plans, *_placed(searches, options, effort.places)])
    bounds = [c.arena_nbytes(c.train.problem.lower_bound()) for c in candidates]
    return Frontier(addressable(plans, options), min(bounds))


def _candidates(compilation: Compilation, microbatch: int) -> list[Candidate]:
    """The candidate of a microbatch. If it has faster convolutions, the same candidate with direct
    ones comes first: it is slower but needs less workspace.
    """
    candidate = make_candidate(compilation, microbatch)
    if not candidate.has_shortcuts:
        return [candidate]
    direct = compilation.with_options(convolutions=DIRECT)
    return [make_candidate(direct, microbatch), candidate]


def _placed(searches: Sequence[Search], options: Options, times: int) -> list[Plan]:
    """The non-dominated plans of several searches.

    Args:
      times: work of a placement, relative to that for a quick plan.
    """
    drafts = [d for s in searches for d in s.drafts if _allowed(d, options)]
    of = {id(search.candidate): search for search in searches}
    # Placement is compiled and holds no lock.
    with phase("placing plans"), ThreadPoolExecutor(2) as pool:
        first = pool.map(lambda draft: draft.placed(times), _undominated(drafts))
        plans = _undominated(list(first))
        others = pool.map(lambda p: replan_loose(p, of[id(p.candidate)], options, times), plans)
    front = _undominated([*plans, *(plan for some in others for plan in some)])
    return _worthwhile(front)


def obstacle(compilation: Compilation) -> EdgetrainError | None:
    """The error that a plan of any size would meet, or None.

    Builds the steps as `find_frontier` does, for the largest and the smallest microbatch, so ops,
    shapes, dimensions, constants and the loss are judged alike.
    """
    try:
        sizes = microbatches(compilation)
        for microbatch in dict.fromkeys((sizes[0], sizes[-1])):
            make_candidate(compilation, microbatch)
    except EdgetrainError as error:
        if isinstance(error, ModelError):
            name_file(error, compilation.model.source)
        return error
    return None


def _worthwhile(front: Sequence[Plan]) -> list[Plan]:
    """Drop loosely placed plans that save next to nothing over the next one."""
    pairs = zip(front, front[1:], strict=False)
    kept = [p for p, q in pairs if _tight(p) or p.arena_nbytes * (1 + LOOSE) < q.arena_nbytes]
    return [*kept, *front[-1:]]


def _allowed(draft: Draft, options: Options) -> bool:
    most = options.max_extra_forward
    return most is None or draft.extra_forward <= most + 1e-12


def replan_loose(plan: Plan, search: Search, options: Options, times: int) -> list[Plan]:
    """Plans to replace one whose schedule has no tight placement; empty if it has one.

    First the same schedule, placed with more work, then with shortened lifetimes. If that does not
    help, bisection over schedules with a peak between the plan's peak and its arena size: if one of
    them can be placed tightly, it takes less memory than the plan, and also costs less.
    """
    if _tight(plan):
        return []
    result = [make_draft(plan.candidate, plan.schedule).placed(AGAIN * times)]
    if _tight(result[-1]):
        return result
    for seed, crowding in enumerate(CROWDING, 1):
        schedule = remat.shorten_lifetimes(
            plan.candidate.train.problem, plan.schedule, crowding, seed, plan.candidate.replay
        )
        result.append(make_draft(plan.candidate, schedule).placed(times))
        if _tight(result[-1]):
            return result
        if result[-1].arena_nbytes >= plan.arena_nbytes:
            break  # the values in the way are fixed
    low, high, tries = 0, len(search.schedules), 0
    while low < high and tries < TRIES:
        middle = (low + high) // 2
        draft = make_draft(plan.candidate, search.schedules[middle])
        if draft.arena_nbytes >= plan.arena_nbytes:
            high = middle
            continue
        known = draft.simulation.peak_nbytes <= plan.simulation.peak_nbytes
        if known or not _allowed(draft, options):  # less memory recomputes more
            low = middle + 1
            continue
        tries += 1
        other = draft.placed(times)
        if _tight(other):
            result.append(other)
            high = middle
        else:
            low = middle + 1
    return result


def _tight(plan: Plan) -> bool:
    """Whether the plan is placed about as low as its schedule allows."""
    bound = plan.candidate.arena_nbytes(plan.simulation.peak_nbytes)
    return plan.arena_nbytes <= bound * (1 + LOOSE)


def _undominated(items: Sequence[_Costed]) -> list[_Costed]:
    return undominated(items, lambda item: (item.arena_nbytes, item.cost))


def choose_plan(compilation: Compilation, front: Sequence[Plan], budget: int | None) -> Plan:
    """The cheapest plan of at most `budget` bytes.

    Args:
      front: plans of `compilation`; if none fits, the advice is about this compilation.

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
        f"live: {largest}. {_advice(compilation, smallest)}",
        smallest.arena_nbytes,
    )


def _advice(compilation: Compilation, smallest: Plan) -> str:
    """At most two options not chosen yet that would save memory. Options are only suggested if the
    model can be built with them.
    """
    options, microbatch = compilation.options, smallest.candidate.microbatch
    # If the planner chooses the microbatch, only batch-norm or mixed samples limit it from below.
    samples = compilation.prepared.samples
    whole = samples.whole
    smaller = not whole and microbatch > 1 and microbatch == microbatches(compilation)[-1]
    short, blocks = narrowest().precision, INT8.memory
    parts = any((options.weights, options.state, options.grads))
    stored = options.model_memory == blocks or parts
    dense = options.density == 1.0 and not options.density_overrides

    def built(**changes: Any) -> Graphs | None:
        return _built(compilation, microbatch, changes)

    def helps(name: str) -> bool:
        """Whether a memory option that is not allowed yet makes the smallest plan smaller."""
        if name in options.allow or built(allow=(*options.allow, name)) is None:
            return False
        allow = (*options.allow, name)
        plans = find_frontier(compilation.with_options(allow=allow, microbatch=microbatch))
        return bool(plans) and plans[0].arena_nbytes < smallest.arena_nbytes

    tries: list[tuple[Callable[[], Any], str]] = [
        (lambda: smaller, "a smaller --microbatch"),
        (lambda: whole and options.minibatch > 1, "a smaller --minibatch"),
        (lambda: helps(SLICES), f"--allow {SLICES}"),
        (lambda: helps(BLOCKS), f"--allow {BLOCKS}"),
        (lambda: options.precision != short and built(precision=short), f"--precision {short}"),
        (
            lambda: options.precision == short and not stored and built(model_memory=blocks),
            f"--model-memory {blocks}",
        ),
        (lambda: options.max_extra_forward is not None, "a larger --max-extra-forward"),
        (lambda: dense and built(density=0.3, rewiring="dsr"), "--density 0.3"),
        (lambda: not options.freeze and not options.train, "--freeze PATTERN"),
    ]
    wanted = list(islice((words for useful, words in tries if useful()), 2))
    said = f"The minibatch can't be split: {samples.why}. " if whole else ""
    return said + (f"Try {' or '.join(wanted)}." if wanted else "Use a smaller model.")


def _built(compilation: Compilation, microbatch: int, changes: Mapping[str, Any]) -> Graphs | None:
    """The graphs with other options; None if they are rejected."""
    try:
        return build_graphs(compilation.with_options(**changes), microbatch)
    except EdgetrainError:
        return None


def microbatches(compilation: Compilation) -> list[int]:
    """Divisors of the minibatch that may be tried, largest first.

    Raises:
      ModelError: the file allows only one batch size, which does not divide the minibatch.
      UsageError: a microbatch was requested, but samples are not independent.
    """
    options, prepared = compilation.options, compilation.prepared
    if options.microbatch == options.minibatch:
        return [options.minibatch]
    samples = prepared.samples
    if options.microbatch is not None:
        samples.factor(options.minibatch, options.microbatch)
        return [options.microbatch]
    fixed = prepared.only_batch
    if options.fused_update and fixed in (0, options.minibatch):
        return [options.minibatch]
    if fixed:
        if options.minibatch % fixed:
            prepared.check_free()
        return [fixed]
    if samples.whole:
        return [options.minibatch]
    least = 1
    if prepared.mixes_samples:
        least = min(MIN_BATCH_NORM_BATCH, options.minibatch)
    divisors = [m for m in range(options.minibatch, 0, -1) if options.minibatch % m == 0]
    return [m for m in divisors if m >= least] or [options.minibatch]


def peak_of(plan: Plan) -> tuple[tuple[int, str], list[tuple[str, int]]]:
    """((position, step name), [(value, bytes)] largest first) at the peak of live bytes."""
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
    """Raise UsageError if --max-extra-forward excluded every plan."""
    if not front:
        raise UsageError(f"max_extra_forward {options.max_extra_forward}: expected at least 0.")
