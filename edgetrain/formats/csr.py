"""Sparse weights: compressed rows of all layers in one pool of slots.

A weight [k, c/g, kh, kw] is a matrix of k rows (output channels) and c/g * kh * kw columns. A row
is cut into chunks of input channels, so that a column relative to its chunk fits 8 bits; within
(row, chunk) the nonzeros are in rising order. Pointers tell where each (row, chunk) begins *in the
pool*, so moving a layer only changes its pointers. Weights, gradient accumulators and optimizer
state share the pattern.

Values: POOL [slots / 64, 64] and its accumulator and state; COLUMNS [slots]; TABLE, 64-bit words
that kernels/sparse/rewire.py reads; for each layer `pointers_name(w)` [k * chunks + 1].
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import decoded

POOL = "sparse~pool"  # no model's name has a tilde before a word
COLUMNS = "sparse~columns"
TABLE = "sparse~table"
LINE = 64  # slots of one row of the pool

# Words of TABLE: a header, then LAYER_WORDS for each layer.
WRITE, PRUNED, THRESHOLD, HEADER = 0, 1, 3, 8
CAP, KEPT, GROWN, LAYER_WORDS = 0, 1, 2, 4

MAX_TAPS = 1 << 16  # most kernel elements of one channel: columns have at most 16 bits


class Layer(NamedTuple):
    """One sparse weight.

    Attributes:
      shape: of the dense weight: [k, c/g, kh, kw] or [k, c/g, kw]; [k, c] for a linear layer,
        [rows, c] for an embedding.
      share: initial number of nonzeros.
      cap: most nonzeros it may grow to.
      turned: the model stores the weight as [c, k], for a product without a transposition.
    """

    name: str
    shape: tuple[int, ...]
    share: int
    cap: int
    turned: bool = False

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def channels(self) -> int:
        return self.shape[1]

    @property
    def taps(self) -> int:
        """Kernel elements of one channel."""
        return math.prod(self.shape[2:])

    @property
    def size(self) -> int:
        """Elements of the dense weight."""
        return math.prod(self.shape)

    @property
    def chunk(self) -> int:
        """Input channels of a chunk: as many as 8 bits allow (else 16), evened out."""
        most = max(1, (256 if self.taps <= 256 else MAX_TAPS) // self.taps)
        count = -(-self.channels // most)
        return -(-self.channels // count)

    @property
    def chunks(self) -> int:
        return -(-self.channels // self.chunk)

    @property
    def groups(self) -> int:
        """Runs of nonzeros: rows times chunks."""
        return self.rows * self.chunks

    def widths(self) -> np.ndarray:
        """Columns of each chunk."""
        starts = np.arange(self.chunks) * self.chunk
        return np.minimum(self.chunk, self.channels - starts) * self.taps

    def flat(self, weight: np.ndarray) -> np.ndarray:
        """The model's weight as one flat array, in the row order of the pool."""
        return (weight.T if self.turned else weight).reshape(-1)

    def shaped(self, flat: np.ndarray) -> np.ndarray:
        """The inverse of `flat`: the weight in the model's shape."""
        weight = flat.reshape(self.shape)
        return np.ascontiguousarray(weight.T) if self.turned else weight

    def to_json(self) -> list:
        return [self.name, list(self.shape), self.share, self.cap, self.turned]

    @classmethod
    def from_json(cls, item: Sequence[Any]) -> "Layer":
        name, shape, share, cap, *turned = item
        kind = len(shape) == 2 and any(turned)
        return cls(str(name), tuple(map(int, shape)), int(share), int(cap), kind)


def pointers_name(parameter: str) -> str:
    """Name of the value with a layer's pointers."""
    return f"{parameter}.pointers"


