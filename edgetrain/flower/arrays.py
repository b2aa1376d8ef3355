"""The arrays that boards exchange with their server.

Boards send the arrays that training changes: trained parameters and running statistics, in the
order of the ONNX file. Frozen weights and optimizer state are not sent. A dense array is sent as
stored in the arena, fp32 or fp16; weights in 8-bit blocks are sent as fp32, because a server
averages numbers. A sparse weight is sent as its nonzeros [nnz], in the order of their positions,
and its name ends with a digest of their pattern: `conv2.weight@1f0c93ab5d7e2468`. Arrays with
different patterns therefore have different names: Flower's strategies refuse to average them, and
boards refuse to load them.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data.tensors import as_array
from ..errors import DataError, UsageError
from ..formats import coded, decoded, of_dtype
from ..formats.csr import COLUMNS, POOL, Layer, layers_of, pointers_name, positions_of
from ..program import Program
from ..program.mapped_file import check_files
from ..program.trained import names_in_file
from ..sparse import rewiring_of
from ..units.hints import did_you_mean

WIRES = ("stored", "fp32")
MARK = "@"  # separates the name of a sparse weight from its pattern


def initial_state(program: Program) -> dict[str, np.ndarray]:
    """Copies of the stored arrays before the first step, as in a checkpoint and in the arena's
    formats.

    Raises:
      RunError: the Program's file was truncated or overwritten since it was read.
    """
    check_files(program.init)
    return {
        slot.name: np.array(program.init[slot.name])
        if slot.name in program.init
        else np.zeros(slot.stored_shape, slot.format.dtype)
        for slot in program.saved
    }


class Exchange:
    """Reads and writes the exchanged arrays in the memory of a Program's state.

    Args:
      values: stored arrays by slot name: those of a session, or `initial_state`.
      wire: `stored`: as in the arena. `fp32`: twice the bytes of fp16, but an average is only
        rounded once, when it is written.
    Attributes:
      names: names of the arrays, in the order of the ONNX file; sparse ones with their pattern.
    Raises:
      UsageError: the Program's nonzeros move during training, or `wire` is unknown.
    """

    def __init__(
        self, program: Program, values: Mapping[str, np.ndarray], wire: str = "stored"
    ) -> None:
        if wire not in WIRES:
            raise UsageError(f"wire {wire!r}: expected one of {', '.join(WIRES)}.")
        if rewiring_of(program.recipe) is not None:
            raise UsageError(
                f"Program {program.model_name}: rewiring would give devices different sparse "
                f"patterns. Compile with rewiring='none'."
            )
        self._values, self._wire = values, wire
        self._slots = {slot.name: slot for slot in program.persistent}
        self._layers = {layer.name: layer for layer in layers_of(program.recipe)}
        self._own = {self._key(name): name for name in _travelling(program, self._layers)}
        self.names = tuple(self._own)

    def read(self) -> dict[str, np.ndarray]:
        """The arrays by name, as float32 or float16; views of `values` if stored in that format."""
        return {key: self._numbers(name) for key, name in self._own.items()}

    @property
    def nbytes(self) -> int:
        """Total bytes of the arrays."""
        return sum(array.nbytes for array in self.read().values())

    @property
    def pattern(self) -> str:
        """Digest of all sparse patterns; "" without sparse weights."""
        marks = "".join(
            key.rpartition(MARK)[2] for key, n in self._own.items() if n in self._layers
        )
        return hashlib.sha256(marks.encode()).hexdigest()[:16] if marks else ""

    def write(self, arrays: Mapping[str, Any]) -> None:
        """Write all arrays to the arena, rounded to nearest; writes none if one is wrong.

        Raises:
          UsageError: `arrays` is not a mapping.
          DataError: names, shapes or patterns differ, or a value is not finite in its stored
            format.
        """
        if not isinstance(arrays, Mapping):
            raise UsageError(f"arrays {repr(arrays)[:80]}: expected arrays by name.")
        self._check_names(arrays)
        result = {self._own[key]: self._checked(key, arrays[key]) for key in self.names}
        for name, numbers in result.items():
            self._write(name, numbers)

    def _key(self, name: str) -> str:
        layer = self._layers.get(name)
        return name if layer is None else f"{name}{MARK}{self._mark(layer)}"

    def _mark(self, layer: Layer) -> str:
        """Digest of a layer's positions, independent of its place in the pool."""
        where = positions_of(layer, self._values[COLUMNS], self._values[pointers_name(layer.name)])
        text = str((layer.shape, layer.turned)).encode()
        return hashlib.sha256(text + where.astype("<i8").tobytes()).hexdigest()[:16]

    def _share(self, name: str) -> slice:
        """Slice of the pool that a sparse weight occupies."""
        pointers = self._values[pointers_name(name)]
        return slice(int(pointers[0]), int(pointers[-1]))

    def _numbers(self, name: str) -> np.ndarray:
        stored = self._values[POOL if name in self._layers else name]
        if name in self._layers:
            numbers = decoded(stored).reshape(-1)[self._share(name)]
        else:
            numbers = decoded(stored, self._slots[name].shape)
        return numbers.astype(np.float32, copy=False) if self._wire == "fp32" else numbers

    def _check_names(self, arrays: Mapping[str, Any]) -> None:
        sparse = {name: key for key, name in self._own.items() if name in self._layers}
        for key in arrays:
            name, _, mark = str(key).rpartition(MARK)
            if name in sparse and sparse[name] != key:
                raise DataError(
                    f"arrays: {name!r} has sparse pattern {mark[:16]}; expected "
                    f"{sparse[name].rpartition(MARK)[2]}. Compile all boards' Programs from one "
                    "model with the same density and seed, and rewiring='none'."
                )
        for what, names in (
            ("missing", [key for key in self.names if key not in arrays]),
            ("unknown", [str(key) for key in arrays if key not in self._own]),
        ):
            if names:
                meant = did_you_mean(names[0], self.names) if what != "missing" else ""
                raise DataError(
                    f"arrays: {what} {', '.join(names[:3])}{' ..' * (len(names) > 3)}; expected "
                    f"the trained arrays ({len(self.names)}).{meant} Train the same parameters "
                    "on every board."
                )

    def _checked(self, key: str, value: Any) -> np.ndarray:
        name = self._own[key]
        array, own = as_array(f"array {key!r}", value), self._numbers(name)
        if array.shape != own.shape:
            raise DataError(f"array {key!r}: shape {[*array.shape]}; expected {[*own.shape]}.")
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = array.astype(np.float32)
            storage = of_dtype(self._values[POOL if name in self._layers else name].dtype)
            stored = numbers if storage.block > 1 else decoded(storage.encode(numbers))
        if not np.isfinite(stored).all():
            raise DataError(
                f"array {key!r}: some values are not finite in {storage.name}. Lower the learning "
                "rate of the boards."
            )
        return stored

    def _write(self, name: str, numbers: np.ndarray) -> None:
        result = self._values[POOL if name in self._layers else name]
        if name in self._layers:
            if not coded(result):
                result.reshape(-1)[self._share(name)] = numbers
                return
            pool = decoded(result).reshape(-1).copy()
            pool[self._share(name)] = numbers
            numbers = pool
        result[...] = of_dtype(result.dtype).encode(numbers).reshape(result.shape)


def _travelling(program: Program, layers: Mapping[str, Layer]) -> list[str]:
    """Names of the parameters and buffers that training changes, in the order of the ONNX file.

    Raises:
      UsageError: the Program does not record them.
    """
    training = program.account.get("training")
    known = {slot.name for slot in program.persistent if slot.role in ("parameter", "buffer")}
    known = known - {POOL} | {*layers}
    if training is None:
        raise UsageError(
            f"Program {program.model_name}: its list of trained parameters is missing. Compile the "
            "model again."
        )
    moved = {name for kind in ("trained", "moves") for name in training[kind]["names"]} & known
    names = names_in_file(program)
    order, rest = {name: index for index, name in reversed([*enumerate(names)])}, len(names)
    return sorted(moved, key=lambda name: (order.get(name, rest), name))
