"""Harmful values are refused with the sample, the value and the allowed range."""

import tracemalloc

import numpy as np
import pytest

from edgetrain.data.registry import open_data
from edgetrain.data.source import Field, Source
from edgetrain.errors import DataError


class Plain(Source):
    """Rows of one array, named "x" or "y", without a split."""

    def __init__(self, rows, name="y"):
        super().__init__("plain", len(rows), {name: Field(rows.shape[1:], rows.dtype)})
        self.rows = rows

    def read(self, names, indices, key, train):
        return {name: self.rows[indices] for name in names}


def fill(source, name="y", dtype=np.int64):
    out = np.zeros((source.n, *source.fields[name].shape), dtype)
    source.fill(np.arange(source.n), {name: out})
    return out


@pytest.mark.parametrize(
    ("values", "dtype", "limit", "shown"),
    [
        ([0, 1, 10], np.int32, 10, r"sample 2: field 'y': value 10; .* from 0 to 9"),
        ([0, -1, 1], np.int64, 10, r"sample 1: field 'y': value -1; .* from 0 to 9"),
        ([0, 5, 5], np.float32, 5, r"sample 1: field 'y': value 5; .* from 0 to 4"),
        ([0, 2**40], np.int32, None, r"sample 1: field 'y': value 1099511627776; .* 2147483647"),
        ([0.0, 1.5], np.int64, None, r"sample 1: field 'y': value 1.5; expected a whole number"),
        ([0.0, np.nan], np.int64, 3, r"sample 1: field 'y': value nan; expected a whole number"),
        ([np.inf, 1.0], np.int32, None, r"sample 0: field 'y': value inf; expected a whole"),
        ([1.0, np.nan], np.float32, None, r"sample 1: field 'y': value nan; expected a finite"),
        ([1.0, -np.inf], np.float16, None, r"sample 1: field 'y': value -inf; expected a finite"),
        ([1.0, 70000.0], np.float16, None, r"sample 1: .* 70000.0; .* at most 65504 \(float16\)"),
        ([0, 70000], np.float16, None, r"sample 1: field 'y': value 70000; .* 65504"),
        ([[1, 2], [3, 9]], np.int64, 9, r"sample 1: field 'y': value 9"),
    ],
)
def test_fill_refuses_bad_values(values, dtype, limit, shown):
    source = Plain(np.array(values))
    if limit is not None:
        source.check_limits({"y": limit})
    with pytest.raises(DataError, match=shown):
        fill(source, dtype=dtype)


def test_fill_lets_ignore_index_through_for_targets_only():
    source = Plain(np.array([-100, 3]))
    source.check_limits({"y": 4}, ignore_index=-100)
    assert fill(source).tolist() == [-100, 3]
    tokens = Plain(np.array([-100, 3]), "x")
    tokens.check_limits({"x": 4}, ignore_index=-100)
    with pytest.raises(DataError, match="value -100"):
        fill(tokens, "x")


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([3, 0, 2], 4),
        ([[3], [0], [2]], 4),
        ([3, -100, 2], 4),
        ([3, -1, 2], None),
        ([-100, -100, -100], None),
        ([3.0, 0.0, 2.0], None),
        ([[3, 0], [0, 1], [2, 2]], None),
        ([True, False, True], None),
    ],
)
def test_classes_are_counted_and_not_enforced(y, classes):
    """Whole numbers may also be regression targets."""
    y = np.array(y)
    arrays = {"x_train": np.zeros((3, 2)), "y_train": y, "x_test": np.zeros((3, 2)), "y_test": y}
    source = open_data(arrays)
    assert source.classes == classes
    np.testing.assert_array_equal(fill(source, dtype=np.float32), y)


def test_fill_lets_nonfinite_values_through_when_asked():
    source = Plain(np.array([np.nan, np.inf]))
    source.allow_nonfinite = True
    np.testing.assert_array_equal(fill(source, dtype=np.float32), [np.nan, np.inf])


def test_fill_names_the_sample_of_the_whole_data_behind_a_split():
    y = np.arange(50)
    source = open_data((np.zeros((50, 1)), y), test_fraction=0.2)
    source.check_limits({"y": 40})
    for k in range(source.n):
        out = np.empty(1, np.int64)
        try:
            source.fill(np.array([k]), {"y": out})
        except DataError as error:
            value = str(error).split("value ")[1].split(";")[0]
            assert f"sample {value}:" in str(error) and int(value) >= 40
        else:
            assert out[0] < 40


def test_fill_refuses_unknown_fields_and_other_sizes():
    source = open_data("digits")
    with pytest.raises(DataError, match="no field 'mask'; found x, y"):
        source.fill(np.arange(2), {"mask": np.zeros((2, 4), np.float32)})
    with pytest.raises(DataError, match=r"\[1, 8, 8\] per sample; the model expects \[3, 8, 8\]"):
        source.fill(np.arange(2), {"x": np.zeros((2, 3, 8, 8), np.float32)})
    with pytest.raises(DataError, match="no field 'z'"):
        source.check_limits({"z": 3})


def test_source_of_its_own_has_no_other_split():
    with pytest.raises(DataError, match="no test split; found only train"):
        open_data(Plain(np.zeros(3)), split="test")


def test_fill_allocates_less_than_the_microbatch():
    source = open_data((np.zeros((64, 2**16), np.uint8), np.zeros(64, np.uint8)))
    indices, out = np.arange(50), np.empty((50, 2**16), np.float32)
    source.fill(indices, {"x": out})
    tracemalloc.start()
    source.fill(indices, {"x": out})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20 < out.nbytes
