"""No helper of a kernel returns a pointer: a pointer to its own buffer would point into a dead
frame. If inlined, it seems to work until something reuses the memory."""

import re

import pytest

from edgetrain.kernels import registry
from edgetrain.kernels.emission import lowering

from .test_operands import KERNELS

RETURNED = re.compile(r"^define [^@]*\bptr\b[^@]*@.*", re.M)
OF = {True: "recurrent", False: "others"}


def _text(kernel: registry.Kernel) -> str:
    storages = dict.fromkeys(kernel.spec.variables, "f32")
    symbol, spec = kernel.symbol(storages), kernel.spec
    return lowering.llvm_text(symbol, kernel.function(storages), spec.kinds, spec.fields)


@pytest.mark.parametrize(
    "recurrent", [True, pytest.param(False, marks=pytest.mark.slow)], ids=OF.get
)
def test_no_helper_returns_a_pointer(recurrent: bool) -> None:
    chosen = [k for k in KERNELS if k.module.startswith("recurrent.") == recurrent]
    wrong = {k.name: found for k in chosen if (found := RETURNED.findall(_text(k)))}
    assert wrong == {} and len(chosen) > 8
