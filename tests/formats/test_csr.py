"""The pool's format: chunks, encoding and decoding, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.formats import csr
from edgetrain.formats.csr import CAP, COLUMNS, HEADER, LAYER_WORDS, POOL, TABLE, Layer

SHAPES = [(4, 3, 3, 3), (6, 70, 3, 3), (5, 300, 1, 1), (3, 2, 7), (2, 600), (2, 3, 1, 300)]


def pool_of(masks: list[np.ndarray]) -> tuple[list[Layer], dict[str, np.ndarray]]:
    """Layers and state of a pool with nonzeros where `masks` are true; values count up from 1."""
    layers = [
        Layer(f"w{k}", mask.shape, int(mask.sum()), min(mask.size, int(mask.sum() * 1.5)))
        for k, mask in enumerate(masks)
    ]
    slots, start = csr.slots_of(layers), 0
    dtype = {"u8": np.uint8, "u16": np.uint16}[csr.column_dtype(layers)]
    state = {POOL: np.zeros(slots, np.float32), COLUMNS: np.zeros(slots, dtype)}
    state[TABLE] = np.zeros(HEADER + LAYER_WORDS * len(layers), np.int64)
    for k, (layer, mask) in enumerate(zip(layers, masks, strict=True)):
        positions, stop = np.flatnonzero(mask), start + layer.share
        columns, pointers = csr.encode(layer, positions, start)
        state[COLUMNS][start:stop], state[csr.pointers_name(layer.name)] = columns, pointers
        state[POOL][start:stop] = np.arange(start, stop) + 1
        state[TABLE][HEADER + LAYER_WORDS * k + CAP] = layer.cap
        start = stop
    return layers, state


def _masks(shapes, density=0.3, seed=0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    masks = [rng.random(shape) < density for shape in shapes]
    for mask in masks:
        mask.reshape(-1)[0] = True  # a layer has at least one
    return masks


@given(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4), st.floats(0, 1))
def test_dense_gives_back_every_layer_of_the_pool(shapes, density):
    masks = _masks(shapes, density)
    layers, state = pool_of(masks)
    assert csr.fault(layers, state) == ""
    for layer, mask in zip(layers, masks, strict=True):
        found = csr.dense(layer, state)
        first = int(state[csr.pointers_name(layer.name)][0])
        assert (found[mask] == first + 1 + np.arange(layer.share)).all()
        assert not found[~mask].any()


def test_chunks_fill_8_bits_and_are_even():
    facts = {s: (Layer("w", s, 1, 1).chunk, Layer("w", s, 1, 1).chunks) for s in SHAPES}
    assert facts == {
        (4, 3, 3, 3): (3, 1),
        (6, 70, 3, 3): (24, 3),
        (5, 300, 1, 1): (150, 2),
        (3, 2, 7): (2, 1),
        (2, 600): (200, 3),
        (2, 3, 1, 300): (3, 1),
    }
    assert all(
        Layer("w", s, 1, 1).chunk * Layer("w", s, 1, 1).taps <= 256
        for s in SHAPES
        if s != (2, 3, 1, 300)
    )


def test_columns_take_16_bits_only_where_a_channel_has_more_than_256_elements():
    small, long = (Layer("w", s, 1, 1) for s in [(4, 3, 3, 3), (2, 3, 1, 300)])
    assert csr.column_dtype([small]) == "u8" and csr.column_dtype([small, long]) == "u16"


def test_layers_survive_a_recipe():
    layers, _ = pool_of(_masks(SHAPES))
    recipe = {"sparse_layers": [layer.to_json() for layer in layers]}
    assert csr.layers_of(recipe) == tuple(layers)
    assert csr.layers_of({}) == ()


def _spoil_pointer(state):
    state["w1.pointers"][3] = 10**6


def _spoil_order(state):
    state["w1.pointers"][3] = state["w1.pointers"][2] - 1


def _spoil_start(state):
    state["w0.pointers"][0] = 1


def _spoil_column(state):
    state[COLUMNS][int(state["w0.pointers"][-1]) - 1] = 200


def _spoil_duplicate(state):
    first = int(np.flatnonzero(np.diff(state["w1.pointers"]) > 1)[0])
    at = int(state["w1.pointers"][first])
    state[COLUMNS][at + 1] = state[COLUMNS][at]


def _spoil_cap(state):
    state[TABLE][HEADER + CAP] += 1


def _spoil_size(state):
    state["w1.pointers"] = state["w1.pointers"][:-1]


def _lose(state):
    del state[COLUMNS]


def test_fault_knows_the_last_column_slot_and_nonzero_that_a_layer_may_have():
    """Each case is one beyond the limit, with everything else valid."""
    (layer,), state = pool_of(_masks([(4, 3, 3, 3)]))
    state[COLUMNS][int(state["w0.pointers"][-1]) - 1] = layer.widths()[-1]
    assert "do not rise within the kernel" in csr.fault([layer], state)

    mask = np.zeros((4, 3, 3, 3), bool)
    mask.reshape(-1)[:60] = True
    (layer,), state = pool_of([mask])
    assert csr.slots_of([layer]) == 64 and layer.cap == 90
    state["w0.pointers"][-1] = 65
    assert "pointers of 'w0'" in csr.fault([layer], state)

    tight = Layer("w0", layer.shape, 59, 59)
    _, state = pool_of([mask])
    state[TABLE][HEADER + CAP] = 59
    assert "60 nonzeros, more than 59" in csr.fault([tight], state)
    wide = Layer("w0", layer.shape, 60, 109)  # of 108 elements
    state[TABLE][HEADER + CAP] = 109
    assert "109 of 108 elements" in csr.fault([wide], state)


def test_a_kernel_of_256_elements_fits_8_bits_and_one_more_does_not():
    square, line = Layer("w", (2, 2, 16, 16), 1, 1), Layer("w", (2, 2, 257), 1, 1)
    assert (csr.column_dtype([square]), square.chunk) == ("u8", 1)
    assert (csr.column_dtype([line]), line.chunk) == ("u16", 2)


def test_only_matrices_are_turned():
    item = ["w", [2, 3, 1, 1], 1, 1, True]
    assert not Layer.from_json(item).turned and Layer.from_json(["w", [2, 3], 1, 1, True]).turned


@pytest.mark.parametrize(
    "spoil",
    [
        _spoil_pointer, _spoil_order, _spoil_start, _spoil_column, _spoil_duplicate, _spoil_cap,
        _spoil_size, _lose,
    ],
)  # fmt: skip
def test_fault_names_what_is_wrong_with_a_damaged_pattern(spoil):
    layers, state = pool_of(_masks(SHAPES[:3]))
    spoil(state)
    assert csr.fault(layers, state) != ""
