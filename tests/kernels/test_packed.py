"""Numbers in 8-bit blocks: the codec, kernels against their naive twin, optimizer updates."""

import numpy as np
import pytest

from edgetrain.formats import FORMATS, INT8, decoded
from edgetrain.kernels.optimizers.states import FIRST

from . import naive_rng, naive_update
from .harness import call, control, same_for_threads
from .naive_packed import packed

SEED, KEY = 5, 77
SIZES = (64, 100, 1000)


def _values(rng, n):
    """Draw numbers of many sizes, including a block of zeros and a block of subnormals."""
    values = (rng.standard_normal(n) * 2.0 ** rng.integers(-12, 3, n)).astype(np.float32)
    values[:1] = 127 * 2.0**-5
    if n > 256:
        values[64:128] = 0
        values[128:192] = rng.standard_normal(64) * 1e-39
    return values


def _key(*more):
    key = naive_rng.stream(SEED, KEY, 3, 1)
    for word in more:
        key = int(naive_rng.hash32(key, word))
    return key


CTL = {"SEED": SEED, "STEP": 3, "MICROBATCH": 1}


@pytest.mark.parametrize("n", SIZES)
def test_codec_equals_naive_twin_and_keeps_what_it_gave(rng, n):
    values = _values(rng, n)
    stored = INT8.encode(values)
    assert stored.tobytes() == packed(values).tobytes()
    assert stored.shape == INT8.stored_shape((n,)) and stored.nbytes == INT8.nbytes(n)
    again = INT8.encode(decoded(stored, (n,)))
    assert decoded(again, (n,)).tobytes() == decoded(stored, (n,)).tobytes()


