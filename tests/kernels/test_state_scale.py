"""fp16 optimizer state scaled by a power of two: how the exponent adapts, error of updates."""

import numpy as np
import pytest

from edgetrain.kernels import control as layout

from .harness import call, control

N = 200
RATES = {
    "sgd": {"mu": 0.9, "wd": 0.0, "dampening": 0.0, "nesterov": 0},
    "adam": {"c1": 0.1, "b2": 0.999, "c2": 0.001, "eps": 1e-30, "wd": 0.0, "decoupled": 0},
    "lion": {"b1": 0.9, "c1": 0.1, "b2": 0.99, "c2": 0.01, "wd": 0.0},
    "rmsprop": {"alpha": 0.99, "c": 0.01, "eps": 1e-30, "wd": 0.0, "mu": 0.9},
    "adagrad": {"decay": 0.0, "eps": 1e-30, "wd": 0.0},
    "adafactor_vector": {},
}
STATES = {
    "sgd": "v", "adam": "mv", "lion": "m", "rmsprop": ("v", "m", "v_mean"), "adagrad": "v",
}  # fmt: skip
STEPS = 40


@pytest.mark.parametrize(
    ("peaks", "moved"),
    [
        ((0, 0, 0, 0, 0), 0),
        ((1, 0, 0, 0, 0), 8),
        ((1, 1, 0, 0, 0), 1),
        ((1, 1, 1, 0, 0), 0),
        ((1, 1, 1, 1, 0), -1),
        ((1, 1, 1, 1, 1), -8),
    ],
)
@pytest.mark.parametrize("skip", [0, 1])
def test_the_exponent_follows_the_largest_number(peaks, moved, skip) -> None:
    ctl = control(STATE_EXPONENT=3, NEXT_EXPONENT=5, SKIP=skip)
    ctl[layout.STATE_PEAKS :].view(np.uint8)[:5] = peaks
    found = call("state_end", {}, ctl=ctl)["ctl"]
    if skip or not peaks[0]:
        np.testing.assert_array_equal(found, ctl)
        return
    assert (found[layout.STATE_EXPONENT], found[layout.NEXT_EXPONENT]) == (5, 5 + moved)
    assert found[layout.STATE_PEAKS] == 0


def test_the_first_update_stores_with_the_loss_scale() -> None:
    ctl = control(LOSS_SCALE=4096.0, ADAM_T=1)
    assert call("state_begin", {}, ctl=ctl)["ctl"][layout.NEXT_EXPONENT] == 12
    for other in ({"ADAM_T": 2}, {"ADAM_T": 1, "SKIP": 1}):
        ctl = control(LOSS_SCALE=4096.0, NEXT_EXPONENT=30, **other)
        np.testing.assert_array_equal(call("state_begin", {}, ctl=ctl)["ctl"], ctl)


def _weights(name: str, kind: str, size: float) -> np.ndarray:
    """Return the weights after some steps on gradients of this size; state is stored as `kind`."""
    draw = np.random.default_rng(1)
    names = [*STATES[name]]
    state = {key: np.zeros(N, np.float16 if kind == "f16" else np.float32) for key in names}
    letters = {"v": "V", "m": "M", "v_mean": "A"}
    kinds = {"W": "f32", "G": "f32"} | {letters[key]: kind for key in names}
    w, ctl = np.zeros(N, np.float32), control(LR=0.01, GRAD_FACTOR=1.0, SEED=5, LOSS_SCALE=4096.0)
    for step in range(1, STEPS + 1):
        g = (draw.standard_normal(N) * size + size).astype(np.float32)
        reals = ctl.view(np.float64)
        ctl[layout.ADAM_T] = ctl[layout.STEP] = step
        reals[layout.BIAS1], reals[layout.BIAS2] = 1 - 0.9**step, 1 - 0.999**step
        ctl = call("state_begin", {}, ctl=ctl)["ctl"]
        out = call(name, kinds, w=w, g=g, ctl=ctl, n=N, key=3, **state, **RATES[name])
        w, ctl, state = out["w"], out["ctl"], {key: out[key] for key in names}
        ctl = call("state_end", {}, ctl=ctl)["ctl"]
    assert all(np.isfinite(array).all() for array in state.values())
    if kind == "f16":
        assert abs(ctl[layout.STATE_EXPONENT] - ctl[layout.NEXT_EXPONENT]) <= 1
    return w


@pytest.mark.parametrize("size", [1e-9, 1e-5, 1.0])
@pytest.mark.parametrize("name", STATES)
def test_state_in_fp16_takes_gradients_of_any_size(name, size) -> None:
    exact, found = _weights(name, "f32", size), _weights(name, "f16", size)
    difference = np.abs(found - exact).mean() / np.abs(exact).mean()
    assert difference < 0.02  # with gradients of 1e-9 the exponent needs two steps to adapt
