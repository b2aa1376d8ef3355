"""Weights and running statistics of a session by name, as float32 arrays in the model's layout."""

from collections.abc import Iterator, Mapping, MutableMapping
from os import PathLike
from typing import Any

import numpy as np

from ..data.tensors import as_array
from ..errors import DataError, UsageError
from ..formats import decoded, of_dtype
from ..formats.csr import COLUMNS, POOL, Layer, dense, pointers_name, positions_of
from ..units.hints import did_you_mean
from ..units.public import Uncopied
from .session import Session

_COUNTERS = ".num_batches_tracked"  # in torch's state, not in ONNX


class Parameters(Uncopied, MutableMapping[str, np.ndarray]):
    """The model's parameters, trained and frozen, by torch's names and in torch's layout.

    Reading gives a float32 copy (a sparse weight dense), writing puts an array of the same shape
    into the arena: rounded to nearest where weights are stored in fp16. Nothing is added or
    deleted.

    Args:
      buffers: running statistics too.
    """

    instead = "dict(parameters) has copies of the arrays."

    def __init__(self, session: Session, *, buffers: bool = False) -> None:
        self._session = session
        roles = ("parameter", "buffer") if buffers else ("parameter",)
        slots = [slot for slot in session.program.lasting if slot.role in roles]
        self._still = {slot.name for slot in session.program.mapped}
        self._slots = {slot.name: slot for slot in slots if slot.name != POOL}
        self._layers: dict[str, Layer] = {layer.name: layer for layer in session.layers}
        self._names = tuple(self._layers) + tuple(self._slots)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self._names)})"

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> np.ndarray:
        self._check_known(name)
        layer = self._layers.get(name)
        values = self._session.values
        with self._session.turn:
            if name in self._still:
                self._session.executor.check_files()
            if layer:
                return dense(layer, values).astype(np.float32)
            return decoded(values[name], self._slots[name].shape).astype(np.float32)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each, without a copy."""
        return {name: self._shape(name) for name in self._names}

    def __setitem__(self, name: str, value: Any) -> None:
        self._check_known(name)
        with self._session.turn:
            self._write(name, self._checked(name, value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {*self} == {*other} and all(np.array_equal(self[n], other[n]) for n in self)

    __hash__ = None  # type: ignore[assignment]

    def __delitem__(self, name: str) -> None:
        raise UsageError(
            f"parameter {name!r}: it can't be deleted: a Program's parameters are "
            f"fixed. Set it to zeros."
        )

    def load(self, state: Mapping[str, Any]) -> None:
        """Write all of them at once, or none.

        Args:
          state: by name, such as `state_dict` of the torch module; its counters of batches are
            left aside.
        Raises:
          DataError: a name is missing or unknown, or an array does not fit.
        """
        if not isinstance(state, Mapping):
            file = isinstance(state, str | PathLike)
            move = " Load the file first, such as by torch.load or numpy.load." if file else ""
            raise UsageError(f"state {repr(state)[:80]}: expected arrays by name.{move}")
        given = {name: value for name, value in state.items() if not _is_counter(name)}
        for what, names in (
            ("lacks", set(self._names) - set(given)),
            ("has the unknown", set(given) - set(self._names)),
        ):
            if names:
                shown = ", ".join(sorted(map(str, names))[:3])
                raise DataError(
                    f"state: {what} {shown}{' ..' * (len(names) > 3)}; expected the names of "
                    f"state_dict(). {self._move(given)}"
                )
        self.put(given)

    def _move(self, given: Mapping[str, Any]) -> str:
        """What to do about a state of other names."""
        for name, value in given.items():
            if isinstance(value, Mapping) and {*self._names} <= {*value}:
                return f"Pass state[{name!r}]."
        for own in self._names[:1]:
            for name in given:
                front = str(name).removesuffix(own)
                if front != name and {*given} >= {front + each for each in self._names}:
                    return f"Its names begin with {front!r}: cut that off (str.removeprefix)."
        return "Take the state of the same model."

    def put(self, values: Mapping[str, Any]) -> None:
        """Write some of them, all that are given or none.

        Raises:
          DataError, UsageError: as where one is set.
        """
        for name in values:
            self._check_known(name)
        with self._session.turn:
            arrays = {name: self._checked(name, value) for name, value in values.items()}
            for name, array in arrays.items():
                self._write(name, array)

    def update(self, *values: Any, **more: Any) -> None:
        """As of a dict, but all that are given are written or none."""
        self.put(dict(*values, **more))

    def get(self, name: str, default: Any = None) -> Any:
        """A copy of the parameter, or `default` where there is none."""
        return self[name] if name in self._names else default

    def _check_known(self, name: object) -> None:
        if name not in self._names:
            raise UsageError(
                f"parameter {str(name)[:80]!r}: no such name; found {', '.join(self._names)[:200]}."
                f"{did_you_mean(str(name), self._names)}"
            )

    def _shape(self, name: str) -> tuple[int, ...]:
        layer = self._layers.get(name)
        if layer is None:
            return self._slots[name].shape
        return layer.shape[::-1] if layer.turned else layer.shape

    def _checked(self, name: str, value: Any) -> np.ndarray:
        """The array as numbers that are stored exactly, but for what a block's scale loses.

        Raises:
          DataError: another shape, or values that the storage does not have.
        """
        array, shape = as_array(f"parameter {name!r}", value), self._shape(name)
        if array.shape != shape:
            raise DataError(
                f"parameter {name!r}: shape {list(array.shape)}; expected {list(shape)}."
            )
        storage = of_dtype(self._session.values[POOL if name in self._layers else name].dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = array.astype(np.float32)
            if storage.block == 1:
                numbers = decoded(storage.encode(numbers))
        if not np.isfinite(numbers).all():
            raise DataError(
                f"parameter {name!r}: not all values are finite as {storage.name} stores them."
            )
        layer = self._layers.get(name)
        if name in self._still:
            self._check_still(name, storage.encode(array.astype(np.float32)))
        if layer is not None:
            off = layer.flat(numbers).copy()
            off[self._where(layer)] = 0
            if off.any():
                raise DataError(
                    f"parameter {name!r}: {np.count_nonzero(off)} nonzero numbers outside the "
                    f"sparse pattern. Change only the nonzeros that parameters[..] returns."
                )
        return numbers

    def _check_still(self, name: str, stored: np.ndarray) -> None:
        """Raises DataError: they are not what is mapped under this name."""
        self._session.executor.check_files()
        if stored.tobytes() != self._session.values[name].tobytes():
            raise DataError(
                f"parameter {name!r}: frozen, and mapped from the Program's file; found other "
                "values. Compile the model with these, or without --frozen and --lora."
            )

    def _write(self, name: str, numbers: np.ndarray) -> None:
        if name in self._still:
            return  # it is what is there, see `_checked`
        values, layer = self._session.values, self._layers.get(name)
        found = values[POOL if layer else name]
        if layer:
            pointers = values[pointers_name(name)]
            pool = decoded(found).reshape(-1).copy()
            pool[int(pointers[0]) : int(pointers[-1])] = layer.flat(numbers)[self._where(layer)]
            numbers = pool
        found[...] = of_dtype(found.dtype).encode(numbers).reshape(found.shape)

    def _where(self, layer: Layer) -> np.ndarray:
        values = self._session.values
        return positions_of(layer, values[COLUMNS], values[pointers_name(layer.name)])


def _is_counter(name: object) -> bool:
    return isinstance(name, str) and name.endswith(_COUNTERS)
