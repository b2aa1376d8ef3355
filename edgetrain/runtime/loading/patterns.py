"""Checks sparse patterns from files before kernels use them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputFileError, ProgramError
from ...program import Program

if TYPE_CHECKING:  # only for sparse Programs: on a device every module counts
    from ...formats.csr import Layer

Instruction = tuple[str, str, Mapping, dict[str, Any]]  # tape, kernel, storages, words by operand

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
        raise ProgramError(damaged(program.model_name, repr(error))) from error
    if not sound:
        raise ProgramError(damaged(program.model_name, "a layer has no elements"))
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
        raise error(damaged(label, result))


def check_instructions(program: Program, layers: Sequence["Layer"]) -> None:
    """Check that instructions match the shape of their sparse layer, and that a rewiring handles
    the layers in pool order; tapes must be well formed.

    Raises:
      ProgramError: an instruction does not match its layer.
    """
    instructions = _pattern_instructions(program)
    if not layers:
        for _, name, _, _ in instructions:
            raise ProgramError(damaged(program.model_name, f"operands of {name}"))
        return
    from .pattern_instructions import check_each

    check_each(program, layers, instructions)


def _pattern_instructions(program: Program) -> Iterator[Instruction]:
    """Instructions with pointers or the table."""
    from ...kernels.tapes.decode import bound, decode

    kernels = bound(program.kernels, program.revisions)
    for tape, words in program.tapes.items():
        for call in decode(words.tolist(), kernels):
            if "pointers" in call.values or "table" in call.values:
                yield tape, call.kernel.name, call.storages, dict(call.values)


def damaged(label: str, what: str) -> str:
    """The message about sparse weights that can't be used."""
    return (
        f"{label}: its sparse weights are damaged ({what}). Compile the model again, or use an "
        "older checkpoint."
    )
