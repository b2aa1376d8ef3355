"""Optimizers beyond SGD and Adam against their naive twins, in fp32 and fp16."""

import numpy as np
import pytest

from . import naive_update
from .harness import DTYPES, control, same_for_threads

N, STEPS, LR = 960, 8, 0.02
SHAPES = [(1, 24, 40), (4, 300, 1), (2, 1, 300), (30, 4, 8)]


def block(step: int, **words) -> np.ndarray:
    """The control block before update number `step`, from 1, of gradients that lie halved."""
    return control(LR=LR, GRAD_FACTOR=2.0, ADAM_T=step, STEP=step, SEED=5, **words)


def check(name, storage, twin, states, roots, **numbers):
    """Some updates beside the twin.

    Args:
      twin: (weights, gradient, states, t) -> weights, states.
      states: operand -> storage variable; those in `roots` hold square roots in fp16.
    """
    rng, dtype = np.random.default_rng(0), DTYPES[storage]
    w = rng.standard_normal(N).astype(dtype)
    found = {state: np.zeros(N, dtype) for state in states}
    exact, exact_states = w.astype(np.float64), {state: np.zeros(N) for state in states}
    storages = dict.fromkeys(["W", "G", "A", *states.values()], storage)
    for t in range(1, STEPS + 1):
        g = rng.standard_normal(N).astype(dtype)
        out = same_for_threads(
            name, storages, w=w, g=g, ctl=block(t), n=N, key=3, **found, **numbers
        )
        w, found = out["w"], {state: out[state] for state in states}
        exact, exact_states = twin(exact, 2 * g.astype(np.float64), exact_states, t)
        assert not out["g"].any()
    # fp16: eight roundings of weights below 4, each off by at most 2^-9
    tolerance = 2e-6 if storage == "f32" else 8 * 2.0**-9
    np.testing.assert_allclose(w, exact, rtol=tolerance, atol=tolerance)
    for state in states:
        true = exact_states[state]
        true = np.sqrt(true) if storage == "f16" and state in roots else true
        loose = 2e-6 if storage == "f32" else 0.02
        np.testing.assert_allclose(found[state], true, rtol=loose, atol=loose)


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop_equals_its_twin(storage, centered):
    numbers = {"alpha": 0.9, "eps": 0.1, "wd": 0.01, "mu": 0.5}
    states = {"v": "V", "m": "M"} | ({"v_mean": "A"} if centered else {})

    def twin(w, g, s, t):
        w, *new = naive_update.rmsprop(
            w, g, s["v"], s["m"], s["v_mean"] if centered else None, lr=LR, **numbers
        )
        return w, dict(zip(("v", "m", "v_mean"), new, strict=True))

    check("rmsprop", storage, twin, states, {"v"}, c=1 - 0.9, **numbers)


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_adagrad_equals_its_twin(storage):
    numbers = {"decay": 0.1, "eps": 1e-6, "wd": 0.01}

    def twin(w, g, s, t):
        w, v = naive_update.adagrad(w, g, s["v"], lr=LR, t=t, **numbers)
        return w, {"v": v}

    check("adagrad", storage, twin, {"v": "V"}, {"v"}, **numbers)


def test_lion_equals_its_twin():
    def twin(w, g, s, t):
        w, m = naive_update.lion(w, g, s["m"], lr=LR, b1=0.9, b2=0.99, wd=0.01)
        return w, {"m": m}

    numbers = {"b1": 0.9, "c1": 1 - 0.9, "b2": 0.99, "c2": 1 - 0.99, "wd": 0.01}
    check("lion", "f32", twin, {"m": "M"}, (), **numbers)


