"""Checks the instructions of sparse layers; Programs without any don't load this."""

from collections.abc import Iterable, Sequence

from ...errors import ProgramError
from ...formats.csr import COLUMNS, POOL, TABLE, Layer, pointers_name
from ...program import Program
from .patterns import REWIRING, Instruction, damaged


def check_each(
    program: Program, layers: Sequence[Layer], instructions: Iterable[Instruction]
) -> None:
    """Implements `check_instructions` for a Program with sparse layers.

    Raises:
      ProgramError: an instruction does not match its layer.
    """
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
        sound = all(values.get(key, at) == at for key, at in operands.items())
        if sound:
            columns = slots[COLUMNS]
            sound = values.get("slots", columns.size) == columns.size
            sound = sound and storages.get("I", columns.dtype) == columns.dtype
        number = numbers.get(values.get("pointers", -1), -1)
        if not sound or ("pointers" in values and number < 0):
            raise ProgramError(damaged(program.model_name, f"operands of {name}"))
        wanted = _shape(layers[number], number, len(layers))
        for key in ("room", "held"):  # only the layer's slots, up to its maximum
            if values.get(key):
                wanted[key] = min(layers[number].cap, columns.size)
        if "kh" in values:
            values |= {"rows": values["k"], "channels": values["c"] // values["g"]}
            values |= {"taps": values["kh"] * values["kw"]}
        if any(values[key] != wanted[key] for key in wanted.keys() & values.keys()):
            raise ProgramError(damaged(program.model_name, f"integers of {name}"))
    whole = [(name, k) for name in REWIRING[:2] for k in range(len(layers))]
    whole += [(REWIRING[2], 0)] + [(REWIRING[3], k) for k in reversed(range(len(layers)))]
    for tape, found in rewired.items():
        if found and (tape != "rewire" or found != whole):
            raise ProgramError(damaged(program.model_name, "the order of a rewiring"))


def _shape(layer: Layer, number: int, count: int) -> dict[str, int]:
    shape = {"rows": layer.rows, "channels": layer.channels, "taps": layer.taps}
    return shape | {"chunk": layer.chunk, "groups": layer.groups, "layer": number, "layers": count}
