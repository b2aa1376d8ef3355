"""The checksum compared with zlib's."""

import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.harness import call


def digest(parts: list[np.ndarray], before: int = 0) -> int:
    table = np.array([[p.ctypes.data, p.nbytes] for p in parts] or [[0, 0]], np.int64)
    found = call("drive_digest", out=(1,), parts=table.ctypes.data, count=len(parts), before=before)
    return int(found["out"][0])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=4), st.integers(0, 2**32 - 1))
def test_drive_digest_equals_zlib(parts, before):
    arrays = [np.frombuffer(part + b"\0", np.uint8)[: len(part)] for part in parts]
    assert digest(arrays, before) == zlib.crc32(b"".join(parts), before)
