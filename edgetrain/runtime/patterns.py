"""Sparse patterns that come from a file are proved before a kernel trusts them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..compiler.program import Program
from ..errors import InputFileError, ProgramError
from ..storage import csr
from ..storage.csr import COLUMNS, Layer, pointers_name
from .executor import bound_kernels


def sparse_layers(program: Program) -> tuple[Layer, ...]:
    """The sparse layers of a Program, in pool order.

    Raises:
      ProgramError: they are not what the compiler writes.
    """
    try:
        layers = csr.layers_of(program.recipe)
        sound = all(
            min(*layer.shape, layer.share, layer.cap) > 0 and len(layer.shape) >= 2
            for layer in layers
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ProgramError(_damaged(program.model_name, repr(error))) from error
    if not sound:
        raise ProgramError(_damaged(program.model_name, "a layer without elements"))
    return layers


def check_pattern(
    layers: Sequence[Layer],
    state: Mapping[str, np.ndarray],
    label: str,
    error: type[InputFileError],
) -> None:
    """Raise `error` where columns, pointers or caps would lead a kernel astray."""
    found = csr.fault(layers, state) if layers else ""
    if found:
        raise error(_damaged(label, found))


def check_instructions(program: Program, layers: Sequence[Layer]) -> None:
    """Prove that instructions on a pattern have the shape of its layer; tapes are well formed.

    Raises:
      ProgramError: an instruction that would take a layer's pointers for another shape's.
    """
    slots = {slot.name: slot for slot in program.persistent}
    numbers = {slots[pointers_name(layer.name)].offset: k for k, layer in enumerate(layers)}
    for name, storages, values in _pattern_instructions(program):
        number = numbers.get(values["pointers"], -1)
        columns = slots.get(COLUMNS)
        if number < 0 or columns is None or values["slots"] != columns.size:
            raise ProgramError(_damaged(program.model_name, f"operands of {name}"))
        if "columns" in values and (values["columns"], storages["I"]) != (
            columns.offset,
            columns.dtype,
        ):
            raise ProgramError(_damaged(program.model_name, f"operands of {name}"))
        wanted = _shape(layers[number], number, len(layers))
        if "c" in values:
            values |= {"rows": values["k"], "channels": values["c"] // values["g"]}
            values |= {"taps": values["kh"] * values["kw"]}
        if any(values[key] != wanted[key] for key in wanted.keys() & values.keys()):
            raise ProgramError(_damaged(program.model_name, f"integers of {name}"))


def _shape(layer: Layer, number: int, count: int) -> dict[str, int]:
    shape = {"rows": layer.rows, "channels": layer.channels, "taps": layer.taps}
    return shape | {
        "chunk": layer.chunk, "groups": layer.groups, "layer": number, "layers": count,
    }  # fmt: skip


def _pattern_instructions(program: Program) -> Iterator[tuple[str, Mapping, dict[str, Any]]]:
    """(kernel, storages, words by operand) of every instruction that reads pointers."""
    kernels = bound_kernels(program)
    operands = [
        [o.name for o in kernel.spec.operands for _ in range(2 if o.mode == "t" else 1)]
        for kernel, _ in kernels
    ]
    for tape in program.tapes.values():
        words, at = tape.tolist(), 0
        while at < len(words):
            index, count = words[at], words[at + 1]
            if "pointers" in operands[index]:
                values = dict(zip(operands[index], words[at + 2 : at + 2 + count], strict=True))
                kernel, storages = kernels[index]
                yield kernel.name, storages, values
            at += 2 + count


def _damaged(label: str, what: str) -> str:
    return (
        f"{label}: its sparse weights are damaged ({what}); expected the pattern that edgetrain "
        "wrote. Compile the model again or use an older checkpoint."
    )
