"""The harness with the random generator: keys, independence of streams."""

import numpy as np

from . import naive_rng
from .harness import call, control, declared


def _draws():
    from edgetrain.kernels.language.prim import div, hash32, st_i64
    from edgetrain.kernels.language.rng import stream

    def run(thread, nthreads, args):
        base = stream(args.ctl, args.key)
        for i in range(div(args.n * thread, nthreads), div(args.n * (thread + 1), nthreads)):
            st_i64(args.y, i, hash32(base, i))

    return run


DRAWS = declared("draws", "ctl:r:i64[64] y:w:i64[n] n key", _draws)


def _draw(key=1, n=1000, **words):
    return call(DRAWS, ctl=control(**words), y=(n,), n=n, key=key)["y"]


def test_stream_equals_naive_twin():
    words = {"SEED": 0x123456789AB, "STEP": 7, "MICROBATCH": 3}
    expected = naive_rng.hash32(naive_rng.stream(0x123456789AB, 5, 7, 3), np.arange(1000))
    np.testing.assert_array_equal(_draw(5, **words), expected)


def test_stream_differs_by_each_of_its_words():
    words = {"SEED": 1, "STEP": 1, "MICROBATCH": 1}
    others = [words | {name: value} for name in words for value in (0, 2)]
    draws = [_draw(6, **words), *(_draw(5, **w) for w in (words, *others))]
    equal = [(a == b).mean() for i, a in enumerate(draws) for b in draws[:i]]
    # two streams of 1000 draws of 32 bits share at most one draw
    assert max(equal) <= 1e-3


def test_stream_is_uniform_in_every_bit():
    bits = _draw(3, n=100_000, SEED=9)[:, None] >> np.arange(32) & 1
    z = (bits.mean(0) - 0.5) / (0.5 / np.sqrt(100_000))
    assert np.abs(z).max() < 5
