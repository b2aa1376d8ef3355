"""LSTM, GRU and RNN compared with complex128: forward, backward, weight gradients."""

from dataclasses import dataclass

import numpy as np
import pytest

from . import naive_recurrent as naive
from .harness import DTYPES, control, same_for_threads

SLOTS = {"lstm": 4, "gru": 4, "rnn": 1}


@dataclass(frozen=True)
class Run:
    """A cell, its sizes, and its optional operands."""

    cell: str
    t: int
    b: int
    n: int
    back: int = 0
    lens: tuple[int, ...] | None = None
    states: bool = True
    bias: bool = True
    peep: bool = False
    after: int = 0
    relu: int = 0

    @property
    def d(self) -> int:
        return 2 if self.back == 2 else 1

    @property
    def kind(self) -> int:
        return 2 - self.after if self.cell == "gru" else 0

    @property
    def sizes(self) -> dict[str, int]:
        return {"t": self.t, "b": self.b, "d": self.d, "n": self.n, "back": self.back}

    @property
    def extra(self) -> dict[str, int]:
        return {"lstm": {}, "gru": {"after": self.after}, "rnn": {"relu": self.relu}}[self.cell]


RUNS = [
    Run("lstm", 3, 2, 5),
    Run("lstm", 1, 1, 1, states=False, bias=False),
    Run("lstm", 4, 5, 3, back=1, peep=True),
    Run("lstm", 3, 4, 4, back=2, lens=(3, 0, 1, 2), peep=True),
    Run("lstm", 2, 18, 4, states=False),
    Run("lstm", 2, 1, 66, back=1),
    Run("gru", 3, 2, 5),
    Run("gru", 3, 2, 5, after=1, bias=False),
    Run("gru", 3, 4, 4, back=2, lens=(3, 0, 1, 2)),
    Run("gru", 3, 4, 4, back=2, lens=(2, 3, 0, 1), after=1, states=False),
    Run("gru", 2, 2, 66),
    Run("gru", 2, 2, 66, back=1, after=1),
    Run("rnn", 3, 2, 5, states=False),
    Run("rnn", 3, 4, 4, back=2, lens=(3, 0, 1, 2), relu=1),
    Run("rnn", 2, 17, 17, back=1),
    Run("rnn", 2, 1, 66),
]
EACH = pytest.mark.parametrize("run", RUNS, ids=str)
STORAGES = pytest.mark.parametrize("storage", ["f32", "f16"])


def _operands(rng, run: Run, dtype) -> dict[str, np.ndarray]:
    """Return every operand of the naive twin; absent ones are zero."""
    t, b, d, n = run.t, run.b, run.d, run.n
    gates = naive.GATES[run.cell]

    def some(*shape, present=True):
        return (rng.normal(size=shape) * (0.5 if present else 0)).astype(dtype)

    return {
        "gates": some(d, t, b, SLOTS[run.cell] * n), "r": some(d, gates * n, n) / dtype(2),
        "bias": some(d, 2 * gates * n, present=run.bias),
        "peep": some(d, 3 * n, present=run.peep), "h0": some(d, b, n, present=run.states),
        "c0": some(d, b, n, present=run.states and run.cell == "lstm"),
    }  # fmt: skip


def _lens(run: Run) -> np.ndarray:
    return np.array(run.lens or [run.t] * run.b, np.int32)


def _options(run: Run) -> dict:
    options = {"cell": run.cell, "lens": _lens(run), "back": run.back}
    return options | {"after": run.after, "relu": run.relu}


def _given(run: Run, operands) -> dict:
    """Return the optional operands for the kernel."""
    lens = _lens(run) if run.lens else None
    given = {"lens": lens, "h0": operands["h0"] if run.states else None}
    if run.cell == "lstm":
        given["c0"] = operands["c0"] if run.states else None
        given["peep"] = operands["peep"] if run.peep else None
    return given


def _ran(run: Run, operands, storage) -> dict[str, np.ndarray]:
    kind = {v: storage for v in {"lstm": "WVOPQS", "gru": "WVPS", "rnn": "WVPS"}[run.cell]}
    t, b, d, n = run.t, run.b, run.d, run.n
    made = {"y": (t, d, b, n), "yh": (d, b, n)}
    if run.cell == "lstm":
        made |= {"cells": (d, t, b, n), "yc": (d, b, n)}
    bias = operands["bias"] if run.bias else None
    return same_for_threads(
        run.cell, kind, r=operands["r"], bias=bias, gates=operands["gates"], **made,
        **_given(run, operands), **run.sizes, **run.extra,
    )  # fmt: skip


def _slopes(rng, run: Run, dtype) -> list[np.ndarray]:
    shape = (run.d, run.b, run.n)
    parts = [rng.normal(size=s).astype(dtype) for s in ((run.t, *shape), shape, shape)]
    if run.cell != "lstm":
        parts[2] = parts[2] * dtype(0)
    return parts


def _backward(run: Run, operands, forward, slopes, storage) -> dict[str, np.ndarray]:
    given = _given(run, operands)
    kind = {v: storage for v in {"lstm": "WOQS", "gru": "WPS", "rnn": "WS"}[run.cell]}
    args: dict = {"r": operands["r"], "lens": given["lens"], "dy": slopes[0], "dyh": slopes[1]}
    args["dh0"] = (run.d, run.b, run.n)
    if run.cell == "lstm":
        args |= {"peep": given["peep"], "c0": given["c0"], "cells": forward["cells"]}
        args |= {"dyc": slopes[2], "dc0": (run.d, run.b, run.n)}
    else:
        args["y"] = forward["y"]
    if run.cell == "gru":
        args["h0"] = given["h0"]
    if run.cell != "rnn":
        args["gates"] = forward["gates"]
    shape = operands["gates"].shape
    found = same_for_threads(
        f"{run.cell}_bwd", kind, dgates=shape, **args, **run.sizes, **run.extra
    )
    if run.cell != "rnn":  # in place
        gates = args.pop("gates")
        inside = same_for_threads(
            f"{run.cell}_bwd", kind, gates=gates, dgates="gates", **args, **run.sizes, **run.extra
        )
        assert inside["dgates"].tobytes() == found["dgates"].tobytes()
    return found


