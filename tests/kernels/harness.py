"""Runs one registered kernel on numpy arrays, as a tape would, with guard bytes around operands.

    out = call("relu", {"S": "f16"}, x=x, y=x.shape, n=x.size)["y"]

Referenced arrays are copied into one buffer at multiples of 64 bytes, with guard bytes between
them. After the run, guard bytes and read-only operands must be unchanged.
"""

import ctypes
import functools
import tempfile
from pathlib import Path

import numpy as np

from edgetrain.errors import EdgetrainError
from edgetrain.formats import FORMATS
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import load
from edgetrain.kernels.declaration.spec import Spec
from edgetrain.kernels.registry import Kernel
from edgetrain.kernels.run import calls
from edgetrain.kernels.run.execution import interpret

DTYPES = {name: format.dtype.type for name, format in FORMATS.items()}
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
ALIGN = 64
GUARD = 0xA5
GARBAGE = 0xFF  # NaN in every float format, so that unwritten elements show
INTERPRET = False  # run kernels in plain Python (pytest --interpret)
LAST: list[calls.Call] = []  # the last call of the running test


def control(**words) -> np.ndarray:
    """A control block, int64[64]; `control(LR=0.1, STEP=3)` sets words by name."""
    from edgetrain.kernels import control as layout

    block = np.zeros(layout.WORDS, np.int64)
    for name, value in words.items():
        index = getattr(layout, name)
        (block if index < layout.LR else block.view(np.float64))[index] = value
    return block


def bits(value: float) -> int:
    """Encode a float operand as a tape word."""
    return int(np.float32(value).view(np.uint32))


@functools.cache
def entry(kernel: Kernel, storages: tuple[tuple[str, str], ...]):
    """Return the kernel as a C function of (base, args, thread, nthreads)."""
    symbol = kernel.symbol(dict(storages))
    return ENTRY(load({symbol: lambda: kernel.object(dict(storages), jit.host())})[symbol])


