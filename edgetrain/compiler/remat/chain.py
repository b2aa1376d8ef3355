"""Chains: dynamic programming over which stages to keep, for every number of bytes at once.

State (e, i, j, m): the output of stage i is in memory and m slots beside it; the backwards of
stages j .. i + 1 are to be run; e tells whether stage j was kept whole by whoever ran it. One
either keeps stage k for later (its output, or all that its backward needs) or nothing; stages
kept whole are not run again, so that a segment's last stage is recomputed by nobody.

Sources: Beaumont et al. 2019 (heterogeneous chains, persistent schedules); the whole-kept last
stage is ours. Long chains are cut into groups: exact inside a group, and group borders are the
only places where longer segments may begin. Known limit: sizes are rounded to slots; what a
schedule really needs is measured afterwards.
"""

import numpy as np

from edgetrain.kernels.jit import hot

from .problem import Problem, Schedule
from .stages import Chain, chain_of
from .store_all import store_all


@hot
def fill(table, out, saved, need, cost, grad, last):
    """Fill `table[e, i, j, m]` for all i + 1 < j; the entries with j == i + 1 are given.

    Args:
      table: float32 (2, n + 1, n + 1, slots + 1), infinity where nothing is known.
      out, saved, need, grad: slots of each stage's output, whole stage beside it, run, gradient.
      cost: of each stage's forward.  last: stage whose gradient appears only with its backward.
    """
    n, slots = out.size - 1, table.shape[3] - 1
    for d in range(2, n + 1):
        for i in range(n - d + 1):
            j = i + d
            held = 0 if j == last else grad[j]
            run, total = np.int64(0), np.float32(0)
            for k in range(i + 1, j):
                total += cost[k]
                before = out[k - 1] if k - 1 > i else 0
                run = max(run, out[k] + before + need[k])
                for f in range(2):
                    keep = out[k] + (saved[k] if f else 0)
                    low = max(run + held, keep)
                    gone = keep if f else 0
                    if low > slots:
                        continue
                    left = table[f, i, k, low - gone : slots + 1 - gone]
                    for e in range(2):
                        right = table[e, k, j, low - keep : slots + 1 - keep]
                        here = table[e, i, j, low:]
                        for m in range(here.size):
                            value = total + right[m] + left[m]
                            here[m] = value if value < here[m] else here[m]


@hot
def choose(table, out, saved, need, cost, grad, last, e, i, j, m):
    """The (k, f) that gave `table[e, i, j, m]`; (0, 0) where there is none."""
    held = 0 if j == last else grad[j]
    run, total = np.int64(0), np.float32(0)
    best, best_k, best_f = np.inf, 0, 0
    for k in range(i + 1, j):
        total += cost[k]
        before = out[k - 1] if k - 1 > i else 0
        run = max(run, out[k] + before + need[k])
        for f in range(2):
            keep = out[k] + (saved[k] if f else 0)
            if m >= max(run + held, keep):
                gone = keep if f else 0
                value = total + table[e, k, j, m - keep] + table[f, i, k, m - gone]
                if value < best:
                    best, best_k, best_f = value, k, f
    return best_k, best_f