def slots_of(layers: Sequence[Layer]) -> int:
    """Slots of the pool: the nonzeros of all layers, rounded up to whole lines."""
    return -(-sum(layer.share for layer in layers) // LINE) * LINE


def column_dtype(layers: Sequence[Layer]) -> str:
    """u8, or u16 if a single channel has more than 256 kernel elements."""
    return "u8" if all(layer.taps <= 256 for layer in layers) else "u16"


def encode(layer: Layer, positions: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """(columns, pointers) of nonzeros at rising flat `positions`, stored from slot `start` on."""
    row, column = np.divmod(positions, layer.channels * layer.taps)
    chunk = column // (layer.chunk * layer.taps)
    group = row * layer.chunks + chunk
    pointers = start + np.searchsorted(group, np.arange(layer.groups + 1))
    return column - chunk * layer.chunk * layer.taps, pointers.astype(np.int32)


def positions_of(layer: Layer, columns: np.ndarray, pointers: np.ndarray) -> np.ndarray:
    """Flat positions of a layer's nonzeros in the dense weight, rising."""
    first, last = int(pointers[0]), int(pointers[-1])
    group = np.repeat(np.arange(layer.groups), np.diff(pointers))
    row, chunk = np.divmod(group, layer.chunks)
    column = chunk * layer.chunk * layer.taps + columns[first:last]
    return row * layer.channels * layer.taps + column


def dense(layer: Layer, state: Mapping[str, np.ndarray], pool: str = POOL) -> np.ndarray:
    """A layer's values of `pool` in the model's shape, zero elsewhere, decoded."""
    pointers = state[pointers_name(layer.name)]
    values = decoded(state[pool]).reshape(-1)
    out = np.zeros(layer.size, values.dtype)
    where = positions_of(layer, state[COLUMNS], pointers)
    out[where] = values[int(pointers[0]) : int(pointers[-1])]
    return layer.shaped(out)


def dense_state(
    layers: Sequence[Layer], state: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """`state` with every sparse weight added in its dense shape, under its own name."""
    return {**state, **{layer.name: dense(layer, state) for layer in layers}}


def layers_of(recipe: Mapping[str, Any]) -> tuple[Layer, ...]:
    """The sparse layers in a Program's recipe, in pool order."""
    return tuple(Layer.from_json(item) for item in recipe.get("sparse_layers", ()))


def fault(layers: Sequence[Layer], state: Mapping[str, np.ndarray]) -> str:
    """A description of the fault in a pattern from a file; "" if kernels can trust it.

    Args:
      state: arrays by name, including COLUMNS, TABLE and every layer's pointers.
    """
    sizes = {COLUMNS: slots_of(layers), TABLE: HEADER + LAYER_WORDS * len(layers)}
    sizes |= {pointers_name(layer.name): layer.groups + 1 for layer in layers}
    for name, size in sizes.items():
        if name not in state or state[name].size != size:
            return f"{name!r} does not have {size} elements"
    columns, end = state[COLUMNS], 0
    for number, layer in enumerate(layers):
        cap = int(state[TABLE][HEADER + LAYER_WORDS * number + CAP])
        if cap != layer.cap or not layer.cap <= layer.size:
            return f"{layer.name!r} has room for {cap} of {layer.size} elements"
        pointers = state[pointers_name(layer.name)].astype(np.int64)
        if pointers[0] != end or (np.diff(pointers) < 0).any() or pointers[-1] > columns.size:
            return f"pointers of {layer.name!r} do not rise from slot {end}"
        if pointers[-1] - end > layer.cap:
            return f"{layer.name!r} has {pointers[-1] - end} nonzeros, more than {layer.cap}"
        result = columns[end : pointers[-1]].astype(np.int64)
        group = np.repeat(np.arange(layer.groups), np.diff(pointers))
        inside = result < layer.widths()[group % layer.chunks]
        rising = (np.diff(result) > 0) | (np.diff(group) > 0)
        if not (inside.all() and rising.all()):
            return f"columns of {layer.name!r} do not rise within the kernel"
        end = int(pointers[-1])
    return ""
