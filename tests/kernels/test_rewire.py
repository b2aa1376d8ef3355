"""Rewiring a pool: which weights are dropped, how growth is shared, the pattern stays valid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.formats import BLOCKED, INT8, csr, decoded
from edgetrain.formats.csr import CAP, COLUMNS, GROWN, HEADER, KEPT, LAYER_WORDS, POOL, TABLE

from .harness import DTYPES, call, control

SHAPES = [(4, 3, 3, 3), (6, 70, 3, 3), (5, 300, 1, 1), (3, 2, 7)]


def make_pool(shapes, density, storage="f32", growth=1.5, seed=0):
    """Return (layers, state) of a pool with random nonzeros; weights are never zero."""
    rng = np.random.default_rng(seed)
    layers = []
    for k, shape in enumerate(shapes):
        size = int(np.prod(shape))
        share = max(1, int(size * density))
        layers.append(csr.Layer(f"w{k}", shape, share, min(size, int(share * growth))))
    slots = csr.slots_of(layers)
    state = {
        POOL: np.zeros(slots, np.float32 if storage in BLOCKED else DTYPES[storage]),
        COLUMNS: np.zeros(slots, np.uint8),
        TABLE: np.zeros(HEADER + LAYER_WORDS * len(layers), np.int64),
    }
    start = 0
    for k, layer in enumerate(layers):
        positions = np.sort(rng.choice(layer.size, layer.share, replace=False))
        stop = start + layer.share
        state[COLUMNS][start:stop], state[csr.pointers_name(layer.name)] = csr.encode(
            layer, positions, start
        )
        values = rng.uniform(0.01, 1.0, layer.share) * rng.choice([-1, 1], layer.share)
        state[POOL][start:stop] = values
        state[TABLE][HEADER + LAYER_WORDS * k + CAP] = layer.cap
        start = stop
    if storage in BLOCKED:
        state[POOL] = INT8.encode(state[POOL])
    return layers, state


def rewire(layers, state, *, fraction=0.0, target=1, own=0, step=0, storage="f32", threads=1):
    """Return the state after one rewiring; a "momentum" in the state moves with the weights."""
    state, ctl = dict(state), control(SEED=7, STEP=step)
    slots = csr.slots_of(layers)
    pool = {"slots": slots, "layers": len(layers)}
    storages = {"W": storage, "I": "u8"}

    def apply(name, layer, number, *, columns=True, **operands):
        pointers = csr.pointers_name(layer.name)
        if columns:
            operands["columns"] = state[COLUMNS]
        out = call(
            name,
            storages if columns else {"W": storage},
            nthreads=threads,
            w=state[POOL],
            pointers=state[pointers],
            table=state[TABLE],
            layer=number,
            **pool,
            **operands,
        )
        state.update({POOL: out["w"], TABLE: out["table"]})
        if columns:
            state[COLUMNS] = out["columns"]
            state[pointers] = out["pointers"]

    def move(name):
        if "momentum" in state:
            y, w = state["momentum"], state[POOL]
            types = {"S": storage if storage in BLOCKED else "f32", "W": storage}
            state["momentum"] = call(
                name, types, nthreads=threads, y=y, w=w, slots=slots, ctl=ctl, key=99, root=0
            )["y"]

    for number, layer in enumerate(layers):
        apply("csr_drop", layer, number, columns=False, groups=layer.groups, fraction=fraction)
    move("csr_compress")
    for number, layer in enumerate(layers):
        close = {"groups": layer.groups, "ctl": ctl, "key": number}
        apply("csr_close", layer, number, **close)
    state[TABLE] = call(
        "csr_share",
        table=state[TABLE],
        layers=len(layers),
        target=target,
        tolerance=0.1,
        factor=2.0,
        own=own,
    )["table"]
    for number, layer in reversed(list(enumerate(layers))):
        shape = {"rows": layer.rows, "channels": layer.channels, "taps": layer.taps}
        apply("csr_grow", layer, number, chunk=layer.chunk, ctl=ctl, key=number, **shape)
    move("csr_expand")
    return state


def _with_threshold(state, threshold):
    table = state[TABLE].copy()
    table.view(np.float64)[csr.THRESHOLD] = threshold
    return {**state, TABLE: table}


def _threshold(state):
    return float(state[TABLE].view(np.float64)[csr.THRESHOLD])


def _counts(layers, state):
    ends = [state[csr.pointers_name(x.name)] for x in layers]
    return [int(p[-1] - p[0]) for p in ends]


def _word(state, layers, word):
    return [int(state[TABLE][HEADER + LAYER_WORDS * k + word]) for k in range(len(layers))]


@given(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4),
    st.sampled_from([0.05, 0.3, 0.6]),
    st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    st.integers(0, 5),
)
def test_rewiring_keeps_the_pattern_valid_and_the_number_of_nonzeros(
    shapes, density, threshold, seed
):
    layers, before = make_pool(shapes, density, seed=seed)
    after = rewire(layers, _with_threshold(before, threshold), step=seed)
    assert csr.fault(layers, after) == ""
    assert sum(_counts(layers, after)) == sum(_counts(layers, before))
    for layer, kept in zip(layers, _word(after, layers, KEPT), strict=True):
        old, new = csr.dense(layer, before), csr.dense(layer, after)
        survivors = np.where(np.abs(old) < np.float32(threshold), 0, old)
        np.testing.assert_array_equal(new, survivors)  # new weights are zero
        assert kept == np.count_nonzero(survivors)


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_rewiring_is_the_same_for_threads_and_differs_by_step(storage):
    layers, state = make_pool(SHAPES, 0.3, storage)
    state = _with_threshold(state, 0.3)
    one = rewire(layers, state, storage=storage)
    three = rewire(layers, state, storage=storage, threads=3)
    other = rewire(layers, state, storage=storage, step=1)
    assert all(one[k].tobytes() == three[k].tobytes() for k in one)
    assert one[COLUMNS].tobytes() != other[COLUMNS].tobytes()


def test_growth_is_shared_by_survivors_and_overflow_goes_to_others():
    layers, state = make_pool([(8, 8, 3, 3), (8, 8, 3, 3), (8, 16, 3, 3)], 0.25)
    first = csr.pointers_name("w0")
    end = int(state[first][-1])
    state[POOL][:end] *= 0.001  # the first layer loses everything
    after = rewire(layers, _with_threshold(state, 0.005))
    kept, grown = _word(after, layers, KEPT), _word(after, layers, GROWN)
    assert kept == [0, 144, 288] and sum(grown) == 144
    # 144 new weights for survivors 0 : 144 : 288, below the caps of 216 and 432.
    assert grown == [0, 48, 96]
    capped = [csr.Layer(x.name, x.shape, x.share, x.share) for x in layers]
    tight = {**state, TABLE: state[TABLE].copy()}
    for k, layer in enumerate(capped):
        tight[TABLE][HEADER + LAYER_WORDS * k + CAP] = layer.cap
    assert _counts(capped, rewire(capped, _with_threshold(tight, 0.005))) == [144, 144, 288]


@pytest.mark.parametrize(("target", "factor"), [(5000, 2.0), (1, 0.5)])
def test_threshold_doubles_when_too_few_and_halves_when_too_many_are_dropped(target, factor):
    layers, state = make_pool(SHAPES, 0.3)
    after = rewire(layers, _with_threshold(state, 0.2), target=target)
    assert _threshold(after) == pytest.approx(0.2 * factor)


def test_threshold_stays_when_the_aim_is_met_within_a_tenth():
    layers, state = make_pool(SHAPES, 0.3)
    state = _with_threshold(state, 0.2)
    dropped = int(rewire(layers, state)[TABLE][csr.PRUNED])
    for target in (dropped, round(dropped / 1.08), round(dropped / 0.92)):
        assert _threshold(rewire(layers, state, target=target)) == 0.2


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("shapes", [SHAPES[:1], SHAPES])
def test_blocks_move_with_their_state_and_lose_at_most_two_steps(shapes, threshold):
    layers, before = make_pool(shapes, 0.3, "q8")
    slots = csr.slots_of(layers)
    before["momentum"] = INT8.encode(3 * decoded(before[POOL]))
    before = _with_threshold(before, threshold)
    after = rewire(layers, before, storage="q8")
    assert csr.fault(layers, after) == ""
    assert sum(_counts(layers, after)) == sum(_counts(layers, before))
    for layer in layers:
        old, new = csr.dense(layer, before), csr.dense(layer, after)
        stays = np.abs(old) >= np.float32(max(threshold, 1e-9))
        np.testing.assert_array_equal(new != 0, stays)
        # Two roundings, each by less than 1/64 of the largest number of a block.
        assert np.abs(np.where(stays, old, 0) - new).max() < 2 / 64
        moved = csr.dense(layer, after, "momentum")
        assert np.abs(np.where(stays, 3 * old, 0) - moved).max() < 3 * 3 / 64
    again = rewire(layers, before, storage="q8", threads=3)
    assert all(after[k].tobytes() == again[k].tobytes() for k in after)
    assert len(after[POOL]) * 64 == slots


@pytest.mark.parametrize("root", [0, 1])
def test_roots_in_blocks_that_are_not_zero_stay_so_and_other_state_may_be_rounded_to_it(root):
    roots = np.repeat(np.float32([1 / 64, 4]), 64)
    kept = np.tile(np.float32([1, 0]), 64)  # every second weight is dropped
    moved = {"slots": 128, "ctl": control(SEED=7, STEP=3), "key": 99, "root": root}
    types = {"S": "q8", "W": "f32"}
    out = call("csr_compress", types, y=INT8.encode(roots), w=kept, **moved)["y"]
    front = decoded(out)[:64]
    grown = np.roll(np.repeat(np.float32([1, 0]), 64), 32)
    back = decoded(call("csr_expand", types, y=out, w=grown, **moved)["y"])
    assert not back[grown == 0].any()
    for found in (front, back[grown != 0]):
        assert (found[32:] == 4).all()
        assert found[:32].all() == bool(root)
        assert found[:32].max() <= 1 / 16


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_set_drops_the_smallest_of_each_layer_and_grows_as_many_there(storage):
    layers, before = make_pool(SHAPES, 0.3, storage)
    after = rewire(layers, before, fraction=0.25, own=1, storage=storage)
    assert _counts(layers, after) == _counts(layers, before)
    for layer in layers:
        old, new = (np.abs(csr.dense(layer, s).reshape(-1)) for s in (before, after))
        count = int(np.float32(layer.share) * np.float32(0.25))
        dropped = np.flatnonzero((old > 0) & (new == 0))
        assert len(dropped) == count
        assert old[dropped].max(initial=0) <= old[new > 0].min()


@given(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4),
    st.sampled_from([(0.0, 0), (0.1, 0), (0.5, 0), (2.0, 0), (0.0, 0.25), (0.0, 0.9)]),
    st.sampled_from(["f32", "f16"]),
    st.integers(0, 5),
)
def test_state_moves_with_the_weights_that_stay_and_is_zero_where_new_ones_grow(
    shapes, how, storage, seed
):
    threshold, fraction = how
    layers, before = make_pool(shapes, 0.3, storage, seed=seed)
    before["momentum"] = np.where(before[POOL] != 0, 1 + 3 * before[POOL].astype(np.float32), 0)
    after = rewire(
        layers, _with_threshold(before, threshold), fraction=fraction, own=int(fraction > 0),
        storage=storage, step=seed,
    )  # fmt: skip
    expected = np.where(after[POOL] != 0, 1 + 3 * after[POOL].astype(np.float32), 0)
    np.testing.assert_array_equal(after["momentum"], expected)


def test_new_nonzeros_are_spread_evenly_over_the_empty_positions():
    layers, state = make_pool([(8, 8, 3, 3)], 0.25)
    state = _with_threshold(state, 10.0)  # all are dropped; 144 of 576 are regrown
    counts = np.zeros(576)
    for step in range(200):
        after = rewire(layers, state, step=step)
        pointers = after[csr.pointers_name("w0")]
        counts[csr.positions_of(layers[0], after[COLUMNS], pointers)] += 1
    # Binomial(200, 1/4) per position: standard deviation 6.1; all 576 positions within 4.5 sigma.
    assert np.abs(counts - 50).max() < 4.5 * 6.13


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_a_weight_at_the_threshold_stays(storage):
    layers, state = make_pool([(4, 3, 3, 3)], 0.3, storage)
    state[POOL][:4] = [0.25, -0.25, 0.125, 0.5]  # exact in both storages
    after = rewire(layers, _with_threshold(state, 0.25), storage=storage)
    positions = csr.positions_of(layers[0], state[COLUMNS], state[csr.pointers_name("w0")])
    found = csr.dense(layers[0], after).reshape(-1)[positions[:4]]
    assert found.tolist() == [0.25, -0.25, 0.0, 0.5]


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_of_equal_weights_the_first_are_dropped_and_no_more_than_the_fraction(storage):
    layers, state = make_pool([(4, 3, 3, 3)], 0.3, storage)
    count = layers[0].share
    state[POOL][:count] = 0.5
    state[POOL][3] = 0.25
    after = rewire(layers, state, fraction=0.25, own=1, storage=storage)
    positions = csr.positions_of(layers[0], state[COLUMNS], state[csr.pointers_name("w0")])
    kept = csr.dense(layers[0], after).reshape(-1)[positions] != 0
    assert count // 4 == 8 and kept.tolist() == [False] * 8 + [True] * (count - 8)


@pytest.mark.parametrize(("share", "factor"), [(1.15, 0.5), (0.85, 2.0)])
def test_threshold_moves_when_the_aim_is_missed_by_more_than_a_tenth(share, factor):
    layers, state = make_pool(SHAPES, 0.3)
    state = _with_threshold(state, 0.2)
    dropped = int(rewire(layers, state)[TABLE][csr.PRUNED])
    found = _threshold(rewire(layers, state, target=round(dropped / share)))
    assert found == pytest.approx(0.2 * factor)


@pytest.mark.parametrize(("target", "factor"), [(99, 0.5), (100, 1.0), (300, 1.0), (301, 2.0)])
def test_threshold_stays_at_the_very_edge_of_the_tolerance(target, factor):
    """150 dropped and a tolerance of a half: 1.5 * 100 and 0.5 * 300 are exact in float32."""
    table = np.zeros(HEADER + LAYER_WORDS, np.int64)
    table[csr.PRUNED], table[HEADER + CAP], table[HEADER + KEPT] = 150, 1000, 500
    table.view(np.float64)[csr.THRESHOLD] = 0.25
    out = call("csr_share", table=table, layers=1, target=target, tolerance=0.5, factor=2.0, own=0)
    assert _threshold({TABLE: out["table"]}) == 0.25 * factor
