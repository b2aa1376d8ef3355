"""Runs one call of a kernel, interpreted or compiled."""

import ctypes
from collections import namedtuple
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...formats import FORMATS, decoded
from ..cache import jit
from ..cache.load import load
from ..declaration.spec import ALIGN, Operand
from ..registry import Kernel
from .faults import Fault, KernelFault
from .functions import interpreted, interpreting
from .memory import READY, UNDEFINED, Memory, Region


def item_of(kernel: Kernel, operand: Any, storages: Mapping[str, str]) -> int:
    """Bytes of an operand's element; 1 for block formats."""
    format = FORMATS[storages.get(operand.storage, operand.storage)]
    return format.block_nbytes if format.block == 1 else 1


def interpret(
    kernel: Kernel,
    storages: Mapping[str, str],
    places: Mapping[str, np.ndarray],
    values: Mapping[str, Any],
    nthreads: int = 1,
    lanes: int = 0,
    lines: dict[str, np.ndarray] | None = None,
) -> None:
    """Run every thread of a call, one after the other, in plain Python.

    Args:
      places: uint8[n] of each present reference; operands with one array share a place.
      values: integers, and float32 numbers, by name.
      lanes: of the processor; 0 for this one.
      lines: filled by operand with the source line that last wrote each byte, "" if none did.
    Raises:
      KernelFault: it makes an invalid access, or reads bytes that were never written.
    """
    spec, memory = kernel.spec, Memory()
    regions = _regions(kernel, storages, places, memory)
    if lines is not None:
        for name, region in regions.items():
            region.lines = np.full(region.bytes.size, "", object)
            lines[name] = region.lines
    lanes = lanes or jit.host().lanes
    names = spec.names(values, nthreads, lanes)
    function = interpreted(kernel.function(storages))
    try:
        with interpreting(memory):
            for thread in range(nthreads):
                flat = _operands(kernel, names, values, regions, memory)
                function(np.int64(thread), np.int64(nthreads), _record(kernel, flat))
    except Fault as fault:
        raise KernelFault(f"kernel {kernel.label}: {fault}.") from fault
    for region in regions.values():
        undefined = region.states == UNDEFINED
        if undefined.any():
            first = int(np.argmax(undefined))
            raise KernelFault(
                f"kernel {kernel.label}: {region.place(first)} has bytes that were never written: "
                f"{region.origin}."
            )


def _operands(kernel: Kernel, names, values, regions, memory: Memory) -> dict[str, Any]:
    """Each operand's value for one thread, which has its own scratch."""
    flat: dict[str, Any] = {}
    for operand in kernel.spec.operands:
        name = operand.name
        if operand.mode == "t":
            flat[name] = memory.buffer(name, _scratch(operand, names), 4).address
        elif operand.is_reference:
            flat[name] = regions[name].address if name in regions else 0
        else:
            flat[name] = np.float32(values[name]) if operand.mode == "f" else int(values[name])
    return flat