class Table:
    """The dynamic program of stages first + 1 .. last of a chain, in slots of `unit` bytes."""

    def __init__(self, chain: Chain, first: int, last: int, unit: float, slots: int) -> None:
        span = slice(first, last + 1)
        self.chain, self.first, self.slots = chain, first, slots
        rounded = [np.rint(x[span] / unit).astype(np.int64) for x in (chain.out, chain.saved)]
        self.out, self.saved = rounded
        self.need = np.rint(chain.run[span] / unit).astype(np.int64)
        self.grad = np.rint(chain.grad[span] / unit).astype(np.int64)
        self.cost = (chain.cost[span] / chain.cost.sum()).astype(np.float32)
        n = last - first
        self.last = n if last == len(chain) else -1
        self.table = np.full((2, n + 1, n + 1, slots + 1), np.inf, np.float32)
        back = np.rint(chain.back[span] / unit).astype(np.int64)
        for j in range(1, n + 1):
            grads = self.grad[j] + back[j] + (self.grad[j - 1] if first + j > 1 else 0)
            whole = grads + self.out[j] + self.saved[j]
            self.table[1, j - 1, j, min(grads, slots + 1) :] = 0.0
            self.table[0, j - 1, j, min(whole, slots + 1) :] = self.cost[j]
        self._fill()

    def _fill(self) -> None:
        args = (self.out, self.saved, self.need, self.cost, self.grad, self.last)
        fill(self.table, *args)

    def emit(self, e: int, i: int, j: int, m: int, into: list[tuple[str, int]]) -> None:
        """Append the runs ("F", stage) and ("B", stage) of a state; i and j count from `first`."""
        if j == i + 1:
            self.leaf(e, j, m, into)
            return
        args = (self.out, self.saved, self.need, self.cost, self.grad, self.last)
        k, f = choose(self.table, *args, e, i, j, m)
        for stage in range(i + 1, k + 1):
            self.run(stage, into)
        keep = int(self.out[k] + (self.saved[k] if f else 0))
        self.emit(e, k, j, m - keep, into)
        self.emit(f, i, k, m - (keep if f else 0), into)

    def run(self, stage: int, into: list[tuple[str, int]]) -> None:
        into.append(("F", self.first + stage))

    def leaf(self, e: int, j: int, m: int, into: list[tuple[str, int]]) -> None:
        """One stage: forward unless it was kept whole, then backward."""
        if not e:
            self.run(j, into)
        into.append(("B", self.first + j))


class Grouped(Table):
    """A long chain as groups of stages; what happens inside a group is a `Table` of its own."""

    def __init__(self, chain: Chain, size: int, unit: float, slots: int) -> None:
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
                known[key] = Table(chain, a, b, unit, slots)
            self.groups.append(known[key])
        out = chain.out[self.bounds]
        whole = [(chain.out + chain.saved)[a + 1 : b + 1].sum() - chain.out[b] for a, b in pairs]
        cost = [chain.cost[a + 1 : b + 1].sum() for a, b in pairs]
        run = [(chain.run + chain.out)[a + 1 : b + 1].max() - chain.out[b] for a, b in pairs]
        zero = np.zeros(len(out))
        merged = Chain(
            (), (), out, np.array([0, *whole]), chain.grad[self.bounds], np.array([0, *cost]),
            np.maximum(np.array([0, *run]), 0), zero,
        )  # fmt: skip
        self.spans = pairs
        super().__init__(merged, 0, len(pairs), unit, slots)

    def _fill(self) -> None:
        for j, group in enumerate(self.groups, 1):
            n = group.table.shape[1] - 1
            self.table[0, j - 1, j] = group.table[0, 0, n]
            need = max(
                int(np.argmax(np.isfinite(group.table[1, k - 1, k]))) for k in range(1, n + 1)
            )
            self.table[1, j - 1, j] = np.inf
            if np.isfinite(group.table[1, 0, 1]).any():
                self.table[1, j - 1, j, need:] = 0.0
        super()._fill()

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


def chain(problem: Problem, effort: int = 0) -> list[Schedule]:
    """Schedules for a ladder of bytes; none where the problem is no chain of stages.

    `effort` changes nothing: the ladder is fixed.
    """
    stages = chain_of(problem)
    return [] if stages is None else [*store_all(problem), *Ladder(problem, stages).some(48)]


