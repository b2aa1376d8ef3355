"""Broadcasting binary kernels and their gradients, compared with numpy in float64."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import ProgramError
from edgetrain.kernels.elementwise.binary import BINARY, GRADIENTS

from . import geometry, naive_binary
from .harness import DTYPES, call, control, same_for_threads

RTOL = {"f32": 2e-6, "f16": 1e-3}


def _masked(shape, mask):
    return tuple(d if keep else 1 for d, keep in zip(shape, mask, strict=True))


def _array(rng, shape, dtype, name=""):
    x = rng.normal(size=shape)
    x = np.round(x * 2) / 2 if name[:3] in ("min", "max") else x
    return (np.abs(x) + 0.5 if name[:3] in ("pow", "div") else x).astype(dtype)


# Every function with one set of storages and one function with all sets: each is compiled.
STORED = [(name, ("f16", "f32", "f32")) for name in BINARY]
STORED += [("mul", ("f32", "f32", "f32")), ("mul", ("f16", "f16", "f16"))]


@pytest.mark.parametrize("name, kinds", STORED)
@settings(max_examples=10)
@given(case=geometry.masked_shapes(2))
def test_binary_equals_naive_for_any_broadcast(name, kinds, case):
    shape, of_a, of_b = case
    rng = np.random.default_rng(len(shape))
    a = _array(rng, _masked(shape, of_a), DTYPES[kinds[0]], name)
    b = _array(rng, _masked(shape, of_b), DTYPES[kinds[1]], name)
    steps = [geometry.broadcast(v.shape, shape) for v in (a, b)]
    integers = geometry.integers(("d", "sa", "sb"), shape, *steps)
    found = same_for_threads(
        f"bin_{name}", dict(zip("ABS", kinds, strict=True)),
        a=a, b=b, y=shape, na=a.size, nb=b.size, **integers,
    )["y"]  # fmt: skip
    expected = naive_binary.VALUE[name](a.astype(np.float64), b.astype(np.float64))
    rtol = RTOL[kinds[2]]
    expected = np.broadcast_to(expected, shape)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=rtol, atol=rtol)


def _gradient_operands(shape, a, b, kept):
    """Return bgrad's operands except arrays; dims of `shape` are split into kept and reduced."""
    steps = [
        geometry.dense(shape),
        *(geometry.broadcast(v.shape, shape) for v in (a, b)),
    ]
    out = {}
    for kind, keep in (("k", True), ("r", False)):
        axes = [axis for axis, k in enumerate(kept) if k == keep]
        part = [[s[axis] for axis in axes] for s in steps]
        names = (kind, f"{kind}y", f"{kind}a", f"{kind}b")
        out |= geometry.integers(names, [shape[axis] for axis in axes], *part)
    return out


@pytest.mark.parametrize(
    "name, storages", [("id", "f16"), ("div_a", "f16"), *((name, "f32") for name in GRADIENTS)]
)
@settings(max_examples=12)
@given(case=geometry.masked_shapes(3), acc=st.integers(0, 1))
def test_gradient_equals_naive_for_any_broadcast(name, storages, case, acc):
    shape, of_a, of_b, kept = case
    rng = np.random.default_rng(sum(shape))
    dtype = DTYPES[storages]
    a, b = (_array(rng, _masked(shape, mask), dtype, name) for mask in (of_a, of_b))
    dy = rng.normal(size=shape).astype(dtype)
    out = rng.normal(size=_masked(shape, kept)).astype(np.float32)
    reads = GRADIENTS[name]
    found = same_for_threads(
        f"bgrad_{name}", {"A": storages, "B": storages, "S": storages, "G": "f32"},
        a=a if "a" in reads else None, b=b if "b" in reads else None, dy=dy, out=out,
        key=0, acc=acc, sr=0, na=a.size, nb=b.size, ndy=dy.size, nout=out.size,
        **_gradient_operands(shape, a, b, kept),
    )["out"]  # fmt: skip
    terms, sizes = naive_binary.gradient(name, *(v.astype(np.float64) for v in (a, b, dy)), kept)
    error = np.abs(found.astype(np.float64).ravel() - (terms.ravel() + acc * out.ravel()))
    # Each term has a few float32 rounding errors; the error of their sum is negligible.
    assert (error <= 1e-6 * (sizes.ravel() + np.abs(out.ravel()) + 1)).all()


def _column_sum(rng, dtype, sr, out):
    dy = rng.normal(size=(40, 33)).astype(dtype)
    kept = geometry.integers(("k", "ky", "ka", "kb"), (33,), (1,), (0,), (0,))
    reduced = geometry.integers(("r", "ry", "ra", "rb"), (40,), (33,), (0,), (0,))
    storages = {"A": "f16", "B": "f16", "S": "f16", "G": "f16"}
    found = same_for_threads(
        "bgrad_id", storages, dy=dy, out=out, ctl=control(SEED=3), key=5, acc=1, sr=sr,
        na=0, nb=0, ndy=dy.size, nout=33, **kept, **reduced,
    )["out"]  # fmt: skip
    return dy.astype(np.float64).sum(axis=0) + out, found.astype(np.float64)


def test_gradient_rounds_stochastically_to_a_neighbour_where_asked(rng):
    out = rng.normal(size=33).astype(np.float16)
    exact, nearest = _column_sum(np.random.default_rng(1), np.float16, 0, out)
    _, random = _column_sum(np.random.default_rng(1), np.float16, 1, out)
    ulp = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    assert (np.abs(nearest - exact) <= 0.5001 * ulp).all()
    assert (np.abs(random - exact) <= 1.0001 * ulp).all()
    assert (random != nearest).any()


# PRelu does not read the slope for positive inputs.
@pytest.mark.parametrize("name", [name for name in BINARY if name != "prelu"])
def test_binary_lets_nan_through(name):
    a = np.array([np.nan, 2, np.nan, 2], np.float32)
    b = np.array([2, np.nan, np.nan, 2], np.float32)
    integers = geometry.integers(("d", "sa", "sb"), (4,), (1,), (1,))
    storages = dict.fromkeys("ABS", "f32")
    for left, right in (("a", a), ("b", b)):
        found = call(
            f"bin_{name}", storages, a=a, b=b, y="a" if left == "a" else "b", na=4, nb=4, **integers
        )
        assert np.isnan(found["y"]).tolist() == [True, True, True, False], right


def test_binary_refuses_strides_that_leave_an_operand():
    a = np.zeros(8, np.float32)
    integers = geometry.integers(("d", "sa", "sb"), (4,), (1,), (3,))
    with pytest.raises(ProgramError):
        call(
            "bin_add", dict.fromkeys("ABS", "f32"), a=a, b=a, y=(4,), na=8, nb=8,
            **(integers | {"sb0": -1, "d0": 2}),
        )  # fmt: skip


def test_a_function_gives_its_kernels_their_revision(tmp_path):
    """In a process and a cache of its own: kernels are registered once, and declarations kept."""
    code = """
from dataclasses import replace
from edgetrain.kernels.elementwise.pair_formulas import PAIRS
PAIRS["prelu"] = replace(PAIRS["prelu"], revision=3)
from edgetrain.kernels import registry
names = "bin_prelu", "bgrad_prelu_a", "bgrad_prelu_b", "bin_add", "bgrad_mul_a"
print([kernel.revision for name in names for kernel in registry.variants(name)])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"EDGETRAIN_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.strip() == "[3, 3, 3, 1, 1]"
