"""Weights and running statistics of a session by name, as float32 arrays."""

from collections.abc import Iterator, Mapping, MutableMapping
from os import PathLike
from typing import Any

import numpy as np

from ..data.tensors import as_array, is_tensor
from ..errors import DataError, UsageError
from ..formats import decoded, of_dtype
from ..formats.csr import COLUMNS, POOL, Layer, dense, pointers_name, positions_of
from ..units.hints import did_you_mean
from ..units.public import Uncopied
from ..units.wording import listed
from .session import Session

_COUNTERS = ".num_batches_tracked"  # in torch's state, not in ONNX


class Parameters(Uncopied, MutableMapping[str, np.ndarray]):
    """The model's parameters, trained and frozen, with torch's names and layout.

    Reading returns a float32 copy (dense, even if the weight is sparse). Assigning writes an array
    of the same shape to the arena, rounded to nearest if weights are stored in fp16. Parameters
    can't be added or deleted.

    Args:
      buffers: include running statistics.
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
        return isinstance(name, str) and name in self._names

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
        """Shapes by name, without copying."""
        return {name: self._shape(name) for name in self._names}

    def __setitem__(self, name: str, value: Any) -> None:
        self._session.executor.check_process()
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
            f"parameter {name!r}: parameters can't be deleted. Set it to zeros instead."
        )

    def load(self, state: Mapping[str, Any]) -> None:
        """Write all parameters, or none if one is wrong.

        Args:
          state: arrays by name, such as the torch module's `state_dict`; batch counters and other
            names of the same tensor (tied weights) are ignored.
        Raises:
          DataError: a name is missing or unknown, or an array does not fit.
          UsageError: `state` is not a mapping.
        """
        if not isinstance(state, Mapping):
            file = isinstance(state, str | PathLike)
            move = " Load the file first, with torch.load or numpy.load." if file else ""
            raise UsageError(f"state {repr(state)[:80]}: expected arrays by name.{move}")
        own = [value for name, value in state.items() if name in self]
        given = {
            name: value
            for name, value in state.items()
            if name in self
            or not (_is_counter(name) or any(_are_tied(value, item) for item in own))
        }
        for what, names in (
            ("missing", set(self._names) - set(given)),
            ("unknown", set(given) - set(self._names)),
        ):
            if names:
                shown = ", ".join(sorted(map(str, names))[:3])
                raise DataError(
                    f"state: {what} {shown}{' ..' * (len(names) > 3)}; expected the names of "
                    f"state_dict(). {self._move(given)}"
                )
        self.put(given)

    def _move(self, given: Mapping[str, Any]) -> str:
        """Advice for a state with other names."""
        if {*self._names} <= {*given}:
            return "Leave the others out: {name: state[name] for name in trainer.state_dict()}."
        for name, value in given.items():
            if isinstance(value, Mapping) and {*self._names} <= {*value}:
                return f"Pass state[{name!r}]."
        for own in self._names[:1]:
            for name in given:
                front = str(name).removesuffix(own)
                if front not in ("", name) and {*given} >= {front + each for each in self._names}:
                    return f"Remove the prefix {front!r} of its names (str.removeprefix)."
        return "Use a state of the same model."

    def put(self, values: Mapping[str, Any]) -> None:
        """Write some parameters, or none if one is wrong.

        Raises:
          DataError, UsageError: as for assignment.
        """
        self._session.executor.check_process()
        for name in values:
            self._check_known(name)
        with self._session.turn:
            arrays = {name: self._checked(name, value) for name, value in values.items()}
            for name, array in arrays.items():
                self._write(name, array)

    def update(self, *values: Any, **more: Any) -> None:
        """Like dict.update, but writes nothing if one is wrong."""
        self.put(dict(*values, **more))

    def get(self, name: str, default: Any = None) -> Any:
        """A copy of the parameter, or `default`."""
        known = name in self
        return self[name] if known else default

    def _check_known(self, name: object) -> None:
        if name not in self:
            raise UsageError(
                f"parameter {str(name)[:80]!r}: no such name; found {listed(self._names)}."
                f"{did_you_mean(str(name), self._names)}"
            )

    def _shape(self, name: str) -> tuple[int, ...]:
        layer = self._layers.get(name)
        if layer is None:
            return self._slots[name].shape
        return layer.shape[::-1] if layer.turned else layer.shape

    def _checked(self, name: str, value: Any) -> np.ndarray:
        """The array rounded to what its storage format can represent (except 8-bit blocks).

        Raises:
          DataError: a wrong shape, or values that the format can't store.
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
            raise DataError(f"parameter {name!r}: some values are not finite in {storage.name}.")
        layer = self._layers.get(name)
        if name in self._still:
            self._check_still(name, storage.encode(array.astype(np.float32)))
        if layer is not None:
            off = layer.flat(numbers).copy()
            off[self._where(layer)] = 0
            if off.any():
                raise DataError(
                    f"parameter {name!r}: {np.count_nonzero(off)} nonzero numbers outside the "
                    f"sparse pattern. Change only the nonzeros of parameters[..]."
                )
        return numbers

    def _check_still(self, name: str, stored: np.ndarray) -> None:
        """Raise DataError if the values differ from the mapped ones."""
        self._session.executor.check_files()
        if stored.tobytes() != self._session.values[name].tobytes():
            raise DataError(
                f"parameter {name!r}: it is mapped from the Program file, so its values can't "
                "change. Compile the model with the new values, or without --frozen and --lora."
            )

    def _write(self, name: str, numbers: np.ndarray) -> None:
        if name in self._still:
            return  # unchanged, see `_checked`
        values, layer = self._session.values, self._layers.get(name)
        result = values[POOL if layer else name]
        if layer:
            pointers = values[pointers_name(name)]
            pool = decoded(result).reshape(-1).copy()
            pool[int(pointers[0]) : int(pointers[-1])] = layer.flat(numbers)[self._where(layer)]
            numbers = pool
        result[...] = of_dtype(result.dtype).encode(numbers).reshape(result.shape)

    def _where(self, layer: Layer) -> np.ndarray:
        values = self._session.values
        return positions_of(layer, values[COLUMNS], values[pointers_name(layer.name)])


def _are_tied(a: Any, b: Any) -> bool:
    """Whether arrays or tensors are the same memory."""
    return a is b or _place(a) is not None and _place(a) == _place(b)


def _place(value: Any) -> tuple | None:
    """Address, shape and strides of an array or a torch tensor."""
    if isinstance(value, np.ndarray):
        return value.ctypes.data, value.shape, value.strides
    if is_tensor(value) and hasattr(value, "data_ptr"):
        return value.data_ptr(), tuple(value.shape), tuple(value.stride())
    return None


def _is_counter(name: object) -> bool:
    return isinstance(name, str) and name.endswith(_COUNTERS)
