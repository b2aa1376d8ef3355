"""Chains: dynamic programming over which stages to keep, for all memory limits at once.

State (e, i, j, m): the output of stage i is in memory, and m more slots are free; the backwards of
stages j .. i + 1 are still to run; e tells whether stage j was kept whole when it ran. Each choice
keeps either a stage k for later (its output, or everything its backward needs) or nothing. Stages
kept whole are not run again, so a segment's last stage is never recomputed. Once the backward of a
stage kept whole has run, its slots, which m does not include, go to the stretches before it.

Sources: Beaumont et al. 2019 (heterogeneous chains, persistent schedules); keeping the last stage
whole is ours. Equal stretches (i, j) share a row (rows.py), and of long stretches only some ends
are tried, so a chain of n stages costs about n * slots * `reach`^2. Chains that are still too long
are cut into groups: the program is exact inside a group, and longer segments begin only at group
borders. Known limit: sizes are rounded to slots; the real memory of a schedule is measured
afterwards.
"""

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops.functions import Unit, loop
from edgetrain.kernels.loops.kinds import ZERO, FloatRows32, Floats32, IntRows32, Ints

from .rows import rows_of, used
from .stages import Chain

CHAIN = Unit("dynamic program of chains", "edgetrain.compiler.remat.chain", ("table",))


class Kept(NamedTuple):
    """The stage to keep next, and whether it is kept whole; stage 0: none."""

    stage: int
    whole: int


class Costs(NamedTuple):
    """The cost of each stretch for every number of slots up to the most it can use.

    Attributes:
      value: float32 (2, all rows concatenated), by e; infinity if nothing is known.
      row: the row of each stretch, (n + 1, n + 1), rising with its length; -1: not tried.
      at, cap: start of a row, and its slots; more slots cost the same as `cap`.
    """

    value: FloatRows32
    row: IntRows32
    at: Ints
    cap: Ints


class Slots(NamedTuple):
    """Slots of each stage: its output, its other saved values, its run, its gradient; the cost of
    its forward; slots that a stage kept whole hands to the stages before it.
    """

    out: Ints
    saved: Ints
    need: Ints
    grad: Ints
    cost: Floats32
    freed: Ints


@loop
def _least(here, right, left, right_cap, left_cap, low, keep, gone, total):
    """Lower here[m], m >= `low`, to total + right[m - keep] + left[m - gone]; `gone` may be < 0."""
    end = here.size
    right_end, left_end = keep + right_cap + 1, gone + left_cap + 1
    both = min(end, min(right_end, left_end))
    if both > low:
        into, item = here[low:both], right[low - keep : both - keep]
        other = left[low - gone : both - gone]
        for m in range(into.size):
            value = total + item[m] + other[m]
            into[m] = value if value < into[m] else into[m]
        low = both
    if min(end, right_end) > low:
        _least_of(here[low:right_end], right[low - keep :], total + left[left_cap])
        low = min(end, right_end)
    elif min(end, left_end) > low:
        _least_of(here[low:left_end], left[low - gone :], total + right[right_cap])
        low = min(end, left_end)
    most, into = total + right[right_cap] + left[left_cap], here[low:]
    for m in range(into.size):
        into[m] = most if most < into[m] else into[m]


@loop
def _least_of(into, part, rest):
    for m in range(min(into.size, part.size)):
        value = rest + part[m]
        into[m] = value if value < into[m] else into[m]


@CHAIN.entry
def fill(t: Costs, s: Slots, last: int) -> None:
    """Fill all rows with i + 1 < j; those with j == i + 1 are given.

    Args:
      last: the stage whose gradient does not exist before its backward.
    """
    n, done = s.out.size - 1, ZERO - 1
    for d in range(1, n + 1):
        for i in range(n - d + 1):
            j = i + d
            row = np.int64(t.row[i, j])
            if row <= done:
                continue
            done = row
            held = 0 if j == last else s.grad[j]
            run, total, cap = ZERO, np.float32(0), t.cap[row]
            for k in range(i + 1, j):
                total += s.cost[k]
                before = s.out[k - 1] if k - 1 > i else 0
                run = max(run, s.out[k] + before + s.need[k])
                left, right = np.int64(t.row[i, k]), np.int64(t.row[k, j])
                if left < 0 or right < 0:
                    continue
                for f in range(2):
                    keep = s.out[k] + (s.saved[k] if f else 0)
                    low = max(run + held, keep)
                    for e in range(2 if low <= cap else 0):
                        gone = (keep if f else 0) - (s.freed[j] if e else 0)
                        _least(
                            t.value[e, t.at[row] : t.at[row] + cap + 1],
                            t.value[e, t.at[right] : t.at[right] + t.cap[right] + 1],
                            t.value[f, t.at[left] : t.at[left] + t.cap[left] + 1],
                            t.cap[right], t.cap[left], low, keep, gone, total,
                        )  # fmt: skip


