"""Blockwise attention compared with a naive twin that computes the whole matrix."""

from dataclasses import dataclass

import numpy as np
import pytest

from edgetrain.kernels import registry

from . import naive_attention as naive
from . import naive_rng
from .harness import DTYPES, call, control, same_for_threads

INF, MIN = np.inf, float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Case:
    """Sizes and masks of a case; `mask` and `bias` are shapes that broadcast to [z1, z2, m, n]."""

    z1: int
    z2: int
    group: int
    m: int
    n: int
    d: int
    e: int
    band: tuple = (0, 0, 0, 0, 0.0)
    mask: tuple | None = None
    how: int = 0
    keep: int = 1
    fill: float = -INF
    bias: tuple | None = None
    p: float = 0.0
    lost: bool = False  # some rows have no visible key
    guard: int = 0
    turned: bool = False  # memory layout [z, rows, h, width]


CASES = {
    "small": Case(1, 1, 1, 3, 2, 4, 5),
    "one": Case(1, 1, 1, 1, 1, 1, 1),
    "long": Case(2, 2, 1, 130, 200, 16, 16),
    "odd": Case(1, 3, 3, 70, 65, 7, 9, turned=True),
    "causal": Case(1, 2, 1, 150, 150, 8, 8, (1, 0, 150, 0, MIN)),
    "causal replaced": Case(2, 1, 1, 140, 140, 8, 20, (2, 0, 140, 0, -INF)),
    "causal past": Case(1, 1, 1, 10, 150, 8, 8, (1, 0, 10, 140, -1e9)),
    "window": Case(1, 1, 1, 200, 200, 8, 8, (1, 0, 40, 3, -INF)),
    "groups": Case(2, 6, 3, 80, 80, 16, 32, (1, 0, 80, 0, -INF), turned=True),
    "padding": Case(2, 2, 1, 70, 130, 16, 16, mask=(2, 1, 1, 130), how=2),
    "padding added": Case(2, 2, 1, 70, 130, 16, 16, mask=(2, 1, 1, 130), how=1, keep=0),
    "bias": Case(2, 2, 1, 20, 130, 16, 16, bias=(1, 2, 20, 130)),
    "bias and mask": Case(
        2, 2, 2, 70, 70, 16, 16, (1, 0, 70, 0, MIN), (2, 1, 70, 70), 2, 1, MIN, (2, 70, 70)
    ),
    "lost to padding": Case(
        2, 2, 1, 130, 130, 8, 8, (1, 0, 130, 0, MIN), (2, 1, 1, 130), 2, 1, MIN, lost=True
    ),
    "lost, band first": Case(
        2, 1, 1, 130, 130, 8, 8, (2, 1, 130, 0, MIN), (2, 1, 1, 130), 2, 1, MIN, lost=True
    ),
    "lost to nothing": Case(
        1, 1, 1, 70, 130, 8, 8, (2, 0, 70, 0, -INF), (1, 1, 1, 130), 2, 1, -INF, lost=True
    ),
    "guarded": Case(
        2, 1, 1, 70, 130, 8, 8, (1, 0, 70, 0, -INF), (2, 1, 1, 130), 1, 1, -INF, lost=True, guard=1
    ),
    "lost, what stands": Case(
        2, 1, 1, 130, 130, 8, 8, (3, 0, 130, 0, MIN), (2, 1, 1, 130), 3, 1, MIN, lost=True
    ),
    "dropout": Case(2, 2, 1, 70, 130, 8, 8, p=0.3),
}


def lie(array, turned):
    """Return the array in memory order and its three strides: [z, h, rows, width], or
    [z, rows, h, width] if `turned`."""
    z, h, r, w = array.shape
    if turned:
        return np.ascontiguousarray(array.transpose(0, 2, 1, 3)), (r * h * w, w, h * w)
    return np.ascontiguousarray(array), (h * r * w, r * w, w)


def back(array, shape, turned):
    z, h, r, w = shape
    return array.reshape(z, r, h, w).transpose(0, 2, 1, 3) if turned else array.reshape(shape)