def _close(found, expected, storage):
    # fp16: states, gates and their gradients are stored with 11 bits at every step.
    limit = 2e-2 if storage == "f16" else 1e-5
    size = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=limit, atol=limit * size)


@STORAGES
@EACH
def test_recurrence_and_way_back_equal_naive(rng, run, storage):
    dtype = DTYPES[storage]
    operands = _operands(rng, run, dtype)
    found = _ran(run, operands, storage)
    y, h, c = naive.forward(**operands, **_options(run))
    for name, expected in (("y", y), ("yh", h), ("yc", c)):
        if name in found:
            _close(found[name], expected.real, storage)
    slopes = _slopes(rng, run, dtype)
    back = _backward(run, operands, found, slopes, storage)
    width = naive.GATES[run.cell] * run.n
    checked = (operands, slopes, storage, _options(run))
    _check_gradient("gates", back["dgates"], *checked, width)
    for name in ("h0", "c0"):
        if f"d{name}" in back:
            _check_gradient(name, back[f"d{name}"], *checked)


def _check_gradient(name, found, operands, slopes, storage, options, width=None):
    """Check every element of a small gradient (of its first columns), or a large one along
    random directions."""
    found = found.astype(np.float64)
    if found.size <= 128:
        wanted = naive.gradient(name, operands, slopes, **options)
        _close(found[..., :width], wanted[..., :width], storage)
        return
    rng = np.random.default_rng(5)
    for _ in range(4):
        direction = rng.normal(size=found.shape)
        direction[..., slice(width, None) if width else slice(0, 0)] = 0
        wanted = naive.slope(name, direction, operands, slopes, **options)
        _close(np.array(np.sum(found * direction)), np.array(wanted), storage)


def _common(run: Run, back, acc, sr=0) -> dict:
    sizes = {"slots": SLOTS[run.cell], "gates": naive.GATES[run.cell], "kind": run.kind}
    ctl = control(SEED=1) if sr else None
    rest = {"acc": acc, "sr": sr, "key": 7, "ctl": ctl}
    return {"dgates": back["dgates"]} | run.sizes | sizes | rest


@STORAGES
@EACH
def test_gradients_of_recurrent_weights_equal_naive(rng, run, storage):
    dtype, options = DTYPES[storage], _options(run)
    operands = _operands(rng, run, dtype)
    forward = _ran(run, operands, storage)
    slopes = _slopes(rng, run, dtype)
    back = _backward(run, operands, forward, slopes, storage)
    given = _given(run, operands)
    old = rng.normal(size=operands["r"].shape).astype(dtype)
    found = [
        same_for_threads(
            "recurrent_dr", dict.fromkeys("SPG", storage), y=forward["y"], lens=given["lens"],
            h0=given["h0"], out=old, **_common(run, back, acc),
        )["out"].astype(np.float64)
        for acc in (0, 1)
    ]  # fmt: skip
    _close(found[1], found[0] + old, storage)
    checked = (operands, slopes, storage, options)
    _check_gradient("r", found[0], *checked)
    shape = operands["bias"].shape
    total = same_for_threads(
        "recurrent_db", {"S": storage, "G": "f32"}, out=np.zeros(shape, np.float32),
        **_common(run, back, 0),
    )["out"]  # fmt: skip
    _check_gradient("bias", total, *checked)
    if run.peep:
        args = _common(run, back, 1)
        for key in ("slots", "gates", "kind"):
            del args[key]
        total = same_for_threads(
            "recurrent_dp", {"S": storage, "Q": storage, "G": "f32"}, cells=forward["cells"],
            lens=given["lens"], c0=given["c0"],
            out=np.zeros(operands["peep"].shape, np.float32), **args,
        )["out"]  # fmt: skip
        _check_gradient("peep", total, *checked)


def test_recurrent_weight_gradient_rounds_stochastically_into_an_accumulator(rng):
    run = RUNS[0]
    operands = _operands(rng, run, np.float16)
    forward = _ran(run, operands, "f16")
    back = _backward(run, operands, forward, _slopes(rng, run, np.float16), "f16")
    old = rng.normal(size=operands["r"].shape).astype(np.float16)
    outs = [
        same_for_threads(
            "recurrent_dr", dict.fromkeys("SPG", "f16"), y=forward["y"], h0=operands["h0"],
            out=old, **_common(run, back, 1, sr),
        )["out"].astype(np.float64)
        for sr in (0, 1)
    ]  # fmt: skip
    assert np.any(outs[0] != outs[1])
    # At most one fp16 step apart.
    np.testing.assert_allclose(outs[1], outs[0], rtol=2.0**-10, atol=1e-6)


def test_recurrence_passes_nan_on(rng):
    run = RUNS[0]
    operands = _operands(rng, run, np.float32)
    operands["gates"][0, 1, 0, 0] = np.nan
    y = _ran(run, operands, "f32")["y"]
    assert (
        not np.isnan(y[0]).any() and np.isnan(y[2, 0, 0]).all() and not np.isnan(y[:, :, 1]).any()
    )
