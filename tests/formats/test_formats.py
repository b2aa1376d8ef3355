"""Every storage format: numpy's codec, the kernels' loads and stores, and where it is allowed."""

import re

import numpy as np
import pytest

from edgetrain import formats
from edgetrain.cli.parser.arguments import plan_table
from edgetrain.formats import (
    BLOCKED,
    FLOATS,
    FORMATS,
    FROZEN,
    GROUPED,
    MEMORIES,
    PRECISIONS,
    decoded,
    from_file,
    holding,
    narrowest,
    of_dtype,
)
from edgetrain.formats.coded import NumpyWords
from edgetrain.kernels.blocks.groups import GROUPS
from edgetrain.kernels.language import prim
from edgetrain.kernels.language.packed import PACKED
from edgetrain.kernels.language.prim import STORAGES
from edgetrain.program.container import read_container, write_container
from tests.formats import added
from tests.formats.cases import FORMAT_CASES
from tests.kernels.harness import call, declared
from tests.kernels.naive_rng import hash32


def _through(X, Y):
    ld, st = X.ld, Y.st

    def run(thread, nthreads, args):
        for i in range(args.n):
            st(args.y, i, ld(args.x, i))

    return run


THROUGH = declared("format_through", "x:r:X[n] y:w:Y[n] n", _through)


def _scattered(Y):
    """Elements one by one up to `least`, then in vectors; `upper`: in vectors, by upper bits."""
    from edgetrain.kernels.language.prim import FP32, mix, u32
    from edgetrain.kernels.language.random_store import counter, drawn_stores, random_stores
    from edgetrain.kernels.language.vector import WIDTH, loads_first

    ld, vld, sr, put = FP32.ld, loads_first(FP32), Y.sr, random_stores(Y)
    put_upper = drawn_stores(Y, upper=True)

    def run(thread, nthreads, args):
        for i in range(args.least):
            sr(args.y, i, ld(args.x, i), u32(args.key))
        for i in range(args.least, args.n, WIDTH):
            m, key = min(WIDTH, args.n - i), u32(args.key)
            if args.upper != 0:
                put_upper(args.y, i, vld(args.x, i, m), m, mix(counter(i, key)))
            else:
                put(args.y, i, vld(args.x, i, m), m, key)

    return run


SCATTERED = declared("format_scattered", "x:r:f32[n] y:w:Y[n] n least key upper", _scattered)
ROUNDED = [name for name in STORAGES if FORMATS[name].rounded]


def _stochastic(name, x, key, least, upper=0):
    empty = np.empty(x.shape, FORMATS[name].dtype)
    args = {"x": x, "y": empty, "n": x.size, "least": least, "key": key, "upper": upper}
    return call(SCATTERED, {"Y": name}, **args)["y"]


def test_every_format_of_numbers_coarser_than_float32_is_rounded_stochastically():
    coarse = [name for name in FLOATS if FORMATS[name].block_nbytes < 4]
    assert sorted(coarse) == sorted(ROUNDED)


@pytest.mark.parametrize("name", ROUNDED)
def test_a_stochastic_store_is_the_formula_by_elements_and_by_vectors(name):
    format, n, key, rng = FORMATS[name], 1003, 77, np.random.default_rng(0)
    x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-9, 6, n)).astype(np.float32)
    x[:6] = [np.inf, -np.inf, np.nan, 0.0, -0.0, 3.4e38]
    random = hash32(key, np.arange(n))
    width = f"u{format.block_nbytes}"
    bits = format.rounded(NumpyWords, x.view(np.uint32), random).astype(width)
    for least in (0, 64, n):
        stored = _stochastic(name, x, key, least)
        np.testing.assert_array_equal(stored.view(width), bits)


