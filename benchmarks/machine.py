"""What this machine can do at most: multiply-adds and bytes a second of one thread, measured.

A measurement is the least of many short runs: on a machine that others use too, a run much shorter
than a time slice is now and then undisturbed.
"""

import ctypes
import functools
import linecache
import time
from collections.abc import Callable, Sequence

import numpy as np

from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import load
from edgetrain.kernels.declaration.spec import Spec
from edgetrain.kernels.registry import Kernel

ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
LEAST_ROUNDS = 12
TURNS = 16384  # of the loop of multiply-adds: some ten microseconds
PASSED = 1 << 20  # bytes that small passes are repeated for
CHAINS = {16: 12, 8: 5, 4: 6, 1: 1}  # vectors of 16 whose sums the registers of so many lanes hold
SIZES = tuple(1 << power for power in range(14, 27))  # bytes that bandwidth is measured over


def least(runs: Sequence[Callable[[], object]], rounds: int, seconds: float) -> list[float]:
    """The least seconds of each function; all of them in turn, again and again."""
    found = [float("inf")] * len(runs)
    end = time.perf_counter() + seconds
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        for place, run in enumerate(runs):
            start = time.perf_counter()
            run()
            found[place] = min(found[place], time.perf_counter() - start)
    return found


def _chains(count: int):
    def factory():
        from edgetrain.kernels.language.number import fma
        from edgetrain.kernels.language.prim import FP32
        from edgetrain.kernels.language.vector import loads, stores

        vld, vst = loads(FP32), stores(FP32)
        names = [f"s{i}" for i in range(count)]
        lines = [
            "def run(thread, nthreads, args):",
            "    x, y = vld(args.x, 0), vld(args.x, 16)",
            *(f"    {name} = vld(args.x, {16 * i})" for i, name in enumerate(names)),
            "    for _ in range(args.n):",
            *(f"        {name} = fma({name}, x, y)" for name in names),
            *(f"    s0 = s0 + {name}" for name in names[1:]),
            "    vst(args.y, 0, s0, 16)",
        ]
        scope = {"vld": vld, "vst": vst, "fma": fma}
        text = "\n".join(lines)  # a kernel is compiled from its source, so that must be found
        file = f"<chains {count}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        exec(compile(text, file, "exec"), scope)
        return scope["run"]

    return factory


@functools.cache
def multiply_adds(target: jit.Target) -> float:
    """Multiply-adds of float32 a second, vectors of a target in registers; one thread."""
    count = CHAINS[target.lanes]
    spec = Spec.parse("x:r:f32[256] y:w:f32[16] n")
    kernel = Kernel(f"peak{target.lanes}", "plain", spec, _chains(count), None)
    symbol = kernel.symbol({})
    run = ENTRY(load({symbol: lambda: kernel.object({}, target)})[symbol])
    memory = np.zeros(512, np.float32)
    words = np.array([memory.ctypes.data, memory.ctypes.data + 1024, TURNS], np.int64)
    seconds = least([lambda: run(0, words.ctypes.data, 0, 1)], 20_000, 2.0)[0]
    return 16 * count * TURNS / seconds


def _pass_factory():
    from edgetrain.kernels.language.prim import FP32
    from edgetrain.kernels.language.vector import loads, stores

    vld, vst = loads(FP32), stores(FP32)

    def run(thread, nthreads, args):
        for _ in range(args.times):
            for j in range(0, args.n, 64):
                vst(args.y, j, vld(args.x, j) + vld(args.y, j), 16)
                vst(args.y, j + 16, vld(args.x, j + 16) + vld(args.y, j + 16), 16)
                vst(args.y, j + 32, vld(args.x, j + 32) + vld(args.y, j + 32), 16)
                vst(args.y, j + 48, vld(args.x, j + 48) + vld(args.y, j + 48), 16)

    return run


@functools.cache
def _pass():
    spec = Spec.parse("x:r:f32[n] y:m:f32[n] n times=size")
    kernel = Kernel("passes", "plain", spec, _pass_factory, None)
    symbol = kernel.symbol({})
    return ENTRY(load({symbol: lambda: kernel.object({}, jit.host())})[symbol])


@functools.cache
def _bandwidth(size: int) -> float:
    floats = size // 8
    memory = np.zeros(2 * floats + 32, np.float32)
    at = -(-memory.ctypes.data // 64) * 64
    times = max(1, PASSED // size)
    words = np.array([at, at + 4 * floats, floats, times], np.int64)
    run, where = _pass(), words.ctypes.data
    seconds = least([lambda: run(0, where, 0, 1)], 20_000, 0.4)[0]
    return 1.5 * size * times / seconds


def bandwidth(nbytes: int) -> float:
    """Bytes a second, read and written, of y += x over so many bytes of both; one thread.

    The best of the size next to it and the one after.
    """
    larger = [size for size in SIZES if size >= nbytes] or [SIZES[-1]]
    return max(_bandwidth(size) for size in larger[:2])
