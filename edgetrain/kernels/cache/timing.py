"""Measures how fast a kernel is on this machine, for the planner's cost model."""

import ctypes
import time
from collections.abc import Callable, Mapping

import numpy as np

from .. import registry
from ..declaration.spec import ALIGN
from . import jit
from .load import load

_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


def timed_call(
    name: str, storages: Mapping[str, str], values: Mapping[str, int]
) -> Callable[[], float]:
    """A function that calls a kernel once, on one thread with zeros as operands; returns seconds.

    Args:
      values: integers of the call; 0 for a reference that is present, -1 for an absent one. Float
        operands are 0.
    """
    target = jit.host()
    kernel = registry.choose(name, values, storages, target)
    extents = kernel.spec.extents(values, storages, 1, target.lanes)
    scratch = kernel.spec.scratch_nbytes(values, 1, target.lanes)
    offsets, offset = {}, 0
    for name, nbytes in [*extents.items(), ("", scratch)]:
        offsets[name] = offset
        offset += -(-max(nbytes, 1) // ALIGN) * ALIGN
    memory = np.zeros(offset + ALIGN, np.uint8)
    words: list[int] = []
    for operand in kernel.spec.operands:
        if operand.mode == "t":
            words += [offsets[""], scratch]
        elif operand.is_reference:
            words.append(offsets.get(operand.name, -1))
        else:
            words.append(values.get(operand.name, 0))
    args = np.array(words, np.int64)
    symbol = kernel.symbol(storages)
    run = _ENTRY(load({symbol: lambda: kernel.object(storages, target)})[symbol])

    def seconds() -> float:
        base, words_at = -(-memory.ctypes.data // ALIGN) * ALIGN, args.ctypes.data
        start = time.perf_counter()
        run(base, words_at, 0, 1)
        return time.perf_counter() - start

    return seconds
