"""Checks the slots of a Program: their places, and which tapes may write them.

Critical roles follow from names in the recipe: control block, positions of sparse weights,
gradients. Other roles decide what a checkpoint contains, and must agree with what updates write
according to kernel declarations.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...errors import ProgramError
from ...formats import POSITIONS
from ...kernels.declaration.spec import ALIGN
from ...kernels.tapes.decode import Decoded
from ...program import Program, Slot
from .patterns import REWIRING, pattern_names, sparse_layers

TOUCHED = ".rows"  # suffix of the map of a gradient's rows
GRADIENT = ".grad"  # suffix of a parameter's gradient
_WRITERS = {
    "parameter": ("update", "rewire"),
    "state": ("update", "rewire"),
    "index": ("rewire",),
    "accumulator": ("micro", "update"),
    "buffer": ("update",),
    "staged": ("micro",),
}
_ROLES = (*_WRITERS, "constant", "control")


class Slots:
    """The persistent slots of a Program, checked for overlaps and roles.

    Raises:
      ProgramError: names a slot with a wrong place or role.
    """

    def __init__(self, program: Program, arena_nbytes: int) -> None:
        self._label = program.model_name
        self._fused = bool(program.recipe.get("fused_update"))
        taken = self._disjoint(program.persistent, arena_nbytes)
        # After the arena, and read-only whatever their role.
        taken += self._disjoint(
            [
                replace(slot, offset=arena_nbytes + slot.offset, role="constant")
                for slot in program.mapped
            ],
            arena_nbytes + program.mapped_nbytes,
        )
        self._slots = [slot for slot in taken if slot.size]
        self._starts = [slot.offset for slot in self._slots]
        self._check_roles(program)
        for tape, slots in program.inputs.items():
            staged = [*slots, *([program.targets[tape]] if tape in program.targets else [])]
            inside = [slot for slot in self._slots if slot.offset < arena_nbytes]
            self._disjoint([*inside, *staged], arena_nbytes)
        for slots in program.outputs.values():
            for slot in slots:
                self._disjoint([slot], arena_nbytes)

    def meeting(self, start: int, stop: int) -> list[Slot]:
        """Slots that overlap [start, stop)."""
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_right(self._starts, stop - 1)
        return [slot for slot in self._slots[first:last] if slot.offset + slot.nbytes > start]

    def writer(self, slot: Slot, tape: str) -> str:
        """The tape whose write permissions apply: fused updates are part of the micro tape."""
        moves = self._fused and tape == "micro" and slot.role in ("parameter", "state")
        return "update" if moves else tape

    def _disjoint(self, slots: Iterable[Slot], arena_nbytes: int) -> list[Slot]:
        """`slots` in order of offset, checked for overlaps."""
        ordered = sorted(slots, key=lambda slot: (slot.offset, slot.nbytes))
        end, last = 0, ""
        for slot in ordered:
            if slot.offset < end and slot.size:
                raise self._fault(slot, f"it overlaps {last!r}")
            stop = slot.offset + slot.nbytes
            if slot.offset % ALIGN or stop > arena_nbytes:
                raise self._fault(slot, f"bytes {slot.offset} to {stop} of {arena_nbytes}")
            if slot.size:
                end, last = stop, slot.name
        return ordered

    def _check_roles(self, program: Program) -> None:
        slots = {slot.name: slot for slot in program.lasting}
        special = dict.fromkeys(pattern_names(sparse_layers(program)), "index")
        special |= {"ctl": "control"}
        usual = [role for role in _ROLES if role not in ("index", "control")]
        if len(slots) != len(program.lasting):
            raise ProgramError(f"{self._label}: two slots have one name. Compile the model again.")
        for name, slot in slots.items():
            allowed = (special[name],) if name in special else usual
            if slot.role not in allowed:
                raise self._fault(slot, f"its role is {slot.role!r}, not {' or '.join(allowed)}")
            if slot.role == "accumulator":
                self._check_gradient(
                    slot, {**{s.name: s for s in program.inputs["micro"]}, **slots}
                )

    def _check_gradient(self, slot: Slot, slots: Mapping[str, Slot]) -> None:
        """Check a gradient's shape: that of its parameter or input, or fewer rows of a parameter
        with a map of these rows."""
        owner = slots.get(slot.name.removesuffix(TOUCHED).removesuffix(GRADIENT))
        known = slots.get(slot.name + TOUCHED)
        shapes: list[tuple[int, ...]] = []
        if owner is not None and owner.role == "input":
            shapes = [owner.shape]
        elif owner is not None and owner.role == "parameter":
            shapes = [owner.shape]
            if slot.name.endswith(TOUCHED):
                is_map = slot.format is POSITIONS and owner.shape
                shapes = [(owner.shape[0] + 1,)] if is_map else []
            elif known is not None and len(owner.shape) == len(slot.shape) == 2:
                shapes = [(min(slot.shape[0], owner.shape[0]), owner.shape[1])]
        if slot.shape not in shapes:
            raise self._fault(slot, "no parameter or input has such a gradient")

    def _fault(self, slot: Slot, what: str) -> ProgramError:
        return ProgramError(f"{self._label}: slot {slot.name!r}: {what}. Compile the model again.")


def may_write(call: Decoded, operand: str, slot: Slot, tape: str) -> bool:
    """Whether an instruction of this tape may write a persistent slot with this operand."""
    if slot.role == "control":
        return True
    if tape not in _WRITERS.get(slot.role, ()):
        return False
    if slot.role == "index":
        return call.kernel.name in REWIRING
    return tape == "micro" or slot.role == "buffer" or call.kernel.role_of(operand) == slot.role
