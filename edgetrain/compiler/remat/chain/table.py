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

from typing import NamedTuple

import numpy as np

from edgetrain.kernels.loops import Floats32, FloatTable, Ints, Unit

from .stages import Chain

CHAIN = Unit("dynamic program of chains", "edgetrain.compiler.remat.chain", ("table",))


class Kept(NamedTuple):
    """The stage kept next, and whether whole; stage 0 where there is none."""

    stage: int
    whole: int


@CHAIN.entry
def fill(
    table: FloatTable, out: Ints, saved: Ints, need: Ints, cost: Floats32, grad: Ints, last: int
) -> None:
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


@CHAIN.entry
def choose(
    table: FloatTable, out: Ints, saved: Ints, need: Ints, cost: Floats32, grad: Ints, last: int,
    e: int, i: int, j: int, m: int,
) -> Kept:  # fmt: skip
    """What gave `table[e, i, j, m]`."""
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
    return Kept(best_k, best_f)


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


def _bounds(stages: Chain, parts: int) -> list[int]:
    """About `parts` groups, smaller ones where stages are large: 0, .., number of stages."""
    weight = (stages.out + stages.saved + stages.back)[1:]
    weight = weight / max(float(weight.mean()), 1e-300) + 1.0
    share = np.cumsum(weight) * parts / weight.sum()
    found = np.searchsorted(share, np.arange(1, parts) - 1e-6) + 1
    return sorted({0, *found.tolist(), len(stages)})
