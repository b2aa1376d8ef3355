"""The harness with the generator: keys, independence of streams."""

import numpy as np

from edgetrain.kernels.registry import kernel

from . import naive_rng
from .harness import call, control


@kernel("test_stream", "ctl:r:i64[64] y:w:i64[n] n key")
def _stream_kernel():
    from edgetrain.kernels.prim import div, hash32, st_i64
    from edgetrain.kernels.rng import stream

    def run(thread, nthreads, ctl, y, n, key):
        base = stream(ctl, key)
        for i in range(div(n * thread, nthreads), div(n * (thread + 1), nthreads)):
            st_i64(y, i, hash32(base, i))

    return run


def _draw(key=1, n=1000, **words):
    return call("test_stream", ctl=control(**words), y=(n,), n=n, key=key)["y"]


def test_stream_equals_naive_twin():
    words = {"SEED": 0x123456789AB, "STEP": 7, "MICROBATCH": 3}
    expected = naive_rng.hash32(naive_rng.stream(0x123456789AB, 5, 7, 3), np.arange(1000))
    np.testing.assert_array_equal(_draw(5, **words), expected)
