"""The vocabulary of recomputation: values, steps, problems, schedules; independent of `ir`.

A *schedule* is a tuple of step ids in order of execution. Every step that may not be recomputed
runs exactly once, the others once or more. An instance of a value is live on the half-open range
[start, stop) of positions: from the step that makes it to the last step that reads or updates it
before it is made again; an instance that is never read is live for one step.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

Schedule = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction as the planner sees it; values are indices into `Problem.nbytes`.

    Attributes:
      reads: values that must be in memory.
      writes: values of which this step makes a fresh instance.
      updates: values changed in place; the first one to run creates the value (accumulation).
      after: ids of steps that must have run before this one.
      workspace: scratch bytes while the step runs.
      cost: seconds, or anything proportional to them.
      flops: forward work, for limits on recomputed FLOPs.
      recomputable: running it again gives the same bytes and has no other effect.
      inplace: (written value, read value) of equal nbytes: if the read instance dies here, the
        written one takes over its bytes. A kept value never dies.
    """

    id: int
    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    updates: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    workspace: int = 0
    cost: float = 0.0
    flops: int = 0
    recomputable: bool = False
    inplace: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Steps in a valid order, and the bytes of every value.

    Attributes:
      nbytes: size of each value.
      steps: `steps[k].id == k`; running each once in this order recomputes nothing.
      always_live: values in memory during the whole schedule, counted into the peak.
      kept: values that stay until the end of the schedule once made.
      optional: values that a step need not store if nothing reads them before they are made again
        (masks and indices for a backward); such an instance takes no bytes.
      cuts: steps that begin a stage of the forward, if whoever made the steps knows good places:
        few bytes cross from one stage to the next, possibly in several values.
    """

    nbytes: tuple[int, ...]
    steps: tuple[Step, ...]
    always_live: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    optional: frozenset[int] = frozenset()
    cuts: tuple[int, ...] = ()

    def forward_flops(self) -> int:
        """FLOPs of running every recomputable step once: one forward, the basis of fractions."""
        return sum(step.flops for step in self.steps if step.recomputable)

    def swaps(self, step: Step) -> tuple[tuple[int, int], ...]:
        """The pairs of `step.inplace` whose read value need not stay in memory."""
        return tuple(pair for pair in step.inplace if pair[1] not in self.kept)

    def lower_bound(self) -> int:
        """A lower bound of every schedule's peak in bytes: the largest need of a single step."""
        most = 0
        for step in self.steps:
            swaps = {new for new, _ in self.swaps(step)}
            touched = {*step.reads, *step.updates, *step.writes} - swaps - self.always_live
            kept = {v for v in touched if v not in step.writes or v not in self.optional}
            most = max(most, sum(self.nbytes[v] for v in kept) + step.workspace)
        return most + sum(self.nbytes[v] for v in self.always_live)


@dataclass(frozen=True, slots=True)
class Instance:
    """One lifetime of a value, [start, stop) in positions of the schedule.

    `source` is the index (in the list that holds this instance) of the instance whose bytes this
    one takes over at `start`; -1: it has its own bytes.
    """

    value: int
    start: int
    stop: int
    source: int = -1


@dataclass(frozen=True, eq=False)
class Simulation:
    """Memory and cost of a schedule.

    Attributes:
      peak_nbytes: the largest entry of `profile`.
      extra_cost, extra_flops: of all runs beyond the first of each step.
      live: `profile` as int64 (positions,).
      lives: `instances` as int64 (instances, 4).
    """

    peak_nbytes: int
    extra_cost: float
    extra_flops: int
    live: np.ndarray
    lives: np.ndarray

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Simulation):
            return NotImplemented
        same = self._numbers() == other._numbers() and np.array_equal(self.live, other.live)
        return same and np.array_equal(self.lives, other.lives)

    def __hash__(self) -> int:
        return hash(self._numbers())

    def _numbers(self) -> tuple[int, float, int]:
        return self.peak_nbytes, self.extra_cost, self.extra_flops

    @cached_property
    def profile(self) -> tuple[int, ...]:
        """Bytes in memory while each position of the schedule runs."""
        return tuple(self.live.tolist())

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Every instance of every value, `always_live` ones first."""
        return tuple(Instance(*row) for row in self.lives.tolist())