NUMBERS = {"eps": 1e-6, "least": 0.01, "most": 1.0, "wd": 0.1}


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_adafactor_of_vectors_equals_its_twin(storage):
    rng, dtype = np.random.default_rng(0), DTYPES[storage]
    w, v, sums = rng.standard_normal(N).astype(dtype), np.zeros(N, dtype), np.zeros(128)
    exact, moment = w.astype(np.float64), np.zeros(N)
    storages = dict.fromkeys("WGV", storage)
    for t in range(1, STEPS + 1):
        g = rng.standard_normal(N).astype(dtype)
        same = {"ctl": block(t), "n": N, "key": 3}
        out = same_for_threads(
            "adafactor_vector_moments", storages, w=w, g=g, v=v, sums=sums, power=-0.8,
            eps=NUMBERS["eps"], **same,
        )  # fmt: skip
        v, sums = out["v"], out["sums"]
        w = same_for_threads(
            "adafactor_vector", storages, w=w, g=g, v=v, sums=sums, **same, **NUMBERS
        )["w"]
        exact, moment = naive_update.adafactor(
            exact, 2 * g.astype(np.float64), moment, lr=LR, power=-0.8, t=t, **NUMBERS
        )
    tolerance = 2e-6 if storage == "f32" else 8 * 2.0**-9
    np.testing.assert_allclose(w, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
def test_adafactor_of_matrices_equals_its_twin(shape):
    rng = np.random.default_rng(0)
    count, rows, cols = shape
    same = {"count": count, "rows": rows, "cols": cols}
    w = rng.standard_normal(shape).astype(np.float32)
    r, c = np.zeros((count, rows, 1), np.float32), np.zeros((count, 1, cols), np.float32)
    exact, moments, sums = w.astype(np.float64), (r.astype(float), c.astype(float)), np.zeros(128)
    both = dict.fromkeys("WG", "f32")
    for t in range(1, STEPS + 1):
        g = rng.standard_normal(shape).astype(np.float32)
        same["ctl"] = block(t)
        out = same_for_threads(
            "adafactor_moments", both, w=w, g=g, v_rows=r, v_cols=c, sums=sums, power=-0.8, **same
        )
        moved = {"v_rows": out["v_rows"], "v_cols": out["v_cols"]}
        r, c = moved.values()
        sums = same_for_threads(
            "adafactor_steps", {"G": "f32"}, g=g, sums=out["sums"], eps=NUMBERS["eps"], **moved,
            **same,
        )["sums"]  # fmt: skip
        out = same_for_threads(
            "adafactor", both, w=w, g=g, sums=sums, key=3, **moved, **same, **NUMBERS
        )
        w = out["w"]
        assert not out["g"].any()
        exact, moments = naive_update.adafactor(
            exact, 2 * g.astype(np.float64), moments, lr=LR, power=-0.8, t=t, **NUMBERS
        )
    np.testing.assert_allclose(w, exact, rtol=2e-6, atol=2e-6)
    for found, true in zip((r, c), moments, strict=True):
        np.testing.assert_allclose(found, true, rtol=2e-6)


@pytest.mark.parametrize("name", ["rmsprop", "adagrad", "lion", "adafactor_vector"])
def test_updates_that_are_skipped_write_nothing_but_zero_gradients(name):
    state = np.ones(N, np.float32)
    numbers = {
        "rmsprop": {"v": state, "alpha": 0.9, "c": 0.1, "eps": 0.1, "wd": 0.1, "mu": 0.0},
        "adagrad": {"v": state, "decay": 0.1, "eps": 1e-6, "wd": 0.1},
        "lion": {"m": state, "b1": 0.9, "c1": 0.1, "b2": 0.9, "c2": 0.1, "wd": 0.1},
        "adafactor_vector": {"v": state, "sums": np.ones(128), **NUMBERS},
    }[name]
    storages = dict.fromkeys("WGVMA", "f32")
    out = same_for_threads(
        name, storages, w=state, g=state, ctl=block(1, SKIP=1), n=N, key=3, **numbers
    )
    assert not out.pop("g").any()
    np.testing.assert_array_equal(out.pop("ctl", block(1, SKIP=1)), block(1, SKIP=1))
    assert all((array == 1).all() for array in out.values())