def _codes(format):
    """Every number that is not negative and finite, float64, in the order of its bits."""
    bits = np.arange(1 << (8 * format.block_nbytes - 1), dtype=f"u{format.block_nbytes}")
    with np.errstate(invalid="ignore"):  # signalling NaN
        numbers = format.decode(bits.view(format.dtype)).astype(np.float64)
    return numbers[: np.flatnonzero(np.isfinite(numbers))[-1] + 1]


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.75])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("where", ["-1.3", "large", "small", "subnormal", "least"])
def test_a_stochastic_store_goes_up_with_the_probability_of_what_it_drops(
    name, share, upper, where
):
    """Also by the upper bits of a random number, which an update shares between two numbers."""
    format, n = FORMATS[name], 1 << 14
    codes = _codes(format)
    first_normal = int(np.argmax(np.diff(codes) > codes[1] * 1.5))  # where the spacing doubles
    at = {
        "-1.3": int(np.searchsorted(codes, 1.3)), "large": len(codes) - 2,
        "small": first_normal + first_normal // 3, "subnormal": first_normal // 3, "least": 0,
    }[where]  # fmt: skip
    sign = -1.0 if where == "-1.3" else 1.0
    low, high = sign * codes[at], sign * codes[at + 1]
    x = np.full(n, low + share * (high - low), np.float32)
    share = float((x[0].astype(np.float64) - low) / (high - low))  # float32 may round it
    out = format.decode(_stochastic(name, x, 5, 0, upper)).astype(np.float64)
    assert set(np.unique(out)) == {low, high}
    steps = (out - low) / (high - low)
    assert abs(steps.mean() - share) < 5 * (share * (1 - share) / n) ** 0.5  # five deviations


@pytest.mark.parametrize("name", ROUNDED)
def test_a_format_uses_as_many_random_bits_as_it_says(name):
    """Two formats with at most 16 share a random number."""
    format, rng = FORMATS[name], np.random.default_rng(0)
    x = (rng.standard_normal(4096) * 10.0 ** rng.uniform(-6, 3, 4096)).astype(np.float32)
    bits, random = x.view(np.uint32), rng.integers(0, 1 << 32, 4096, dtype=np.uint32)
    used = random & np.uint32((1 << format.random_bits) - 1)
    rounded = format.rounded(NumpyWords, bits, random)
    np.testing.assert_array_equal(rounded, format.rounded(NumpyWords, bits, used))
    highest = np.uint32(1 << (format.random_bits - 1))
    assert (rounded != format.rounded(NumpyWords, bits, random ^ highest)).any()


@pytest.mark.parametrize("name", ROUNDED)
def test_the_largest_number_is_the_last_finite_one(name):
    format = FORMATS[name]
    codes = _codes(format)
    assert codes[-1] == format.largest
    with np.errstate(over="ignore"):
        over = np.float32(codes[-1] + 0.75 * (codes[-1] - codes[-2]))
    assert not np.isfinite(format.decode(format.encode(np.float32([over, -over])))).any()


@pytest.mark.parametrize("name", ROUNDED)
def test_the_codec_rounds_to_the_nearest_number_and_ties_to_even(name):
    format, rng = FORMATS[name], np.random.default_rng(0)
    codes = _codes(format)
    low = rng.integers(0, len(codes) - 1, 4000)
    share = rng.choice([0.0, 0.2, 0.5, 0.7], 4000)
    with np.errstate(under="ignore"):
        x = (codes[low] + share * (codes[low + 1] - codes[low])).astype(np.float32)
    exact = x.astype(np.float64)
    before, after = exact - codes[low], codes[low + 1] - exact
    even = low + low % 2
    nearest = np.where(before < after, low, np.where(before > after, low + 1, even))
    stored = format.encode(x).view(f"u{format.block_nbytes}")
    np.testing.assert_array_equal(stored, nearest)


def test_a_precision_has_tolerances_for_parity():
    for format in PRECISIONS.values():
        assert min(format.tolerances) > 0, format.name


def test_every_format_has_a_case_and_kernels():
    """f64 is only used for sums: no kernel takes it as a storage variable."""
    assert FORMAT_CASES.keys() == FORMATS.keys()
    assert STORAGES.keys() == FORMATS.keys() - {"f64", *BLOCKED, *GROUPED}
    assert PACKED.keys() == set(BLOCKED) and GROUPS.keys() == set(GROUPED)
    assert len({format.number for format in FORMATS.values()}) == len(FORMATS)


@pytest.mark.parametrize("name", FORMAT_CASES)
def test_codec_gives_the_bits_and_takes_them_back(name):
    values, bits = FORMAT_CASES[name]
    format = FORMATS[name]
    stored = format.encode(values)
    assert stored.dtype == format.dtype and stored.nbytes == format.nbytes(values.size)
    assert stored.shape == format.stored_shape(values.shape)
    assert 0 <= format.count(stored.nbytes) - values.size < format.block
    assert of_dtype(stored.dtype) is format
    width = format.block_nbytes if format.block == 1 else 1
    whole = stored.view(np.dtype(f"u{width}"))
    assert whole.tolist() == bits
    again = format.encode(decoded(stored))
    assert again.tobytes() == stored.tobytes()