class _Buffer:
    """The memory of one call: arrays at their offsets, and the guard bytes between them."""

    def __init__(self) -> None:
        self.size = ALIGN
        self.places: list[tuple[int, np.ndarray]] = []

    def add(self, array: np.ndarray) -> int:
        """Add a copy of `array`; return its offset."""
        offset = self.size
        self.places.append((offset, np.ascontiguousarray(array)))
        self.size = -(-(offset + array.nbytes + ALIGN) // ALIGN) * ALIGN
        return offset

    def freeze(self) -> None:
        raw = np.full(self.size + ALIGN, GUARD, np.uint8)
        start = -raw.ctypes.data % ALIGN
        self.bytes = raw[start : start + self.size]
        self.guard = np.ones(self.size, bool)
        for offset, array in self.places:
            self.bytes[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
            self.guard[offset : offset + array.nbytes] = False

    def read(self, offset: int, like: np.ndarray) -> np.ndarray:
        part = self.bytes[offset : offset + like.nbytes]
        return part.view(like.dtype).reshape(like.shape).copy()

    def check_guards(self, name: str) -> None:
        wrong = np.flatnonzero(self.guard & (self.bytes != GUARD))
        if wrong.size:
            before = max((o for o, _ in self.places if o <= wrong[0]), default=0)
            raise AssertionError(
                f"{name}: wrote outside its operands, at {wrong[0]} "
                f"(operand at offset {before}, all: {[(o, a.nbytes) for o, a in self.places]})"
            )


def _array(operand, value, storages) -> np.ndarray:
    dtype = FORMATS[storages.get(operand.storage, operand.storage)].dtype
    if isinstance(value, (tuple, int)):
        value = np.empty(value, dtype)
    assert value.dtype == dtype, f"operand {operand.name}: {value.dtype}, expected {dtype}"
    if operand.mode == "w":
        value = np.full(value.nbytes, GARBAGE, np.uint8).view(dtype).reshape(value.shape)
    return value


def declared(name: str, operands: str, factory) -> Kernel:
    """Declare a kernel for one test; it is not registered, but `call` accepts it."""
    return Kernel(name, "plain", Spec.parse(operands), factory, None)


def reproduction(test: str) -> str:
    """Return the command that reruns the last call, against another variant if there is one.

    Args:
      test: test name, used to name the file with the saved call.
    """
    name = LAST[0].kernel.name if LAST else ""
    if name not in registry.names() or LAST[0].kernel not in registry.variants(name):
        return ""  # no call yet, or a kernel declared by the test
    call = LAST[0]
    folder = Path(tempfile.gettempdir()) / "edgetrain-kernels"
    folder.mkdir(exist_ok=True)
    path = folder / f"{''.join(c if c.isalnum() else '-' for c in test)[:100]}.npz"
    call.save(path)
    others = [k for k in registry.variants(call.kernel.name)[::-1] if _accepts(k, call)]
    how = next((f"--against {k.variant}" for k in others if k is not call.kernel), "--compare")
    return f"python -m edgetrain.kernels.run {call.kernel.label} {how} --call {path}"


def _accepts(kernel: Kernel, call: calls.Call) -> bool:
    try:
        kernel.spec.extents(call.values, call.storages, call.threads, calls.lanes_of(kernel))
    except EdgetrainError:
        return False
    return True


def _candidate(name, values, storages, variant) -> Kernel:
    if isinstance(name, Kernel):
        return name
    if not variant:
        return registry.choose(name, values, storages, jit.host())
    return next(k for k in registry.variants(name) if k.variant == variant)


def _laid(spec, operands, storages, buffer):
    """Return the value of every operand except scratch, and the initial array of each reference."""
    values, arrays = {}, {}
    for operand in spec.operands:
        value = operands.pop(operand.name, None)
        if operand.is_reference:
            if isinstance(value, str):
                arrays[operand.name], values[operand.name] = arrays[value], values[value]
            elif value is None:
                assert operand.optional, f"operand {operand.name} is missing"
                values[operand.name] = -1
            else:
                arrays[operand.name] = array = _array(operand, value, storages)
                values[operand.name] = buffer.add(array)
        elif operand.mode != "t":
            assert value is not None, f"operand {operand.name} is missing"
            values[operand.name] = value
    assert not operands, (
        f"no such operands: {sorted(operands)}; has {[o.name for o in spec.operands]}"
    )
    return values, arrays


def call(name, storages=None, /, nthreads=1, variant="", **operands) -> dict[str, np.ndarray]:
    """Run kernel `name` (or a Kernel) and return the references it writes, by name.

    Args:
      storages: the format of each storage variable, such as {"S": "f16"}.
      nthreads: the kernel is called for thread 0, 1, ... nthreads - 1 in turn.
      variant: variant to run (default: the one that the registry chooses).
      operands: numbers for scalars. For a reference: an array, a shape if it is only written,
        the name of an earlier operand to share its memory, None or nothing if absent. Scratch is
        allocated here.
    """
    storages, buffer = dict(storages or {}), _Buffer()
    spec = (name if isinstance(name, Kernel) else registry.variants(name)[0]).spec
    values, arrays = _laid(spec, operands, storages, buffer)
    kernel = _candidate(name, values, storages, variant)
    assert [(o.name, o.mode, o.storage) for o in kernel.spec.operands] == [
        (o.name, o.mode, o.storage) for o in spec.operands
    ], f"{name}: variants differ in their operands"
    spec, lanes = kernel.spec, jit.host().lanes
    for operand, nbytes in spec.extents(values, storages, nthreads, lanes).items():
        found = arrays[operand].nbytes
        assert found == nbytes, f"{name}.{operand}: extent {nbytes} bytes, array {found}"
    stride = spec.scratch_nbytes(values, nthreads, lanes)
    scratch = buffer.add(np.full(stride * nthreads, GARBAGE, np.uint8)) if stride else 0
    buffer.freeze()
    words, used = [], 0
    for operand in spec.operands:
        if operand.mode == "t":
            words += [scratch + used, stride]
            used += _scratch_of(spec, operand, values, nthreads, lanes)
        else:
            value = values[operand.name]
            words.append(bits(value) if operand.mode == "f" else int(value))
    places = {n: a.reshape(-1).view(np.uint8) for n, a in arrays.items() if values[n] >= 0}
    LAST[:] = [calls.Call(kernel, storages, values, places, lanes, nthreads)]
    if INTERPRET:
        _interpret(kernel, storages, values, arrays, buffer, nthreads)
    else:
        _run(entry(kernel, tuple(sorted(storages.items()))), buffer, words, nthreads)
    buffer.check_guards(name)
    return _outputs(spec, values, arrays, buffer, name)


def _scratch_of(spec, operand, values, nthreads, lanes) -> int:
    names = spec.names(values, nthreads, lanes)
    nbytes = operand.extent(names)
    return -(-int(nbytes) // ALIGN) * ALIGN


def _run(function, buffer, words, nthreads) -> None:
    args = np.array(words, np.int64)
    for thread in range(nthreads):
        function(buffer.bytes.ctypes.data, args.ctypes.data, thread, nthreads)


def _interpret(kernel, storages, values, arrays, buffer, nthreads) -> None:
    present = {o: a for o, a in arrays.items() if values[o] >= 0}
    places = {o: buffer.bytes[values[o] : values[o] + a.nbytes] for o, a in present.items()}
    interpret(kernel, storages, places, values, nthreads)


def _outputs(spec, values, arrays, buffer, name) -> dict[str, np.ndarray]:
    written = {o.name for o in spec.operands if o.mode in ("w", "m")}
    places = {values[o] for o in written if values[o] >= 0}
    for operand, array in arrays.items():
        if operand not in written and values[operand] not in places:
            after = buffer.read(values[operand], array)
            assert after.tobytes() == array.tobytes(), f"{name}: changed its operand {operand}"
    return {o: buffer.read(values[o], arrays[o]) for o in arrays if o in written}


def same_for_threads(name, storages=None, /, threads=(1, 3), **operands) -> dict[str, np.ndarray]:
    """Run `call` with each thread count, assert that the bits are equal, and return the outputs."""
    first, *others = [call(name, storages, nthreads=n, **dict(operands)) for n in threads]
    for other in others:
        for key, array in first.items():
            assert array.tobytes() == other[key].tobytes(), f"{name}.{key}: differs by threads"
    return first