@CHAIN.entry
def choose(t: Costs, s: Slots, last: int, e: int, i: int, j: int, m: int) -> Kept:
    """The choice that gave a stretch its cost for m slots."""
    held, freed = 0 if j == last else s.grad[j], s.freed[j] if e else ZERO
    run, total = ZERO, np.float32(0)
    best, best_k, best_f = np.inf, ZERO, ZERO
    for k in range(i + 1, j):
        total += s.cost[k]
        before = s.out[k - 1] if k - 1 > i else 0
        run = max(run, s.out[k] + before + s.need[k])
        left, right = np.int64(t.row[i, k]), np.int64(t.row[k, j])
        if left < 0 or right < 0:
            continue
        for f in range(2):
            keep = s.out[k] + (s.saved[k] if f else 0)
            if m >= max(run + held, keep):
                beside = t.value[e, t.at[right] + min(m - keep, t.cap[right])]
                gone = (keep if f else 0) - freed
                value = total + beside + t.value[f, t.at[left] + min(m - gone, t.cap[left])]
                if value < best:
                    best, best_k, best_f = value, np.int64(k), np.int64(f)
    return Kept(best_k, best_f)


class Table:
    """The dynamic program of stages first + 1 .. last of a chain, in slots of `unit` bytes.

    Args:
      row: of each stretch, from rows_of; None: all are tried.
      frees: the slots of a stage kept whole go to the stages before it; otherwise they stay free,
        which gives searches that start from the schedule more freedom.
    """

    def __init__(
        self,
        chain: Chain,
        first: int,
        last: int,
        unit: float,
        slots: int,
        row: np.ndarray | None = None,
        frees: bool = True,
    ) -> None:
        span = slice(first, last + 1)
        self.chain, self.first, self.unit, self.slots = chain, first, unit, slots
        rounded = [np.rint(x[span] / unit).astype(np.int64) for x in (chain.out, chain.saved)]
        self.out, self.saved = rounded
        self.need = np.rint(chain.run[span] / unit).astype(np.int64)
        self.grad = np.rint(chain.grad[span] / unit).astype(np.int64)
        self.cost = (chain.cost[span] / chain.cost.sum()).astype(np.float32)
        n = last - first
        self.last = n if last == len(chain) else -1
        back = np.rint(chain.back[span] / unit).astype(np.int64)
        if row is None:
            row = rows_of(chain.parts(span), first == 0, self.last == n)
        grads = self.grad + back + np.concatenate([[0], self.grad[:-1]])
        if first == 0 and n:
            grads[1] -= self.grad[0]
        cap = self._caps(row, grads)
        starts = np.cumsum(cap + 1) - (cap + 1)
        value = np.full((2, int((cap + 1).sum())), np.inf, np.float32)
        self.costs = Costs(value, row, starts, cap)
        freed = (self.out + self.saved) * int(frees)
        self.stages = Slots(self.out, self.saved, self.need, self.grad, self.cost, freed)
        for j in range(1, n + 1):
            whole = grads[j] + self.out[j] + self.saved[j]
            self.of(1, row[j - 1, j])[grads[j] :] = 0.0
            self.of(0, row[j - 1, j])[whole:] = self.cost[j]
        self._fill()

    def _caps(self, row: np.ndarray, grads: np.ndarray) -> np.ndarray:
        """Slots with which a row recomputes nothing."""
        kept = np.cumsum(self.out + self.saved)
        beside = 2 * int((grads + self.out + self.need).max(initial=0))
        return np.minimum(self.slots, used(row, kept) + beside)

    def _fill(self) -> None:
        fill(self.costs, self.stages, self.last)

    def of(self, e: int, row: int) -> np.ndarray:
        """Costs of a row, starting at 0 slots."""
        start = self.costs.at[row]
        return self.costs.value[e, start : start + self.costs.cap[row] + 1]

    def whole(self) -> np.ndarray:
        """Costs of all stages for 0 .. `slots` slots."""
        result = self.of(0, self.costs.row[0, -1])
        return np.concatenate([result, np.repeat(result[-1:], self.slots + 1 - len(result))])

    def emit(self, e: int, i: int, j: int, m: int, into: list[tuple[str, int]]) -> None:
        """Append the runs ("F", stage) and ("B", stage) of a state; i and j count from `first`."""
        waiting = [(e, i, j, m)]
        while waiting:
            e, i, j, m = waiting.pop()
            if j == i + 1:
                self.leaf(e, j, m, into)
                continue
            k, f = choose(self.costs, self.stages, self.last, e, i, j, m)
            for stage in range(i + 1, k + 1):
                self.run(stage, into)
            keep = int(self.out[k] + (self.saved[k] if f else 0))
            freed = int(self.stages.freed[j]) if e else 0
            waiting.append((f, i, k, m + freed - (keep if f else 0)))
            waiting.append((e, k, j, m - keep))

    def run(self, stage: int, into: list[tuple[str, int]]) -> None:
        into.append(("F", self.first + stage))

    def leaf(self, e: int, j: int, m: int, into: list[tuple[str, int]]) -> None:
        """Run one stage: its forward unless it was kept whole, then its backward."""
        if not e:
            self.run(j, into)
        into.append(("B", self.first + j))


