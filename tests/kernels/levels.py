"""Runs one kernel at several LLVM optimization levels, with stack buffers initialised to NaN.

If code reads memory it never wrote, returns a pointer into a dead frame, or has two live buffers
merged into one by an optimization level, the bits differ at some level.
"""

import re

from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import opened
from edgetrain.kernels.emission.lowering import llvm_text
from edgetrain.kernels.emission.objects import Recipe, emit_object
from edgetrain.kernels.run.calls import Call
from edgetrain.kernels.run.execution import difference, run_compiled

# Level 0 keeps helper calls, so each helper has its own frame; other levels inline them.
WAYS = {
    "level 0": Recipe(level=0, builtins=True, whole=False),
    "level 2": Recipe(level=2, builtins=True),
    "level 3": Recipe(level=3, builtins=True),
}
_NBYTES = {"float": 4, "double": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "half": 2}
_KIND = "|".join(_NBYTES)
_BUFFER = re.compile(
    rf"^ +(?P<at>%\S+) = alloca (?:\[(?P<n>\d+) x )?(?:<(?P<lanes>\d+) x )?(?P<kind>{_KIND})\b.*$",
    re.M,
)
_POISON = """
define internal void @et_poison(ptr %at, i64 %count) noinline {
  br label %loop
loop:
  %k = phi i64 [ 0, %0 ], [ %next, %loop ]
  %place = getelementptr i8, ptr %at, i64 %k
  store i8 -1, ptr %place
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def poisoned(text: str) -> str:
    """Return the text with every numeric stack buffer filled with NaN when it is allocated."""

    def filled(match: re.Match) -> str:
        nbytes = int(match["n"] or 1) * int(match["lanes"] or 1) * _NBYTES[match["kind"]]
        return f"{match[0]}\n  call void @et_poison(ptr {match['at']}, i64 {nbytes})"

    return _BUFFER.sub(filled, text) + _POISON


def address_of(text: str, symbol: str, recipe: Recipe) -> int:
    """Compile the text and return the address of its function in this process."""
    return opened([emit_object(text, jit.host(), recipe)], [symbol])[symbol]


def addresses(call: Call) -> dict[str, int]:
    """Compile the call's kernel with poisoned buffers; return its address for each of WAYS."""
    kernel, spec = call.kernel, call.kernel.spec
    symbol = kernel.symbol(call.storages)
    text = poisoned(llvm_text(symbol, kernel.function(call.storages), spec.kinds, spec.fields))
    return {way: address_of(text, symbol, recipe) for way, recipe in WAYS.items()}


def differences(call: Call, found: dict[str, int], nthreads: int) -> list[str]:
    """Describe each level whose outputs differ from those of the code that Programs call."""
    expected, wrong = call.copied(), []
    given = call.storages, call.values, nthreads, call.lanes
    run_compiled(call.kernel, given[0], expected, *given[1:])
    for way, address in found.items():
        places = call.copied()
        run_compiled(call.kernel, given[0], places, *given[1:], address)
        told = difference(call.kernel, call.storages, places, expected)
        wrong += [f"{call.kernel.label} at {way}: {told}"] if told else []
    return wrong