def strides(shape, rank=4):
    """Return strides of a broadcast operand, 0 for axes of size 1."""
    full = (1,) * (rank - len(shape)) + tuple(shape)
    steps = np.cumprod((1, *full[:0:-1]))[::-1]
    return [int(s) if d > 1 else 0 for s, d in zip(steps, full, strict=True)]


class Made:
    """Operands of a case and the results of its naive twin."""

    def __init__(self, case, rng, dtype=np.float32):
        self.case, self.scale = case, 0.4
        self.shapes = {
            "q": (case.z1, case.z2, case.m, case.d),
            "k": (case.z1, case.z2 // case.group, case.n, case.d),
            "v": (case.z1, case.z2 // case.group, case.n, case.e),
            "y": (case.z1, case.z2, case.m, case.e),
        }
        self.of = {n: rng.normal(size=s).astype(dtype) for n, s in self.shapes.items()}
        self.mask = self.bias = None
        if case.mask:
            self.mask = (rng.random(case.mask) < 0.6).astype(np.uint8)
            self.mask[..., 0] = case.keep
            if case.lost:
                self.mask[0] = self.mask[0] * 0 + 1 - case.keep
                self.mask[0, ..., 40:] = case.keep
        if case.bias:
            self.bias = rng.normal(size=case.bias).astype(dtype)
        self.ctl = control(SEED=3, STEP=2)
        self.kept = np.ones((case.z1, case.z2, case.m, case.n))
        if case.p:
            drawn = naive_rng.hash32(naive_rng.stream(3, 77, 2, 0), np.arange(self.kept.size))
            dropped = (drawn >> 8) * 2.0**-24 < np.float32(case.p)
            self.kept = np.where(dropped, 0, 1 / (1 - case.p)).reshape(self.kept.shape)

    def expanded(self, name):
        return self.of[name].astype(np.float64).repeat(self.case.group, 1)

    def twin(self, dy):
        case, q = self.case, self.of["q"].astype(np.float64)
        k, v = self.expanded("k"), self.expanded("v")
        masks = (self.bias, self.mask, case.band, self.scale, bool(case.keep), case.how, case.fill)
        w, free = naive.weights(q, k, *masks)
        w = np.nan_to_num(w) if case.guard else w
        y = (w * self.kept) @ v
        dq, dk, dv = naive.gradients(q, k, v, dy, w, free, self.scale, self.kept)
        heads = (case.z1, case.z2 // case.group, case.group, case.n)
        dk, dv = (a.reshape(*heads, -1).sum(2) for a in (dk, dv))
        return y, dq, dk, dv

    def scalars(self):
        case, out = self.case, {}
        kind, first, before, after, low = case.band
        for name, shape in self.shapes.items():
            steps = lie(np.zeros(shape), case.turned)[1]
            out |= {f"{name}{x}": s for x, s in zip("zhr", steps, strict=True)}
            out[f"n{name}"] = int(np.prod(shape))
        for letter, name, array in (("m", "mask", self.mask), ("b", "bias", self.bias)):
            steps = [0] * 4 if array is None else strides(array.shape)
            out |= {f"{letter}{x}": s for x, s in zip("zhrc", steps, strict=True)}
            out[f"n{name}"] = 1 if array is None else array.size
        sizes = {n: getattr(case, n) for n in ("z1", "z2", "group", "m", "n", "d", "e")}
        masks = {"keep": case.keep, "how": case.how, "fill": case.fill, "p": case.p, "key": 77}
        masks |= {"band": kind, "first": first, "before": before, "after": after, "low": low}
        return out | sizes | masks | {"scale": self.scale, "guard": case.guard}

    def operands(self):
        found = {n: lie(self.of[n], self.case.turned)[0] for n in "qkv"}
        return found | {"mask": self.mask, "bias": self.bias, "ctl": self.ctl} | self.scalars()


def run(made, storage="f32", runner=same_for_threads, **how):
    """Run the kernels; return (y, dq, dk, dv) and dy."""
    case, scalars = made.case, made.scalars()
    storages = dict.fromkeys("QKVB", storage)
    sizes = {n: (scalars[f"n{n}"],) for n in "qkvy"}
    numbers = (case.z1 * case.z2 * case.m,)
    out = runner(
        "attention", storages | {"Y": storage}, **how,
        **made.operands(), y=sizes["y"], stat=(2 * numbers[0],),
    )  # fmt: skip
    dy = np.random.default_rng(5).normal(size=made.shapes["y"]).astype(DTYPES[storage])
    lying = {"dy": lie(dy, case.turned)[0]}
    small = {n: scalars[n] for n in ("z1", "z2", "m", "e", "yz", "yh", "yr", "ny")}
    delta = runner(
        "attention_delta", {"Y": storage, "G": storage}, y=out["y"], delta=numbers, **lying, **small
    )["delta"]
    rest = made.operands() | lying | {"stat": out["stat"], "delta": delta}
    storages |= {"G": storage, "D": storage}
    dq = runner("attention_dq", storages, **how, **rest, dq=sizes["q"])["dq"]
    both = runner(
        "attention_dkv", storages | {"E": storage}, **how, **rest, dk=sizes["k"], dv=sizes["v"]
    )
    found = zip("yqkv", (out["y"], dq, both["dk"], both["dv"]), strict=True)
    return [back(a, made.shapes[n], case.turned) for n, a in found], dy


@pytest.mark.parametrize("name", CASES)
def test_attention_and_gradients_equal_naive(rng, name):
    made = Made(CASES[name], rng)
    found, dy = run(made)
    for which, one, expected in zip("yqkv", found, made.twin(dy.astype(np.float64)), strict=True):
        # sums of up to 200 products; exp is within 1 ulp
        np.testing.assert_allclose(one, expected, 2e-5, 2e-5, err_msg=which)


@pytest.mark.parametrize("name", ["long", "odd", "groups", "bias and mask"])
def test_attention_of_halves(rng, name):
    made = Made(CASES[name], rng, np.float16)
    found, dy = run(made, "f16")
    for which, one, expected in zip("yqkv", found, made.twin(dy.astype(np.float64)), strict=True):
        size = np.abs(expected).max()
        np.testing.assert_allclose(one, expected, 0, 4e-3 * size, err_msg=which)


@pytest.mark.parametrize("name", ["odd", "groups"])
def test_attention_without_vectors_has_the_same_bits(rng, name):
    made = Made(CASES[name], rng)
    (fast, _), (plain, _) = run(made, runner=call), run(made, runner=_plain)
    for one, other in zip(fast, plain, strict=True):
        assert one.tobytes() == other.tobytes()


def _plain(name, storages, **operands):
    assert registry.variants(name)[-1].variant == "plain"
    return call(name, storages, variant="plain", **operands)


@pytest.mark.parametrize("wanted", ["dk", "dv"])
def test_attention_gives_the_gradient_that_is_wanted_alone(rng, wanted):
    made, asked = Made(CASES["groups"], rng), {}

    def alone(name, storages, **operands):
        if name == "attention_dkv":
            asked.update(storages=storages, operands=operands)
        return call(name, storages, **operands)

    run(made, runner=alone)
    whole = call("attention_dkv", asked["storages"], **asked["operands"])
    other = ({"dk", "dv"} - {wanted}).pop()
    part = {name: a for name, a in asked["operands"].items() if name != other}
    found = call("attention_dkv", asked["storages"], **part)
    assert found.keys() == {wanted}
    assert found[wanted].tobytes() == whole[wanted].tobytes()


def test_a_query_without_a_key_is_no_number(rng):
    made = Made(CASES["padding"], rng)
    made.mask[1] = 0
    (y, dq, dk, dv), _ = run(made)
    for array in (y, dv):
        assert np.isfinite(array[0]).all() and np.isnan(array[1]).all()
    for array in (dq, dk):  # a replaced score has no gradient
        assert np.isfinite(array[0]).all() and not array[1].any()
