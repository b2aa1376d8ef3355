"""Frozen weights in groups: codec, products, rows and whole weights, against naive twins."""

import numpy as np
import pytest

from edgetrain.formats import FORMATS, GROUPED
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit

from . import naive_gemm, naive_groups
from .harness import call, same_for_threads
from .test_gemm import A_AXES, B_AXES, operands

BITS = {"g8": 8, "g4": 4}
HOST_VARIANT = f"tiles{jit.host().lanes}"
VARIANTS = [k.variant for k in registry.variants("gemm_g4")]
# (z1, z2, m, n, k2, k): rows that start inside a group; group, block and tile edges.
SHAPES = (
    (1, 1, 5, 7, 1, 9),
    (1, 1, 20, 33, 1, 64),
    (1, 1, 130, 70, 1, 200),
    (1, 1, 1, 90, 1, 577),
    (2, 1, 33, 65, 3, 97),
    (1, 1, 200, 1, 1, 130),
)
ORDERS = (B_AXES, ("bz1", "bz2", "bk2", "bk", "bn"), ("bn", "bk", "bz1", "bz2", "bk2"))


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("size", [1, 63, 64, 65, 700])
def test_codec_is_the_naive_twin(rng, name, size):
    values = rng.standard_normal(size).astype(np.float32) * 10.0 ** rng.integers(-5, 3, size)
    values = values.astype(np.float32)
    stored = FORMATS[name].encode(values)
    assert stored.tobytes() == naive_groups.grouped(values, BITS[name]).tobytes()
    np.testing.assert_array_equal(
        FORMATS[name].decode(stored), naive_groups.numbers(stored, BITS[name])
    )


@pytest.mark.parametrize("name", GROUPED)
def test_codec_keeps_what_is_not_finite_visible(name):
    values = np.ones(130, np.float32)
    values[70] = np.nan
    decoded = FORMATS[name].decode(FORMATS[name].encode(values))
    assert np.isfinite(decoded[:64]).all() and not np.isfinite(decoded[64:128]).any()


def _groups(rng, name, v):
    """Return the call with b stored in groups, and with the numbers they decode to."""
    stored = FORMATS[name].encode(rng.standard_normal(v["nb"]).astype(np.float32))
    numbers = FORMATS[name].decode(stored)[: v["nb"]]
    return v | {"b": stored}, v | {"b": np.ascontiguousarray(numbers)}


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ORDERS)
def test_gemm_of_groups_has_the_bits_of_gemm_with_their_numbers(rng, name, shape, order):
    storages = dict.fromkeys("ABC", "f32")
    bias = rng.standard_normal(shape[3]).astype(np.float32)
    v = operands(rng, shape, A_AXES, order, storages, pad=3, bias=bias, acc=1, alpha=0.5)
    grouped, plain = _groups(rng, name, v)
    found = same_for_threads(f"gemm_{name}", {"A": "f32", "C": "f32"}, **grouped)["c"]
    expected = call("gemm", storages, **plain)["c"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("halves", ["ff", "hf", "fh"])
def test_gemm_of_groups_equals_naive_twin(rng, name, variant, halves):
    if variant not in ("plain", HOST_VARIANT) and halves != "ff":
        pytest.skip("these differ from the host's in sizes only")
    kinds = {"f": "f32", "h": "f16"}
    storages = {s: kinds[h] for s, h in zip("AC", halves, strict=True)}
    shape = (1, 1, 40, 50, 1, 150)
    v = operands(rng, shape, A_AXES, B_AXES, {**storages, "B": "f32"})
    grouped, plain = _groups(rng, name, v)
    found = same_for_threads(f"gemm_{name}", storages, variant=variant, **grouped)["c"]
    expected = naive_gemm.gemm(plain)[0, 0]
    ulp = 2.0**-23 if storages["C"] == "f32" else 2.0**-11
    scale = ulp * np.abs(expected) + 2.0**-22 * (v["k"] + 8)
    assert np.all(np.abs(found.reshape(40, 50) - expected) <= scale)


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_rows_and_whole_weights_are_the_numbers_of_their_groups(rng, name, storage):
    table = rng.standard_normal((7, 45)).astype(np.float32)
    stored = FORMATS[name].encode(table)
    numbers = FORMATS[name].decode(stored)[: table.size].reshape(table.shape)
    numbers = numbers.astype(FORMATS[storage].dtype)
    idx = np.array([3, -1, 0, 6, 9, 3], np.int32)
    y = np.empty((6, 45), numbers.dtype)
    rows = same_for_threads(
        f"gather_{name}", {"S": storage}, x=stored, idx=idx, y=y, outer=1, axis=7, inner=45,
        count=6,
    )["y"]  # fmt: skip
    expected = numbers[idx % 7]
    expected[4] = 0  # an index out of range
    np.testing.assert_array_equal(rows, expected)
    whole = np.empty(table.shape, numbers.dtype)
    found = same_for_threads(f"unpack_{name}", {"S": storage}, w=stored, y=whole, n=table.size)
    np.testing.assert_array_equal(found["y"], numbers)