class Ladder:
    """Tables for halving numbers of bytes: finer slots where there are fewer bytes.

    Points above `limit` bytes, by a table's count, are left out; the rest is the same.
    """

    def __init__(self, problem: Problem, stages: Chain, limit: float = np.inf) -> None:
        self.problem, self.stages, self.limit = problem, stages, limit
        n = len(stages)
        needs = stages.back + stages.grad + stages.run
        most = float((stages.out + stages.saved)[1:].sum() + 2 * needs.max())
        exact = _divisor(stages)
        self.points: list[tuple[float, float, int, Table]] = []
        # (bytes of the whole table, slots, groups): work grows with slots * groups^3.
        slots = 256 if n > 128 else min(4096, max(512, 600_000_000 // n**3))
        plans = [(most * 0.5**rung, slots, 128) for rung in range(6)]
        fine = [(most * 0.5**rung, 40, 260) for rung in (4, 6)]
        if most / exact <= max(slots, 1024):
            plans = [(most + exact, int(most / exact) + 1, 128)]
            fine = [(exact * 40, 40, 260), (exact * 12, 12, 500)]
        if n > 128:
            plans += fine
        for nbytes, slots, groups in plans:
            # Four times the bytes of a finer table leave nothing for it to win.
            if limit < np.inf and 4 * nbytes < limit:
                continue
            unit = nbytes / slots
            self._read(unit, int(min(slots, self.limit // unit + 1)), -(-n // groups))
        self.points.sort(key=lambda point: (point[1], point[0]))

    def _read(self, unit: float, slots: int, size: int) -> None:
        """Note (bytes, cost) wherever one more slot makes the whole chain cheaper."""
        n = len(self.stages)
        whole = size == 1
        table = (
            Table(self.stages, 0, n, unit, slots)
            if whole
            else Grouped(self.stages, size, unit, slots)
        )
        costs = table.table[0, 0, table.table.shape[1] - 1]
        least = np.inf
        for m in range(slots + 1):
            if costs[m] < least * (1 - 1e-6):
                least = float(costs[m])
                self.points.append((m * unit, least, m, table))

    def emit(self, k: int) -> Schedule:
        """The schedule of one point."""
        _, _, m, table = self.points[k]
        runs: list[tuple[str, int]] = []
        table.emit(0, 0, table.table.shape[1] - 1, m, runs)
        return expand(self.problem, self.stages, runs)

    def some(self, most: int) -> list[Schedule]:
        """At most about `most` schedules, spread over the points."""
        count = len(self.points)
        chosen = sorted({round(k) for k in np.linspace(0, count - 1, min(most, count))})
        return [self.emit(k) for k in chosen]


def _bounds(stages: Chain, parts: int) -> list[int]:
    """About `parts` groups, smaller ones where stages are large: 0, .., number of stages."""
    weight = (stages.out + stages.saved + stages.back)[1:]
    weight = weight / max(float(weight.mean()), 1e-300) + 1.0
    share = np.cumsum(weight) * parts / weight.sum()
    found = np.searchsorted(share, np.arange(1, parts) - 1e-6) + 1
    return sorted({0, *found.tolist(), len(stages)})


def _divisor(stages: Chain) -> float:
    """The largest number of bytes that all sizes of a chain are multiples of."""
    sizes = np.concatenate([stages.out, stages.saved, stages.grad, stages.run, stages.back])
    return float(max(1, np.gcd.reduce(sizes.astype(np.int64))))


def expand(problem: Problem, stages: Chain, runs: list[tuple[str, int]]) -> Schedule:
    """Steps of the runs of stages; steps outside the chain go where they were."""
    total = len(problem.steps)
    chained = {s for part in (stages.forward, stages.backward) for row in part for s in row}
    seen = [s in chained for s in range(total)]
    schedule: list[int] = []
    once: set[int] = set()
    outside = [s for s in range(total) if not seen[s]]
    at = 0
    for what, k in runs:
        for s in stages.forward[k] if what == "F" else stages.backward[k]:
            # Side effects of the forward follow the first run of what stands before them.
            if s not in once:
                while at < len(outside) and outside[at] < s:
                    schedule.append(outside[at])
                    at += 1
            once.add(s)
            schedule.append(s)
    return (*schedule, *outside[at:])
