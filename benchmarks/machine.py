"""Measured limits of this machine: multiply-adds and bytes per second of one thread.

A measurement is the minimum of many short runs: even on a busy machine, a run much shorter than a
time slice is undisturbed now and then.
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
TURNS = 16384  # iterations of the multiply-add loop: about ten microseconds
PASSED = 1 << 20  # bytes for which small passes are repeated
CHAINS = {16: 12, 8: 5, 4: 6, 1: 1}  # lanes -> vectors of 16 whose sums fit in registers
SIZES = tuple(1 << power for power in range(14, 27))  # bytes over which bandwidth is measured


def least(runs: Sequence[Callable[[], object]], rounds: int, seconds: float) -> list[float]:
    """Return the minimum time of each function in seconds; the functions run alternately."""
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
        text = "\n".join(lines)  # a kernel is compiled from its source, so linecache must have it
        file = f"<chains {count}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        exec(compile(text, file, "exec"), scope)
        return scope["run"]

    return factory


@functools.cache
def multiply_adds(target: jit.Target) -> float:
    """Float32 multiply-adds per second on one thread, with the target's vectors in registers."""
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
    """Bytes per second, read and written, of y += x on one thread; `nbytes` counts both arrays.

    The better of the nearest size and the one after.
    """
    larger = [size for size in SIZES if size >= nbytes] or [SIZES[-1]]
    return max(_bandwidth(size) for size in larger[:2])
