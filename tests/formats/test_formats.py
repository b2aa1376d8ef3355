"""Every storage format: numpy's codec, the kernels' loads and stores, and where it may stand."""

import numpy as np
import pytest

from edgetrain.cli.parser.arguments import plan_table
from edgetrain.formats import (
    BLOCKED,
    FORMATS,
    FROZEN,
    GROUPED,
    MEMORIES,
    PRECISIONS,
    decoded,
    narrowest,
    of_dtype,
)
from edgetrain.kernels.blocks.groups import GROUPS
from edgetrain.kernels.language.packed import PACKED
from edgetrain.kernels.language.prim import STORAGES
from tests.formats.cases import FORMAT_CASES
from tests.kernels.harness import call, declared


def _through(X, Y):
    ld, st = X.ld, Y.st

    def run(thread, nthreads, k):
        for i in range(k.n):
            st(k.y, i, ld(k.x, i))

    return run


THROUGH = declared("format_through", "x:r:X[n] y:w:Y[n] n", _through)


def test_every_format_has_a_case_and_kernels():
    """f64 is a sum's alone: no kernel takes it for a storage variable."""
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
