"""Plans and compiles a model within a memory limit."""

import gc
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..checker import prove
from ..errors import BudgetError, UsageError
from ..kernels.loops import functions
from ..ops.model import Model, names_file
from ..program import Program
from ..units.efforts import NORMAL, QUICK
from . import remat
from .compilation import Compilation
from .model.lengths import dimension, of_each_length
from .options import Options
from .plan.allowed import resolved_like, resolved_options
from .plan.candidates import Plan
from .plan.frontier import check_not_empty, choose_plan, search_frontier
from .plan.units import units_of
from .tapes.assemble import assemble
from .tapes.limits import limits_of
from .tapes.meanings import meanings_of


def plan_model(
    model: Model, options: Options, budget: int | None = None
) -> tuple[Plan, list[Plan], dict]:
    """See `make_plan`."""
    return make_plan(Compilation(model, options), budget)


@names_file
def make_plan(
    compilation: Compilation, budget: int | None = None, decided: Options | None = None
) -> tuple[Plan, list[Plan], dict]:
    """The chosen plan within `budget` bytes, the frontier, and facts for the account.

    Allowed memory options that don't help are dropped (plan/allowed.py); `plan.candidate.options`
    contains those in use. If a quick search finds no plan within the budget, it continues with
    normal effort. With several lengths, the plan is for the longest.

    Args:
      decided: options of the longest length's plan, when planning another length.
    Raises:
      BudgetError: no plan fits `budget`.
    """
    start = time.perf_counter()
    compilation = of_each_length(compilation)[0]
    functions.begin(units_of(len(compilation.prepared.laid_out.nodes)))
    with _collector_resting():
        if decided is None:
            resolved = resolved_options(compilation)
        else:
            resolved = resolved_like(compilation, decided)
        compilation = resolved.compilation
        frontier = search_frontier(compilation)
        fits = budget is None or any(plan.arena_nbytes <= budget for plan in frontier.plans)
        if compilation.options.effort == QUICK and not fits:
            compilation = compilation.with_options(effort=NORMAL)
            frontier = search_frontier(compilation)
    options, front = compilation.options, frontier.plans
    check_not_empty(front, options)
    plan = choose_plan(compilation, front, budget)
    measured = remat.simulate(plan.candidate.train.problem, plan.schedule)
    assert measured == plan.simulation, "the referee measures the chosen schedule otherwise"
    facts = {
        "budget_nbytes": budget,
        "min_budget_nbytes": front[0].arena_nbytes,
        "effort": options.effort,
        "bound_nbytes": frontier.bound_nbytes,
        **compilation.prepared.samples.facts(),
        **resolved.facts(),
        **_direct(plan, options),
        "relative_time": round(plan.cost / front[-1].cost, 4),
        "plan_seconds": round(time.perf_counter() - start, 3),
    }
    return plan, front, facts


def _direct(plan: Plan, options: Options) -> dict[str, str]:
    """Facts for the account if the budget was too small for the requested convolutions."""
    chosen = plan.candidate.options.convolutions
    return {} if chosen == options.convolutions else {"convolutions": chosen}


@contextmanager
def _collector_resting() -> Iterator[None]:
    """Pause garbage collection: plans are millions of small tuples without cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def compile_model(model: Model, options: Options, budget: int | None = None) -> Program:
    """See `make_program`."""
    return make_program(Compilation(model, options), budget)


@names_file
def make_program(compilation: Compilation, budget: int | None = None) -> Program:
    """Compile a model for training within `budget` bytes (None: the fastest plan).

    Raises:
      BudgetError: no plan fits.
      ProgramError: the tapes do not compute the graph: a bug in the compiler.
    """
    try:
        plan, _, facts = make_plan(compilation, budget)
    except BudgetError as error:
        raise too_long(compilation, budget, error) from None
    return of_lengths(compilation, budget, plan, proven(plan, facts))


def too_long(compilation: Compilation, budget: int | None, error: BudgetError) -> BudgetError:
    """The longest length's error, with the length and the longest one that would fit."""
    longest, *shorter = of_each_length(compilation)
    if not compilation.options.lengths:
        return error
    name = dimension(compilation.options, longest.options)
    move = "No shorter one fits either."
    for other in shorter:
        try:
            make_plan(other, budget)
        except BudgetError:
            continue
        move = f"Length {other.options.dims[name]} fits: leave longer ones out, or allow more."
        break
    size = longest.options.dims[name]
    return BudgetError(f"length {name}={size}: {error} {move}", error.min_budget_nbytes)


def of_lengths(
    compilation: Compilation,
    budget: int | None,
    plan: Plan,
    longest: Program,
    make: Callable[[Plan, Mapping], Program] | None = None,
) -> Program:
    """The Program of the longest length plus tape sets of the others, which are planned to fit its
    arena; `longest` itself if there are no lengths.

    Args:
      plan: of the longest length.
      make: makes a Program from a plan (default: `proven`).
    Raises:
      BudgetError: a shorter length, with a larger microbatch, does not fit the budget.
    """
    options = compilation.options
    if not options.lengths:
        return longest
    first, *shorter = of_each_length(compilation)
    name, decided = dimension(options, first.options), plan.candidate.options
    asked: dict[str, Any] = {"lengths": {name: sorted(next(iter(options.lengths.values())))}}
    asked |= {} if options.tokens is None else {"tokens": options.tokens}
    programs = [longest]
    for other in shorter:
        try:
            plan, _, facts = make_plan(other, longest.arena_nbytes, decided)
        except BudgetError as error:
            least = error.min_budget_nbytes
            if budget is not None and least > budget:
                size = other.options.dims[name]
                raise BudgetError(f"length {name}={size}: {error}", least) from None
            plan, _, facts = make_plan(other, least, decided)
        facts["budget_nbytes"] = budget
        program = (make or proven)(plan, facts)
        programs.append(_limited(name, longest, program, limits_of(plan.candidate).capped))
    first_set, *others = (
        replace(program, recipe={**program.recipe, **asked}) for program in programs
    )
    return first_set.joined(others)


def _limited(name: str, longest: Program, other: Program, capped: Collection[str]) -> Program:
    """The Program with the limits of the longest length: a Program has one per input.

    Args:
      capped: inputs whose larger integers act like the largest.
    Raises:
      UsageError: an input's limit depends on the length, and larger integers would be wrong.
    """
    for field, limit in longest.limits.items():
        if other.limits.get(field) != limit and field not in capped:
            raise UsageError(
                f"lengths: values of {field!r} are below {limit} at {name}={longest.dims[name]}, "
                f"but below {other.limits.get(field)} at {name}={other.dims[name]}. Compile for "
                f"one length (--dim {name}={longest.dims[name]})."
            )
    return replace(other, limits=longest.limits)


def proven(plan: Plan, facts: Mapping) -> Program:
    """Assemble the Program of a plan, and prove that its tapes compute the graph.

    Args:
      facts: as for `assemble`.
    Raises:
      ProgramError: the tapes do not compute the graph: a bug in the compiler.
    """
    program = assemble(plan, facts)
    prove(meanings_of(plan.candidate), program)
    return program