def test_codec_error_is_at_most_half_a_step():
    values = np.linspace(-127.4, 127.4, 640, dtype=np.float32)
    steps = np.abs(decoded(INT8.encode(values), values.shape) - values)
    largest = np.abs(values.reshape(-1, 64)).max(1)
    step = 2.0 ** np.ceil(np.log2(largest / 127))
    assert (steps.reshape(-1, 64).max(1) <= step / 2).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_block_with_a_number_that_is_not_finite_reads_so_in_codec_and_kernel(value):
    values = np.ones(128, np.float32)
    values[70] = value
    stored = INT8.encode(values)
    read = decoded(stored, (128,))
    assert np.isfinite(read[:64]).all() and not np.isfinite(read[64:]).any()
    out = call("unpack", {"W": "q8", "S": "f32"}, w=stored, y=np.empty(128, np.float32), n=128)
    np.testing.assert_array_equal(out["y"], read)
    zeros = INT8.encode(np.zeros(128, np.float32))
    ctl = control(**CTL)
    args = {"x": values, "g": zeros, "ctl": ctl, "n": 128, "key": KEY}
    added = same_for_threads("pack_add", {"S": "f32", "G": "q8"}, **args)["g"]
    assert added.tobytes()[65:] == stored.tobytes()[65:]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_unpack_equals_the_codec(rng, n, storage):
    stored = INT8.encode(_values(rng, n))
    expected = decoded(stored, (n,)).astype(FORMATS[storage].dtype)
    empty = np.empty(n, expected.dtype)
    out = same_for_threads("unpack", {"W": "q8", "S": storage}, w=stored, y=empty, n=n)
    np.testing.assert_array_equal(out["y"], expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("grads", ["q8", "q8n"])
def test_pack_add_equals_naive_twin(rng, n, grads):
    before, x = INT8.encode(_values(rng, n)), _values(rng, n)
    args = {"x": x, "g": before.view(FORMATS[grads].dtype), "ctl": control(**CTL), "key": KEY}
    out = same_for_threads("pack_add", {"S": "f32", "G": grads}, **args, n=n)["g"]
    expected = packed(decoded(before, (n,)) + x, _key() if grads == "q8" else None)
    assert out.tobytes() == expected.tobytes()


def test_pack_add_is_unbiased_far_below_a_step():
    """Steps of 1/100 survive in the mean; with rounding to nearest they are lost."""
    n, x = 64, np.full(64, 0.01, np.float32)
    start = np.zeros(n, np.float32)
    start[0] = 127
    means = {}
    for grads in ("q8", "q8n"):
        total = np.zeros(n)
        stored = INT8.encode(start).view(FORMATS[grads].dtype)
        for step in range(400):
            args = {"x": x, "g": stored, "ctl": control(SEED=step), "key": KEY, "n": n}
            total += decoded(call("pack_add", {"S": "f32", "G": grads}, **args)["g"], (n,))
        means[grads] = (total[1:] / 400).mean()
    assert means["q8n"] == 0 and abs(means["q8"] - 0.01) < 0.002


def _layer(rng):
    """Return a pool of 300 slots (5 blocks) and the pointers of a layer in slots 70 to 200."""
    pool = INT8.encode(_values(rng, 300))
    pointers = np.sort(rng.integers(70, 201, 9)).astype(np.int32)
    pointers[[0, -1]] = 70, 200
    return pool, pointers, {"slots": 300, "groups": 8, "room": 150}


def test_csr_unpack_takes_a_layers_slots(rng):
    pool, pointers, sizes = _layer(rng)
    args = {"w": pool, "pointers": pointers, "y": np.zeros(150, np.float32)} | sizes
    out = same_for_threads("csr_unpack", {"W": "q8", "S": "f32"}, **args)["y"]
    np.testing.assert_array_equal(out[:130], decoded(pool, (300,))[70:200])


def test_csr_pack_add_rounds_the_blocks_of_a_layer(rng):
    pool, pointers, sizes = _layer(rng)
    x = _values(rng, 150)
    args = {"x": x, "g": pool, "pointers": pointers, "ctl": control(**CTL), "key": KEY} | sizes
    out = same_for_threads("csr_pack_add", {"S": "f32", "G": "q8"}, **args)["g"]
    before = decoded(pool, (300,))
    before[70:200] += x[:130]
    expected = packed(before, _key())
    assert out[1:4].tobytes() == expected[1:4].tobytes()
    assert out[[0, 4]].tobytes() == pool[[0, 4]].tobytes()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_on_blocks_equals_naive_twin(rng, n, momentum):
    w, g, v = (INT8.encode(_values(rng, n)) for _ in range(3))
    ctl = control(**CTL, LR=0.25, GRAD_FACTOR=0.5, ADAM_T=2)
    args = {"mu": momentum, "wd": 0.0, "dampening": 0.0, "nesterov": 0, "key": KEY, "n": n}
    args |= {"v": v if momentum else None}
    out = same_for_threads("sgd", {"W": "q8", "G": "q8", "V": "q8"}, w=w, g=g, ctl=ctl, **args)
    values = [decoded(part, (n,)) for part in (w, g, v)]
    direction = values[1] * np.float32(0.5)
    if momentum:
        direction = np.float32(momentum) * values[2] + direction
        assert out["v"].tobytes() == packed(direction, _key(FIRST)).tobytes()
    expected = packed(values[0] - np.float32(0.25) * direction, _key())
    assert out["w"].tobytes() == expected.tobytes()
    assert not out["g"].tobytes().strip(b"\0")


def test_adam_on_blocks_keeps_roots_that_are_not_zero(rng):
    n, lr = 200, 0.01
    w, g, m = (rng.standard_normal(n).astype(np.float32) for _ in range(3))
    root = (np.abs(g) * 1e-3).astype(np.float32)
    root[3], g[3], m[3] = 0, 0, 0
    root[5], g[5] = 1, 1e-7
    stored = {name: INT8.encode(a) for name, a in {"w": w, "g": g, "m": m, "v": root}.items()}
    ctl = control(**CTL, LR=lr, GRAD_FACTOR=1, ADAM_T=2, BIAS1=1 - 0.9**2, BIAS2=1 - 0.999**2)
    types = {"W": "q8", "G": "q8", "M": "q8", "V": "q8"}
    numbers = {"c1": 0.1, "b2": 0.999, "c2": 0.001, "eps": 1e-8, "wd": 0.0, "decoupled": 0}
    out = same_for_threads("adam", types, **stored, ctl=ctl, n=n, key=KEY, **numbers)
    w, g, m, root = (decoded(stored[k], (n,)).astype(np.float64) for k in "wgmv")
    new = naive_update.adam(
        w, g, m, root**2, lr=lr, b1=0.9, b2=0.999, eps=1e-8, wd=0, decoupled=0, t=2
    )
    kept = decoded(out["v"], (n,))
    assert kept[3] == 0 and (kept[np.sqrt(new[2]) > 0] > 0).all()
    for name, values in zip("wm", new, strict=False):
        step = np.abs(values).max() / 64
        assert np.abs(decoded(out[name], (n,)) - values).max() < step, name