def _scratch(operand: Operand, names: Mapping[str, Any]) -> int:
    """Bytes of a thread's scratch, a multiple of ALIGN."""
    assert operand.extent is not None
    return -(-int(operand.extent(names)) // ALIGN) * ALIGN


def _regions(kernel: Kernel, storages, places, memory: Memory) -> dict[str, Region]:
    """The present operands; those that a kernel only writes have no content yet."""
    out: dict[str, Region] = {}
    known: dict[int, Region] = {}
    for operand in kernel.spec.operands:
        place = places.get(operand.name)
        if not operand.is_reference or place is None:
            continue
        address = place.ctypes.data
        region = known.get(address)
        if region is None:
            item = item_of(kernel, operand, storages)
            region = memory.add(Region(operand.name, place, item, writable=False), ready=False)
            known[address] = region
        region.writable |= operand.mode != "r"
        if operand.mode != "w":
            region.states[:] = READY
        out[operand.name] = region
    return out


def _record(kernel: Kernel, flat: Mapping[str, Any]) -> Any:
    """The record that the kernel gets: a field for each operand, a tuple for each integer group."""
    fields: dict[str, Any] = {}
    for name, count in kernel.spec.fields:
        if count:
            fields[name] = tuple(np.int64(flat[f"{name}{k}"]) for k in range(count))
        else:
            value = flat[name]
            fields[name] = value if isinstance(value, np.float32) else np.int64(value)
    return namedtuple("Operands", list(fields))(**fields)


_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


def run_compiled(
    kernel: Kernel,
    storages: Mapping[str, str],
    places: Mapping[str, np.ndarray],
    values: Mapping[str, Any],
    nthreads: int = 1,
    lanes: int = 0,
    address: int = 0,
) -> None:
    """Like `interpret`, but compiled for this processor; nothing is checked.

    Args:
      address: of its code; 0 for the code that Programs call.
    """
    spec, words, keep = kernel.spec, [], []
    names = spec.names(values, nthreads, lanes or jit.host().lanes)
    for operand in spec.operands:
        if operand.mode == "t":
            stride = _scratch(operand, names)
            keep.append(np.full(stride * nthreads + ALIGN, 0xFF, np.uint8))
            start = keep[-1].ctypes.data
            words += [start + -start % ALIGN, stride]
        elif operand.is_reference:
            there = operand.name in places
            words.append(places[operand.name].ctypes.data if there else -1)
        elif operand.mode == "f":
            words.append(int(np.float32(values[operand.name]).view(np.uint32)))
        else:
            words.append(int(values[operand.name]))
    symbol = kernel.symbol(storages)
    address = address or load({symbol: lambda: kernel.object(storages, jit.host())})[symbol]
    entry = _ENTRY(address)
    arguments = np.array(words, np.int64)
    for thread in range(nthreads):
        entry(0, arguments.ctypes.data, thread, nthreads)


class Difference(NamedTuple):
    """The first element in which two runs of a call differ.

    Attributes:
      operand, element: its place.
      values: each run's result there.
      offset: its first byte in the operand.
      wrong, size: number of differing elements, and of all elements of the operand.
      most: the largest difference between two floats; None for other elements.
    """

    operand: str
    element: int
    values: tuple[Any, Any]
    offset: int
    wrong: int
    size: int
    most: float | None


def first_difference(
    kernel: Kernel,
    storages: Mapping[str, str],
    expected: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
) -> Difference | None:
    """The first element in which places differ (NaN equals NaN); None if all are equal."""
    for operand in kernel.spec.operands:
        if operand.mode not in "wm" or operand.name not in expected:
            continue
        format = FORMATS[storages.get(operand.storage, operand.storage)]
        plain = format.floats and format.block == 1 or format.name == "f64"
        kind = format.dtype if plain else np.dtype(f"V{item_of(kernel, operand, storages)}")
        a, b = expected[operand.name].view(kind), other[operand.name].view(kind)
        unlike = np.not_equal(*(v.view(np.uint8).reshape(v.size, kind.itemsize) for v in (a, b)))
        if plain:
            a, b = decoded(a), decoded(b)
        differ = unlike.any(axis=1) & ~(np.isnan(a) & np.isnan(b) if plain else np.False_)
        if not differ.any():
            continue
        index, most = int(np.argmax(differ)), None
        if plain:
            apart = np.abs(np.subtract(a, b, dtype=np.float64))
            most = float(apart.max(where=differ, initial=0))
        values, wrong = (a[index], b[index]), int(differ.sum())
        offset = index * kind.itemsize
        return Difference(operand.name, index, values, offset, wrong, a.size, most)
    return None


def difference(
    kernel: Kernel,
    storages: Mapping[str, str],
    expected: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
) -> str:
    """`first_difference` between plain Python and the compiled kernel, in words; "" for None."""
    result = first_difference(kernel, storages, expected, other)
    if result is None:
        return ""
    here, there = result.values
    return (
        f"{result.operand}[{result.element}]: {here!r} in plain Python, {there!r} compiled; "
        f"{result.wrong} of {result.size} elements differ"
    )
