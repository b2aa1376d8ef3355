"""Every kernel at LLVM levels 0, 2 and 3 with a poisoned stack gives the bits that Programs get."""

import ctypes

import numpy as np
import pytest

from edgetrain.errors import UsageError
from edgetrain.kernels import registry
from edgetrain.kernels.run import calls
from edgetrain.kernels.run.calls import CHAINED
from tests.fuzz import children

from . import levels

SEEDS = range(6)
# Kernels with buffers on the stack, tested in every run; the others are slow tests.
SOME = ("layer_norm.fast", "adam.plain")


def _callable(kernel: registry.Kernel) -> bool:
    """Whether `calls.made` can build a call from its declaration alone."""
    host = any(o.range is not None and o.range.kind == "host" for o in kernel.spec.operands)
    return not host and kernel.family not in CHAINED and not kernel.module.startswith("tests.")


KERNELS = [k for name in registry.names() for k in registry.variants(name) if _callable(k)]


def _wrong(kernel: registry.Kernel) -> list[str]:
    made, found, wrong = [], {}, []
    for seed in SEEDS:
        try:
            made.append(calls.made(kernel, seed))
        except UsageError:
            continue
    for number, call in enumerate(made):
        symbol = kernel.symbol(call.storages)
        if symbol not in found:
            found[symbol] = levels.addresses(call)
        wrong += levels.differences(call, found[symbol], 1 + number % 3)
    return wrong if made else [f"{kernel.label}: no call was found"]


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(k, id=k.label, marks=[] if k.label in SOME else pytest.mark.slow)
        for k in KERNELS
    ],
)
def test_levels_and_poison_change_no_bit(kernel: registry.Kernel) -> None:
    ran = children.run(lambda: _wrong(kernel), cpu_seconds=300.0)
    assert (ran.how, ran.detail, ran.value) == ("returned", "", [])


_UNWRITTEN = """
define void @et_unwritten(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {
entry:
  %.5 = alloca [4 x float], align 64
  %at = getelementptr float, ptr %.5, i64 %thread
  %number = load float, ptr %at
  %out = inttoptr i64 %args to ptr
  store float %number, ptr %out
  ret void
}
"""


@pytest.mark.parametrize("way", levels.WAYS)
def test_a_number_that_was_never_written_is_not_a_number(way: str) -> None:
    text = levels.poisoned(_UNWRITTEN)
    assert "call void @et_poison(ptr %.5, i64 16)" in text
    address = levels.address_of(text, "et_unwritten", levels.WAYS[way])
    out = np.zeros(1, np.float32)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(address)(0, out.ctypes.data, 3, 4)
    assert np.isnan(out[0])
