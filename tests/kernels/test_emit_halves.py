"""Half conversions in integer arithmetic: every half and all kinds of float32, against numpy."""

import ctypes

import numpy as np
import pytest

from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import opened
from edgetrain.kernels.emission.halves import in_integers
from edgetrain.kernels.emission.objects import HOST, emit_object

_TYPES = {"half": np.float16, "float": np.float32, "double": np.float64}
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


def _converted(source: str, target: str, count: int):
    """Return a function that converts an array of `source` to `target`, `count` at a time."""
    kinds = [f"<{count} x {kind}>" if count > 1 else kind for kind in (source, target)]
    op, name = "fpext" if source == "half" else "fptrunc", f"et_{source}_{target}_{count}"
    text = f"""
define void @{name}(i64 %out, i64 %in, i64 %thread, i64 %nthreads) {{
  %p = inttoptr i64 %in to ptr
  %q = inttoptr i64 %out to ptr
  %x = load {kinds[0]}, ptr %p, align 2
  %"a y" = {op} {kinds[0]} %x to {kinds[1]}
  store {kinds[1]} %"a y", ptr %q, align 2
  ret void
}}
"""
    made = in_integers(text)
    assert f"{op} {kinds[0]}" not in made
    run = _ENTRY(opened([emit_object(made, jit.host(), HOST)], [name])[name])

    def all_of(given: np.ndarray) -> np.ndarray:
        out = np.zeros(len(given), _TYPES[target])
        for k in range(0, len(given), count):
            run(out[k:].ctypes.data, given[k:].ctypes.data, 0, 1)
        return out

    return all_of


@pytest.mark.parametrize("target", ["float", "double"])
@pytest.mark.parametrize("count", [1, 16])
def test_every_half_becomes_numpys_number(count, target):
    given = np.arange(2**16, dtype=np.uint16).view(np.float16)
    found = _converted("half", target, count)(given)
    np.testing.assert_array_equal(found, given.astype(_TYPES[target]))


def test_halves_are_widened_in_place_in_innermost_loops_of_outlined_functions():
    def function(name: str) -> str:
        return f"""
define void @{name}(half %a, i1 %more) {{
entry:
  %before = fpext half %a to float
  br label %outer
outer:
  %between = fpext half %a to float
  br label %inner
inner:
  %within = fpext half %a to float
  br i1 %more, label %inner, label %next
next:
  br i1 %more, label %outer, label %exit
exit:
  ret void
}}
"""

    calls = [line.split() for line in in_integers(function("apart.f") + function("g")).splitlines()]
    in_place = [
        line[0] for line in calls if "call" in line and "@half.widened.loop" in " ".join(line)
    ]
    assert sum("call" in line for line in calls) == 6
    assert len(in_place) == 1 and "within" in in_place[0]


@pytest.mark.parametrize("count", [1, 4])
def test_numbers_become_numpys_halves(count):
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2**32, 20_000, np.uint32)
    near = np.arange(31744, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = np.nextafter(near, np.float32(np.inf)), near * np.float32(1.00048828125)
    given = np.concatenate([bits.view(np.float32), near, *between])
    given = given[: len(given) // 4 * 4]
    with np.errstate(all="ignore"):
        wanted = given.astype(np.float16)
        np.testing.assert_array_equal(_converted("float", "half", count)(given), wanted)


def test_other_lines_stay():
    line = "  %x = fpext float %a to double"
    assert in_integers(line) == line
