"""The tape interpreter: instructions in order, threads in step, also on a single core."""

import ctypes
import os
import threading

import numpy as np
import pytest

from edgetrain.kernels import registry
from edgetrain.kernels.tapes import tape

from .harness import ENTRY, declared, entry

N = 1000


def _reverses():
    from edgetrain.kernels.language.prim import div, ld_i64, st_i64

    def run(thread, nthreads, args):
        for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
            st_i64(args.y, i, 3 * ld_i64(args.x, args.n - 1 - i) + i + args.add)

    return run


# Each thread reads what another wrote, so a leaky barrier changes the result.
REVERSES = declared("reverses", "x:r:i64[n] y:w:i64[n] n add=compared", _reverses)


def expected(x, instructions):
    for add in range(instructions):
        x = 3 * x[::-1] + np.arange(N) + add
    return x


class Run:
    """A tape of `instructions`, each reversing one half of the arena into the other."""

    def __init__(self, instructions: int) -> None:
        self.arena = np.zeros(2 * N, np.int64)
        self.arena[:N] = np.arange(N) * 7
        halves = [0, 8 * N]
        rows = [[0, 4, halves[i % 2], halves[1 - i % 2], N, i] for i in range(instructions)]
        self.code = np.array(rows, np.int64).reshape(-1)
        self.kernel = entry(REVERSES, ())
        address = ctypes.cast(self.kernel, ctypes.c_void_p).value
        self.table = np.array([address], np.int64)
        raw = np.zeros(tape.BARRIER_WORDS + 8, np.int64)
        self.barrier = raw[-raw.ctypes.data % 64 // 8 :]
        system = ctypes.CDLL(None).sched_yield
        self.barrier[tape.WAIT] = ctypes.cast(system, ctypes.c_void_p).value
        start = self.code.ctypes.data
        block = [self.arena.ctypes.data, start, start + self.code.nbytes]
        self.args = np.array([*block, self.table.ctypes.data, self.barrier.ctypes.data], np.int64)

    def __call__(self, nthreads: int) -> np.ndarray:
        function = entry(registry.variants("run_tape")[0], ())
        assert isinstance(function, ENTRY)
        base, args = self.arena.ctypes.data, self.args.ctypes.data
        workers = [
            threading.Thread(target=function, args=(base, args, t, nthreads))
            for t in range(nthreads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive(), "a thread waits for ever"
        return self.arena


@pytest.mark.parametrize("nthreads", [1, 2, 3, 7])
def test_run_tape_keeps_threads_in_step(nthreads):
    run = Run(401)
    np.testing.assert_array_equal(run(nthreads)[N:], expected(np.arange(N) * 7, 401))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
@pytest.mark.parametrize("nthreads", [2, 3, 7])
def test_run_tape_ends_when_all_threads_share_one_core(nthreads):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        run = Run(101)
        np.testing.assert_array_equal(run(nthreads)[N:], expected(np.arange(N) * 7, 101))
    finally:
        os.sched_setaffinity(0, before)


def test_run_tape_can_run_again_on_the_same_barrier():
    run = Run(11)
    for _ in range(3):
        first = run.arena[:N].copy()
        np.testing.assert_array_equal(run(3)[N:], expected(first, 11))
        run.arena[:N] = run.arena[N:]


def test_run_tape_does_nothing_when_empty():
    run = Run(0)
    before = run.arena.copy()
    np.testing.assert_array_equal(run(2), before)
