"""Separate arithmetic (products rounded before the sum), against numpy and fused kernels."""

import ctypes
import dataclasses

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler import Options, plan_model
from edgetrain.compiler.plan.explain import explain
from edgetrain.errors import UsageError
from edgetrain.kernels import registry, targets
from edgetrain.kernels.cache.addresses import addresses
from edgetrain.kernels.emission.rewritten import rewritten
from edgetrain.kernels.emission.separate import separated
from edgetrain.runtime.samples.check import checked_run
from tests.digits_runs import digits_program
from tests.fuzz import nets

_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
SEPARATE = (targets.SEPARATE,)


@pytest.mark.parametrize(
    "line, wanted",
    [
        (
            "  %x = call float @llvm.fma.f32(float %a, float noundef %b, float 0x3F000000)",
            '  %"x.product" = fmul float %a, %b\n  %x = fadd float %"x.product", 0x3F000000',
        ),
        (
            '  %"a b" = tail call noundef <4 x float> @llvm.fma.v4f32(<4 x float> %a, <4 x float> '
            "splat (float 2.0), <4 x float> <float 1.0, float 2.0, float 3.0, float 4.0>) #1",
            '  %"a b.product" = fmul <4 x float> %a, splat (float 2.0)\n  %"a b" = fadd '
            '<4 x float> %"a b.product", <float 1.0, float 2.0, float 3.0, float 4.0>',
        ),
        (
            "  %.3 = call double @llvm.fma.f64(double %p, double zeroinitializer, double %p)",
            '  %".3.product" = fmul double %p, zeroinitializer\n'
            '  %.3 = fadd double %".3.product", %p',
        ),
    ],
)
def test_a_fused_multiply_add_becomes_two_instructions(line, wanted):
    assert separated(line) == wanted


def test_what_must_be_exact_stays():
    line = "  %x = call arcp double @llvm.fma.f64(double %a, double %b, double %c)"
    assert separated(line) == line


def test_what_has_no_rule_is_refused():
    with pytest.raises(ValueError, match="no rule for"):
        separated("  call <vscale x 4 x float> @llvm.fma.nxv4f32(%a)")


def _in_both(name: str, **given):
    """Return y of a float32 kernel in fused and in separate arithmetic."""
    kernel = next(k for k in registry.variants(name) if k.when is None)
    n, found = max(np.size(value) for value in given.values()), []
    shape, steps = [1] * 5 + [n], [0] * 5 + [1]
    known = {"n": n, "na": n, "nb": n, "d": shape, "sa": steps, "sb": steps}
    known |= {key: value.ctypes.data for key, value in given.items() if np.size(value) > 1}
    known |= {k: int(v.view(np.int32)) for k, v in given.items() if np.size(v) == 1}
    for one in (kernel, rewritten(kernel, SEPARATE)):
        (address,) = addresses([(one, dict.fromkeys(kernel.spec.variables, "f32"))])
        y = np.empty(n, np.float32)
        fields = [known.get(name, y.ctypes.data) for name, _ in kernel.spec.fields]
        words = np.array([w for f in fields for w in (f if isinstance(f, list) else [f])], np.int64)
        _ENTRY(address)(0, words.ctypes.data, 0, 1)
        found.append(y)
    return found


def test_a_separate_sum_is_that_of_rounded_products():
    x = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    a, b = np.float32(0.2), np.float32(0.37)
    fused, separate = _in_both("un_hardsigmoid", x=x, a=a, b=b)
    wanted = np.clip(x * a + b, np.float32(0), np.float32(1))
    np.testing.assert_array_equal(separate, wanted)
    assert (fused != separate).any()


def test_remainders_are_exact_in_either_arithmetic():
    a = np.array([1e9, 16777215.0, -3e7, 5.5, 123456.7], np.float32)
    b = np.array([0.3, 0.0007, 1.1, 2.0, 1e-9], np.float32)
    for found in _in_both("bin_fmod", a=a, b=b):
        np.testing.assert_array_equal(found, np.fmod(a, b))


def test_a_program_says_its_arithmetic(tmp_path):
    fused, separate = digits_program(), digits_program(arithmetic="separate")
    assert "arithmetic" not in fused.recipe and separate.recipe["arithmetic"] == "separate"
    loaded = et.load_program(separate.save(tmp_path / "separate.edge"))
    assert targets.rewrites(loaded.recipe) == SEPARATE and not targets.rewrites(fused.recipe)
    assert Options.of_recipe(loaded.recipe).arithmetic == "separate"
    assert Options.of_recipe(fused.recipe).arithmetic == "fused"


def test_separate_bits_differ_and_depend_on_no_plan():
    kinds = {"threads": 1}, {"threads": 2}, {"threads": 1, "budget": 150_000}
    separate = {checked_run(digits_program(arithmetic="separate", **k), 3).digest for k in kinds}
    assert len(separate) == 1
    assert checked_run(digits_program(), 3).digest not in separate


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, ""),
        ({"target": "wasm32"}, "separate (wasm32 has no fused multiply-add)"),
        ({"arithmetic": "separate"}, "separate (as asked)"),
        ({"target": "wasm32", "arithmetic": "fused"}, "fused, as asked; wasm32 has no such"),
    ],
)
def test_a_plan_explains_its_arithmetic(given, said):
    build, options = nets.NETS["mlp"]
    asked = make_options(**options, minibatch=8, microbatch=8, threads=1, **given)
    plan, front, _ = plan_model(build(), asked)
    lines = explain(front, plan, [8]).splitlines()
    found = [line for line in lines if line.startswith("Arithmetic is ")]
    assert len(found) == bool(said) and all(said in line for line in found)


def test_arithmetic_is_refused_when_unknown():
    with pytest.raises(UsageError, match="arithmetic 'exact': expected one of fused, separate"):
        Options(arithmetic="exact")
    assert dataclasses.replace(Options(), arithmetic="separate").recipe()["arithmetic"]
