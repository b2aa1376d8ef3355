"""Skips plans that are larger than the target's address space."""

from collections.abc import Sequence
from typing import TypeVar

from ...errors import UsageError
from ...kernels import targets
from ...units import format_bytes
from ..options import Options
from .candidates import Candidate, Plan

Sized = TypeVar("Sized", Candidate, Plan)


def addressable(items: Sequence[Sized], options: Options) -> list[Sized]:
    """The items whose arena the target can address; candidates are judged by their largest step.

    Raises:
      UsageError: no item fits.
    """
    most = targets.get(options.target).most_nbytes
    needed = [_least_nbytes(item) for item in items]
    kept = [item for item, nbytes in zip(items, needed, strict=True) if nbytes <= most]
    if items and not kept:
        least = min(needed)
        raise UsageError(
            f"target {options.target}: the arena needs at least {least:,} bytes "
            f"({format_bytes(least)}), but it can address at most {most:,} ({format_bytes(most)}). "
            "Compile for a 64-bit target, or use a smaller model or minibatch."
        )
    return kept


def _least_nbytes(found: Candidate | Plan) -> int:
    if isinstance(found, Plan):
        return found.arena_nbytes
    problem = found.train.problem
    stored = set(range(len(problem.nbytes))) - problem.optional
    largest = 0
    for step in problem.steps:
        taken_over = {written for written, _ in problem.swaps(step)}
        values = ({*step.reads, *step.writes, *step.updates} - taken_over) & stored
        largest = max(largest, sum(problem.nbytes[value] for value in values))
    return found.arena_nbytes(largest)