@pytest.mark.parametrize("name", sorted(STORAGES))
def test_kernels_store_and_load_as_the_codec(name):
    values, _ = FORMAT_CASES[name]
    format, wide = FORMATS[name], "f32" if FORMATS[name].floats else "i64"
    storage = STORAGES[name]
    assert (storage.nbytes, storage.floats) == (format.block_nbytes, format.floats)
    wide_values = values.astype(FORMATS[wide].dtype)
    empty = np.empty(values.shape, format.dtype)
    stored = call(THROUGH, {"X": wide, "Y": name}, x=wide_values, y=empty, n=values.size)["y"]
    assert stored.tobytes() == format.encode(values).tobytes()
    empty = np.empty(values.shape, wide_values.dtype)
    loaded = call(THROUGH, {"X": name, "Y": wide}, x=stored, y=empty, n=values.size)["y"]
    np.testing.assert_array_equal(loaded, format.decode(stored))


def test_precisions_are_what_the_command_line_takes():
    for option in ("model_memory", "weights", "state", "grads"):
        assert plan_table()[option]["choices"] == [*MEMORIES]
    assert plan_table()["frozen"]["choices"] == [*FROZEN] == [*PRECISIONS, "int8", "int4"]
    assert plan_table()["precision"]["choices"] == [*PRECISIONS]
    assert [*MEMORIES] == [*PRECISIONS, "int8", "int8-nearest"]
    assert narrowest().precision in PRECISIONS


@pytest.fixture
def e5m2(monkeypatch):
    """A format added with its loads and stores."""
    format = added.added()
    monkeypatch.setitem(STORAGES, format.name, prim._floats(format))
    yield format
    del FORMATS[format.name]


def test_formulas_may_choose_between_known_numbers_and_begin_with_one(e5m2):
    stored = e5m2.encode(added.VALUES)
    assert stored.view(np.uint8).tolist() == added.BITS
    every = np.arange(256, dtype=np.uint8).view(e5m2.dtype)
    empty = np.empty(256, np.float32)
    loaded = call(THROUGH, {"X": e5m2.name, "Y": "f32"}, x=every, y=empty, n=256)["y"]
    np.testing.assert_array_equal(loaded, e5m2.decode(every))
    halves = (np.arange(256, dtype=np.uint16) << 8).view(np.float16)  # the format is its upper half
    np.testing.assert_array_equal(loaded, halves.astype(np.float32))
    again = call(THROUGH, {"X": "f32", "Y": e5m2.name}, x=loaded, y=every.copy(), n=256)["y"]
    numbers = ~np.isnan(loaded)
    np.testing.assert_array_equal(again.view(np.uint8)[numbers], every.view(np.uint8)[numbers])


def test_files_hold_formats_of_one_width_apart(e5m2, tmp_path):
    """Each format that numpy lacks has its own dtype, and its arrays go through files."""
    other = added.added("e5m2_other", 114)
    del FORMATS[other.name]
    assert e5m2.dtype != other.dtype and of_dtype(e5m2.dtype) is e5m2
    rng = np.random.default_rng(0)
    for shape in ((), (1,), (2, 3), (4, 1), (0, 2)):
        values = rng.standard_normal(shape).astype(np.float32)
        for format in (e5m2, FORMATS["bf16"], FORMATS["f16"]):
            stored = format.encode(values)
            write_container(tmp_path / "f", {"x": stored}, {}, kind="test", version=1)
            tensors, _ = read_container(tmp_path / "f", kind="test", versions=range(1, 2))
            tensor = from_file(tensors["x"], format)
            assert (tensor.shape, tensor.dtype) == (stored.shape, stored.dtype)
            assert tensor.tobytes() == stored.tobytes()


@pytest.mark.parametrize(
    ("number", "words"),
    [(1.0, "fp32, fp16 or bf16"), (7e4, "fp32 or bf16"), (3.4e38, "fp32"), (1e39, "")],
)
def test_texts_name_the_formats_that_hold_a_number(number, words, monkeypatch):
    known = {name: PRECISIONS[name] for name in ("fp32", "fp16", "bf16")}
    monkeypatch.setattr(formats, "PRECISIONS", known)
    assert {*re.findall(r"\w+", holding(number))} == {*re.findall(r"\w+", words)}
