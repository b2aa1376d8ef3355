"""Weights, accumulators and optimizer state of a session by parameter, dense or in the sparse
pool."""

from collections.abc import Mapping

import numpy as np

from edgetrain.compiler.passes.autodiff import accumulator_name
from edgetrain.compiler.passes.touched_rows import map_name
from edgetrain.formats import Format, decoded, of_dtype
from edgetrain.formats.csr import COLUMNS, POOL, Layer, dense, pointers_name, positions_of
from edgetrain.kernels import control
from edgetrain.kernels.optimizers.states import PLAIN, SQUARE
from edgetrain.optim import Optimizer
from edgetrain.runtime.session import Session


class Slots:
    """Reads and writes arrays in dense shape; values outside the nonzeros are 0 and not written.

    A `tag` is the suffix after a parameter's name: "" for the weight, ".grad", ".momentum".
    """

    def __init__(self, session: Session) -> None:
        self._values: Mapping[str, np.ndarray] = session.values
        self._ints = session.ints
        states = Optimizer.of_json(session.program.recipe["optimizer"]).states
        self._kinds = {f".{state.tag}": state.kind for state in states}
        self._shapes = {slot.name: slot.shape for slot in session.program.lasting}
        self._layers: dict[str, Layer] = {layer.name: layer for layer in session.layers}

    def has(self, name: str, tag: str = "") -> bool:
        """Whether the session stores it; a frozen parameter has no gradient and no state."""
        return (POOL if name in self._layers else name) + tag in self._values

    def trains(self, name: str) -> bool:
        """Whether the parameter has a gradient."""
        return self.has(name, accumulator_name(""))

    def read(self, name: str, tag: str = "") -> np.ndarray:
        """The array as float64."""
        layer = self._layers.get(name)
        if layer:
            result = dense(layer, self._values, POOL + tag).astype(np.float64)
        else:
            result = decoded(self._values[name + tag], self._shapes[name + tag]).astype(np.float64)
        result = result / self.scale(name, tag)
        return result**2 if self._rooted(name, tag) else result

    def write(self, name: str, array: np.ndarray, tag: str = "") -> None:
        layer = self._layers.get(name)
        if self._rooted(name, tag):
            array = np.sqrt(array)
        array = array * self.scale(name, tag)
        if layer is None:
            result = self._values[name + tag]
            if not result.flags.writeable:  # frozen and mapped
                return
            if tag and (known := self._values.get(map_name(name + tag))) is not None:
                touched = np.flatnonzero(array.any(axis=1))
                known[touched], known[-1] = 1 + np.arange(len(touched)), len(touched)
                room = np.zeros(self._shapes[name + tag], array.dtype)
                room[: len(touched)] = array[touched]
                array = room
            result[...] = of_dtype(result.dtype).encode(array)
            return
        first, last = self._values[pointers_name(name)][[0, -1]]
        result = self._values[POOL + tag]
        pool = decoded(result).reshape(-1).copy()
        pool[first:last] = layer.flat(array)[self._positions(layer)]
        result[...] = of_dtype(result.dtype).encode(pool).reshape(result.shape)

    def stored(self, name: str, tag: str = "") -> Format:
        """Its storage format."""
        return of_dtype(self._values[(POOL if name in self._layers else name) + tag].dtype)

    def scale(self, name: str, tag: str = "") -> float:
        """The factor by which it is stored: that of moments in a short format."""
        stored, kind = self.stored(name, tag), self._kinds.get(tag, PLAIN)
        scaled = kind != PLAIN and stored.short_range and stored.block == 1
        return 2.0 ** int(self._ints[control.STATE_EXPONENT]) if scaled else 1.0

    def _rooted(self, name: str, tag: str) -> bool:
        """Whether the square root is stored, as for second moments in a short format."""
        stored = self.stored(name, tag)
        return self._kinds.get(tag) == SQUARE and (stored.short_range or stored.block > 1)

    def is_given(self, name: str) -> bool:
        """Whether the reference must use the session's values, because they are mapped, or stored
        in blocks, where elements are rounded together."""
        if not self.has(name):
            return False
        mapped = name in self._values and not self._values[name].flags.writeable
        return mapped or self.stored(name).block > 1

    def mask(self, name: str) -> np.ndarray | None:
        """1 for each nonzero of a sparse weight, 0 elsewhere; None for a dense weight."""
        layer = self._layers.get(name)
        if layer is None:
            return None
        out = np.zeros(layer.size)
        out[self._positions(layer)] = 1.0
        return layer.shaped(out)

    def _positions(self, layer: Layer) -> np.ndarray:
        return positions_of(layer, self._values[COLUMNS], self._values[pointers_name(layer.name)])
