"""Checks sparse patterns from files before kernels use them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputFileError, ProgramError
from ...program import Program

if TYPE_CHECKING:  # only for sparse Programs: on a device every module counts
    from ...formats.csr import Layer

# Kernels that may write patterns, in rewiring order; all but csr_share run once per layer.
REWIRING = ("csr_drop", "csr_close", "csr_share", "csr_grow")


def sparse_layers(program: Program) -> tuple["Layer", ...]:
    """The sparse layers of a Program, in pool order.

    Raises:
      ProgramError: they are damaged.
    """
    if program.recipe.get("sparse_layers", []) == []:
        return ()
    from ...formats.csr import layers_of

    try:
        layers = layers_of(program.recipe)
        sound = all(
            min(*layer.shape, layer.share, layer.cap) > 0 and len(layer.shape) >= 2
            for layer in layers
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ProgramError(_damaged(program.model_name, repr(error))) from error
    if not sound:
        raise ProgramError(_damaged(program.model_name, "a layer has no elements"))
    return layers


def pattern_names(layers: Sequence["Layer"]) -> set[str]:
    """Names of the values that store the patterns of these layers."""
    if not layers:
        return set()
    from ...formats.csr import COLUMNS, TABLE, pointers_name

    return {COLUMNS, TABLE, *(pointers_name(layer.name) for layer in layers)}


def check_pattern(
    layers: Sequence["Layer"],
    state: Mapping[str, np.ndarray],
    label: str,
    error: type[InputFileError],
) -> None:
    """Raise `error` if columns, pointers or caps are invalid."""
    if not layers:
        return
    from ...formats.csr import fault

    if result := fault(layers, state):
        raise error(_damaged(label, result))


def check_instructions(program: Program, layers: Sequence["Layer"]) -> None:
    """Check that instructions match the shape of their sparse layer, and that a rewiring handles
    the layers in pool order; tapes must be well formed.

    Raises:
      ProgramError: an instruction does not match its layer.
    """
    instructions = _pattern_instructions(program)
    if not layers:
        for _, name, _, _ in instructions:
            raise ProgramError(_damaged(program.model_name, f"operands of {name}"))
        return
    from ...formats.csr import COLUMNS, POOL, TABLE, pointers_name

    slots = {slot.name: slot for slot in program.persistent}
    offsets = {name: slots[name].offset for name in (COLUMNS, TABLE, POOL) if name in slots}
    numbers = {slots[pointers_name(layer.name)].offset: k for k, layer in enumerate(layers)}
    rewired: dict[str, list[tuple[str, int]]] = {name: [] for name in program.tapes}
    for tape, name, storages, values in instructions:
        if name in REWIRING:
            rewired[tape].append((name, values.get("layer", 0)))
        operands = {"columns": offsets.get(COLUMNS), "table": offsets.get(TABLE)}
        if name in REWIRING:
            operands["w"] = offsets.get(POOL)
        sound = all(values.get(key, value) == value for key, value in operands.items())
        if sound:
            columns = slots[COLUMNS]
            sound = values.get("slots", columns.size) == columns.size
            sound = sound and storages.get("I", columns.dtype) == columns.dtype
        number = numbers.get(values.get("pointers", -1), -1)
        if not sound or ("pointers" in values and number < 0):
            raise ProgramError(_damaged(program.model_name, f"operands of {name}"))
        wanted = _shape(layers[number], number, len(layers))
        for key in ("room", "held"):  # only the layer's slots, up to its maximum
            if values.get(key):
                wanted[key] = min(layers[number].cap, columns.size)
        if "kh" in values:
            values |= {"rows": values["k"], "channels": values["c"] // values["g"]}
            values |= {"taps": values["kh"] * values["kw"]}
        if any(values[key] != wanted[key] for key in wanted.keys() & values.keys()):
            raise ProgramError(_damaged(program.model_name, f"integers of {name}"))
    whole = [(name, k) for name in REWIRING[:2] for k in range(len(layers))]
    whole += [(REWIRING[2], 0)] + [(REWIRING[3], k) for k in reversed(range(len(layers)))]
    for tape, found in rewired.items():
        if found and (tape != "rewire" or found != whole):
            raise ProgramError(_damaged(program.model_name, "the order of a rewiring"))


def _shape(layer: "Layer", number: int, count: int) -> dict[str, int]:
    shape = {"rows": layer.rows, "channels": layer.channels, "taps": layer.taps}
    return shape | {"chunk": layer.chunk, "groups": layer.groups, "layer": number, "layers": count}


def _pattern_instructions(program: Program) -> Iterator[tuple[str, str, Mapping, dict[str, Any]]]:
    """(tape, kernel, storages, words by operand) of instructions with pointers or the table."""
    from ...kernels.tapes.decode import bound, decode

    kernels = bound(program.kernels, program.revisions)
    for tape, words in program.tapes.items():
        for call in decode(words.tolist(), kernels):
            if "pointers" in call.values or "table" in call.values:
                yield tape, call.kernel.name, call.storages, dict(call.values)


def _damaged(label: str, what: str) -> str:
    return (
        f"{label}: its sparse weights are damaged ({what}). Compile the model again, or use an "
        "older checkpoint."
    )
