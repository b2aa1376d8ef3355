"""Optimizers other than SGD and Adam, compared with naive twins in fp32 and fp16."""

import numpy as np
import pytest

from edgetrain.formats import FORMATS
from edgetrain.kernels import control as layout
from edgetrain.kernels import registry
from edgetrain.optim import OPTIMIZERS

from . import naive_rng, naive_update
from .harness import DTYPES, call, control, same_for_threads

N, STEPS, LR = 960, 8, 0.02
SHAPES = [(1, 24, 40), (4, 300, 1), (2, 1, 300), (30, 4, 8)]


def block(step: int, **words) -> np.ndarray:
    """Return the control block before update `step` (from 1), with gradients stored halved."""
    return control(LR=LR, GRAD_FACTOR=2.0, ADAM_T=step, STEP=step, SEED=5, **words)


def check(name, storage, twin, states, roots, **numbers):
    """Compare several updates with the twin.

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
    # fp16: eight roundings of weights below 4, each by at most 2^-9
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


WIDE = sorted({kind.kernel for kind in OPTIMIZERS.values() if kind.wide})
ODD = 953  # number of weights, not a whole number of vectors
# Storages of weights, gradients and states -> the optimizers tested with them.
KINDS = {
    "f16 f32 f16": WIDE, "f16 f16 f32": ("adam",), "f32 f16 f16": ("adan",),
    "bf16 f32 bf16": ("adam",),
}  # fmt: skip
# Values with a visible effect on the weights in any optimizer.
USUAL = {"mu": 0.9, "dampening": 0.1, "nesterov": 1, "decoupled": 1, "wd": 0.01, "decay": 0.1}
USUAL |= {"alpha": 0.9, "c": 0.1, "eps": 1e-6}
USUAL |= {f"b{n}": 0.9 for n in (1, 2, 3)} | {f"c{n}": 0.1 for n in (1, 2, 3)}


def update_of(kernel: str, storages: dict[str, str], scale: float, absent: bool) -> dict:
    """Return operands of an update of ODD weights, or of slots 13 to 753 of ODD; optional states
    are present unless `absent`."""
    rng, ctl = np.random.default_rng(1), block(2, STATE_EXPONENT=3, NEXT_EXPONENT=5)
    ctl.view(np.float64)[[layout.BIAS1, layout.BIAS2]] = 0.3, 0.2
    known = {"ctl": ctl, "n": ODD, "key": 7, "slots": ODD, "groups": 2, "room": ODD}
    known |= {"sums": np.ones(128), "pointers": np.int32([13, 400, 753]), **USUAL}
    out = {}
    for operand in registry.variants(kernel)[0].spec.operands:
        if operand.storage not in storages:
            out[operand.name] = known.get(operand.name, 0.5)
            continue
        array = (rng.standard_normal(ODD) * scale).astype(np.float32)
        array[20:25] = [np.inf, np.nan, -0.0, 65504, 1e-7]
        array = FORMATS[storages[operand.storage]].encode(array)
        out[operand.name] = None if absent and operand.optional else array
    return out


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("form", ["", "csr_"])
@pytest.mark.parametrize("kinds, name", [(kinds, name) for kinds in KINDS for name in KINDS[kinds]])
def test_updates_have_the_same_bits_on_vectors(name, kinds, form, scale):
    if form + name not in registry.names():
        pytest.skip("an update with sums takes whole weights")
    weight, gradient, state = kinds.split()
    variables = registry.variants(form + name)[0].spec.variables
    storages = dict.fromkeys(variables, state) | {"W": weight, "G": gradient}
    for absent in (False, True):
        operands = update_of(form + name, storages, scale, absent)
        with np.errstate(invalid="ignore"):
            one, vectors = (
                same_for_threads(form + name, storages, variant=variant, **operands)
                for variant in ("plain", "wide")
            )
        for key, array in one.items():
            assert array.tobytes() == vectors[key].tobytes(), key
        assert one["w"].tobytes() != operands["w"].tobytes()


def test_weight_and_momentum_are_rounded_by_other_bits_of_one_number():
    """Adds a third of fp16's spacing to each, many times."""
    n, third = 1 << 18, np.float32(2.0**-11 / 3)
    ctl = control(LR=-1.0, GRAD_FACTOR=1.0, ADAM_T=1, STEP=1, SEED=5)
    numbers = {"mu": 0.0, "wd": 0.0, "dampening": 0.0, "nesterov": 0}
    w, g = np.ones(n, np.float16), np.full(n, 0.5 + third, np.float32)
    out = call(
        "sgd", {"W": "f16", "G": "f32", "V": "f16"}, w=w, g=g, v=np.zeros(n, np.float16), ctl=ctl,
        n=n, key=3, **numbers,
    )  # fmt: skip
    # w + 0.5 has a spacing of 2^-10 and drops a sixth of it; v has 2^-11 and drops a third
    up = np.stack([out["w"] > np.float16(1.5), out["v"] > np.float16(0.5)]).astype(np.float64)
    for share, expected in zip(up.mean(1), (1 / 6, 1 / 3), strict=True):
        assert abs(share - expected) < 4 * (expected * (1 - expected) / n) ** 0.5
    assert abs(np.corrcoef(up)[0, 1]) < 4 / n**0.5
    drawn = naive_rng.hash32(naive_rng.stream(5, 3, 1, 0), np.arange(n))
    low = naive_rng.stochastic_f16(g, drawn)
    np.testing.assert_array_equal(out["v"], low)
    high = naive_rng.stochastic_f16(w.astype(np.float32) + g, drawn >> 19)
    np.testing.assert_array_equal(out["w"], high)
