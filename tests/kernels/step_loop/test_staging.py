"""Conversion of raw samples in the arena, against numpy: types, scales, limits, in-place rows."""

import numpy as np
import pytest

from edgetrain.kernels.step_loop import layout
from tests.kernels.harness import DTYPES, call

SHAPE = (3, 4, 2)  # channels first
ROWS = 5


class Field:
    """A field description; keeps its arrays alive."""

    def __init__(self, staged: np.ndarray, raw_dtype, size: int, **words: int) -> None:
        self.staged, self.keep = staged, []
        self.words = np.zeros(layout.FIELD_WORDS, np.int64)
        self.words[layout.STAGED] = staged.ctypes.data
        self.words[layout.STAGED_TYPE] = self.number(staged.dtype)
        self.words[layout.RAW_TYPE] = self.number(raw_dtype)
        self.words[layout.SIZE] = size
        for name, value in words.items():
            self.words[getattr(layout, name)] = value

    @staticmethod
    def number(dtype) -> int:
        return next(k for k, name in enumerate(layout.TYPES) if DTYPES[name] == dtype)

    def scale(self, factor: np.ndarray, shift: np.ndarray, inner: int) -> None:
        self.keep = [factor, shift]
        self.words[layout.FACTOR], self.words[layout.SHIFT] = (a.ctypes.data for a in self.keep)
        self.words[layout.CHANNELS], self.words[layout.INNER] = len(factor), inner

    def stage(self, raw: np.ndarray, first: int = 0) -> int:
        found = call(
            "drive_stage", field=self.words.ctypes.data, raw=raw.ctypes.data,
            stride=raw.strides[0], first=first, count=len(raw), bad=(1,),
        )  # fmt: skip
        return int(found["bad"][0])


def raw_samples(dtype, rows: int = ROWS) -> np.ndarray:
    draw = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return draw.standard_normal((rows, *SHAPE)).astype(dtype)
    return draw.integers(0, 200, (rows, *SHAPE)).astype(dtype)


@pytest.mark.parametrize("staged", [np.float32, np.float16])
@pytest.mark.parametrize("raw", [np.uint8, np.int32, np.int64, np.float16, np.float32])
@pytest.mark.parametrize("scaled", [False, True])
def test_floats_are_scaled_as_numpy_does(staged, raw, scaled):
    samples, out = raw_samples(raw), np.zeros((ROWS + 1, *SHAPE), staged)
    field = Field(out, raw, int(np.prod(SHAPE)))
    expected = samples.astype(np.float32)
    if scaled:
        factor = np.float32([0.1, 0.7, 1 / 255])
        shift = np.float32([-0.3, 0.0, 2.5])
        field.scale(factor, shift, 8)
        expected = expected * factor.reshape(3, 1, 1) + shift.reshape(3, 1, 1)
    assert field.stage(samples, first=1) == -1
    np.testing.assert_array_equal(out[1:], expected.astype(staged))
    assert not out[0].any()


@pytest.mark.parametrize("raw", [np.uint8, np.int32, np.int64])
def test_integers_are_kept_and_their_limits_checked(raw):
    labels = np.array([[3], [0], [9], [2]], raw)
    out = np.zeros((4, 1), np.int32)
    assert Field(out, raw, 1, LIMIT=10).stage(labels) == -1
    np.testing.assert_array_equal(out, labels)
    assert Field(out, raw, 1, LIMIT=9).stage(labels) == 2
    assert Field(out, raw, 1, LIMIT=9, IGNORED=9, CHECK_IGNORED=1).stage(labels) == -1
    assert Field(out, raw, 1).stage(labels) == -1


@pytest.mark.parametrize("value", [-1, -(2**31), 2**31 - 1, 2**40 + 1])
def test_a_label_outside_is_refused(value):
    labels = np.array([[1], [value]], np.int64)
    assert Field(np.zeros((2, 1), np.int32), np.int64, 1, LIMIT=10).stage(labels) == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 65520.0])
def test_what_is_not_finite_as_staged_is_refused(value):
    raw = np.array([[1.0, 2.0], [value, 0.0]], np.float32)
    assert Field(np.zeros((2, 2), np.float16), np.float32, 2).stage(raw) == 1
    wide = Field(np.zeros((2, 2), np.float32), np.float32, 2).stage(raw)
    assert wide == (-1 if np.isfinite(value) else 1)


OWN = [(np.uint8, np.float32), (np.uint8, np.float16), (np.float16, np.float32),
       (np.float32, np.float32)]  # fmt: skip


@pytest.mark.parametrize("raw, staged", OWN)
def test_a_row_may_hold_its_own_raw_sample_at_its_end(raw, staged):
    sample, out = raw_samples(raw, 1), np.zeros((1, *SHAPE), staged)
    tail = out.reshape(-1).view(np.uint8)[out.nbytes - sample.nbytes :]
    tail[:] = sample.reshape(-1).view(np.uint8)
    field = Field(out, raw, int(np.prod(SHAPE)))
    assert field.stage(tail[None]) == -1
    np.testing.assert_array_equal(out, sample.astype(staged))