class Grouped(Table):
    """A long chain as groups of stages; each group has a `Table` of its own."""

    def __init__(
        self, chain: Chain, size: int, unit: float, slots: int, frees: bool = True
    ) -> None:
        n = len(chain)
        self.bounds = _bounds(chain, -(-n // size))
        pairs = list(zip(self.bounds, self.bounds[1:], strict=False))
        # Equal groups have equal tables: residual networks repeat the same few.
        known: dict[bytes, Table] = {}
        self.groups: list[Table] = []
        for a, b in pairs:
            span = slice(a, b + 1)
            parts = (chain.out, chain.saved, chain.cost, chain.run, chain.back)
            key = b"".join(x[span].tobytes() for x in parts) + bytes([a == 0, b == n])
            if key not in known:
                known[key] = Table(chain, a, b, unit, slots, frees=frees)
            self.groups.append(known[key])
        out = chain.out[self.bounds]
        whole = [(chain.out + chain.saved)[a + 1 : b + 1].sum() - chain.out[b] for a, b in pairs]
        cost = [chain.cost[a + 1 : b + 1].sum() for a, b in pairs]
        run = [(chain.run + chain.out)[a + 1 : b + 1].max() - chain.out[b] for a, b in pairs]
        zero = np.zeros(len(out))
        merged = Chain(
            (),
            (),
            out,
            np.array([0, *whole]),
            chain.grad[self.bounds],
            np.array([0, *cost]),
            np.maximum(np.array([0, *run]), 0),
            zero,
        )
        self.spans = pairs
        row = rows_of([np.array([0, *map(id, self.groups)]), *merged.parts()], True, True)
        super().__init__(merged, 0, len(pairs), unit, slots, row, frees)

    def _fill(self) -> None:
        for j, group in enumerate(self.groups, 1):
            row, ones = self.costs.row[j - 1, j], np.diagonal(group.costs.row, 1)
            self.of(0, row)[:] = group.whole()
            need = max(int(np.argmax(np.isfinite(group.of(1, item)))) for item in ones)
            self.of(1, row)[:] = np.inf
            if np.isfinite(group.of(1, ones[0])).any():
                self.of(1, row)[need:] = 0.0
        super()._fill()

    def _caps(self, row: np.ndarray, grads: np.ndarray) -> np.ndarray:
        """All slots: a group may use more than its stages would as one."""
        return np.full(int(row.max()) + 1, self.slots)

    def run(self, stage: int, into: list[tuple[str, int]]) -> None:
        a, b = self.spans[stage - 1]
        into.extend(("F", k) for k in range(a + 1, b + 1))

    def leaf(self, e: int, j: int, m: int, into: list[tuple[str, int]]) -> None:
        a, b = self.spans[j - 1]
        if e:
            into.extend(("B", k) for k in range(b, a, -1))
            return
        group, inside = self.groups[j - 1], []  # type: tuple[Table, list[tuple[str, int]]]
        group.emit(0, 0, b - a, m, inside)
        into.extend((what, k - group.first + a) for what, k in inside)


def _bounds(stages: Chain, parts: int) -> list[int]:
    """Borders of about `parts` groups, smaller ones around large stages: 0, .., len(stages)."""
    weight = (stages.out + stages.saved + stages.back)[1:]
    weight = weight / max(float(weight.mean()), 1e-300) + 1.0
    share = np.cumsum(weight) * parts / weight.sum()
    result = np.searchsorted(share, np.arange(1, parts) - 1e-6) + 1
    return sorted({0, *result.tolist(), len(stages)})
