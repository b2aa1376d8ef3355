"""Float64 as pairs of float32: every operation compared with float64 on this machine."""

import ctypes
import re

import numpy as np
import pytest

from edgetrain.kernels import registry, targets
from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.addresses import addresses
from edgetrain.kernels.cache.load import opened
from edgetrain.kernels.emission.objects import HOST, emit_object
from edgetrain.kernels.emission.pairs import in_pairs
from edgetrain.kernels.emission.rewritten import rewritten

_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
U = 2.0**-24
_COUNT = iter(range(1000))
WIDE = np.random.default_rng(0).standard_normal((200, 2)) * [[1e3, 0.7]]
EXACT = [0.0, -0.0, 1.0, -1.5, 2.0**-126, 2.0**-140, 2.0**120, np.inf, -np.inf, np.nan, 3.0]


def _probe(lines: str, result: str = "double", declared: str = ""):
    """Compile instructions that compute %r from float64 %a and %b; return the function."""
    name = f"et_probe{next(_COUNT)}"
    text = f"""{declared}
define void @{name}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{
  %p = inttoptr i64 %args to ptr
  %q = getelementptr i64, ptr %p, i32 1
  %o = getelementptr i64, ptr %p, i32 2
  %a = load double, ptr %p, align 8
  %b = load double, ptr %q, align 8
{lines}
  store {result} %r, ptr %o, align 8
  ret void
}}
"""
    made = in_pairs(text)
    assert not re.search(r"\bf(add|mul|div|sub|cmp \w+) double", made)
    address = opened([emit_object(made, jit.host(), HOST)], [name])[name]

    def run(a: float, b: float = 0.0) -> float | int:
        words = np.array([a, b, 0], np.float64)
        _ENTRY(address)(0, words.ctypes.data, 0, 1)
        return float(words[2]) if result == "double" else int(words.view(np.int64)[2])

    return run


@pytest.mark.parametrize(
    "name, exact",
    [("fadd", np.add), ("fsub", np.subtract), ("fmul", np.multiply), ("fdiv", np.divide)],
)
def test_an_operation_is_off_by_at_most_what_is_stated(name, exact):
    run = _probe(f"  %r = {name} double %a, %b")
    for a, b in WIDE:
        size = abs(a) + abs(b) if name in ("fadd", "fsub") else abs(exact(a, b))
        read = 2 * U * U * (size if name in ("fadd", "fsub") else 2 * size)
        assert abs(run(a, b) - exact(a, b)) <= 8 * U * U * size + read


def test_a_root_is_off_by_at_most_what_is_stated():
    run = _probe(
        "  %r = call double @llvm.sqrt.f64(double %a)",
        declared="declare double @llvm.sqrt.f64(double)",
    )
    for a in np.abs(WIDE[:, 0]):
        assert abs(run(a) - np.sqrt(a)) <= 10 * U * U * np.sqrt(a)
    assert run(0.0) == 0.0 and run(np.inf) == np.inf and np.isnan(run(-1.0))


@pytest.mark.parametrize("value", EXACT)
def test_what_float32_holds_goes_through_as_it_is(value):
    found = _probe("  %x = fneg double %a\n  %r = fneg double %x")(value)
    np.testing.assert_equal(found, value)
    assert np.signbit(found) == np.signbit(value)


def test_what_is_only_copied_keeps_all_its_bits():
    assert _probe("  %r = load double, ptr %p, align 8")(1 / 3) == 1 / 3
    assert _probe("  %r = fadd double %a, %b")(1 / 3) != 1 / 3


@pytest.mark.parametrize(
    "how, holds",
    [
        ("olt", lambda a, b: a < b), ("ole", lambda a, b: a <= b), ("ogt", lambda a, b: a > b),
        ("oge", lambda a, b: a >= b), ("oeq", lambda a, b: a == b),
        ("une", lambda a, b: a != b), ("one", lambda a, b: a < b or a > b),
        ("ult", lambda a, b: not a >= b), ("ule", lambda a, b: not a > b),
        ("ugt", lambda a, b: not a <= b), ("uge", lambda a, b: not a < b),
        ("ueq", lambda a, b: not (a < b or a > b)), ("uno", lambda a, b: a != a or b != b),
        ("ord", lambda a, b: a == a and b == b),
    ],
)  # fmt: skip
def test_comparisons_are_those_of_float64(how, holds):
    run = _probe(f"  %c = fcmp {how} double %a, %b\n  %r = zext i1 %c to i64", "i64")
    values = [*EXACT, 1 + 2.0**-40, 1 - 2.0**-40]
    found = [(a, b, run(a, b)) for a in values for b in values]
    assert found == [(a, b, int(holds(a, b))) for a in values for b in values]


@pytest.mark.parametrize("value", [0, 1, -1, 65535, -65536, 2**31 - 200, -(2**31), 123456789])
def test_integers_go_through(value):
    run = _probe(
        "  %i = load i32, ptr %p, align 4\n  %x = sitofp i32 %i to double\n"
        "  %n = fptosi double %x to i32\n  %r = sext i32 %n to i64",
        "i64",
    )
    words = np.array([value], np.int64).view(np.float64)
    assert run(words[0]) == value


@pytest.mark.parametrize("value", [2.9, -2.9, 3.0, 2.0**24 + 0.5, -(2.0**24) - 0.5, 1 - 2.0**-40])
def test_numbers_are_cut_towards_zero(value):
    run = _probe("  %n = fptosi double %a to i32\n  %r = sext i32 %n to i64", "i64")
    assert run(value) == int(value)


def test_adding_a_large_constant_makes_numbers_whole():
    run = _probe(
        "  %s = fadd double %a, 0x4338000000000000\n  %r = fsub double %s, 0x4338000000000000"
    )
    assert [run(v) for v in (2.4, 2.6, -2.6, 100.2)] == [2, 3, -3, 100]


def test_sums_that_overflow_are_infinite_or_no_number():
    run = _probe("  %r = fmul double %a, %b")
    assert run(2.0**100, 2.0**100) == np.inf
    assert not np.isfinite(_probe("  %r = fadd double %a, %b")(np.inf, -np.inf))
    assert _probe("  %r = fadd double %a, %b")(np.inf, 1.0) == np.inf
    assert _probe("  %r = fdiv double %a, %b")(1.0, 0.0) == np.inf


def test_what_has_no_rule_is_refused():
    with pytest.raises(ValueError, match="float64 is not supported in"):
        in_pairs("define void @f() {\n  %x = frem double 1.0, 2.0\n}\n")


def test_statistics_of_pairs_are_those_of_float64():
    x = (np.random.default_rng(1).standard_normal((8, 4, 25)) + 100).astype(np.float32)
    eps = int(np.float32(1e-5).view(np.int32))
    out = []
    kernel = next(k for k in registry.variants("bn_stats") if k.variant == "plain")
    for one in (kernel, rewritten(kernel, (targets.PAIRS,))):
        (address,) = addresses([(one, {"S": "f32"})])
        stat = np.zeros(12, np.float32)
        words = np.array([x.ctypes.data, stat.ctypes.data, 8, 4, 25, eps], np.int64)
        _ENTRY(address)(0, words.ctypes.data, 0, 1)
        out.append(stat)
    np.testing.assert_array_max_ulp(*out, maxulp=1)


def test_programs_for_processors_without_float64_are_in_pairs():
    found = {name for name in targets.names() if targets.rewrites({"target": name})}
    assert found == {"cortex-m4", "cortex-m33"}
