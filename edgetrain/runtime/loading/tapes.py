"""Checks tapes from files before they run.

Kernel declarations of this build say what an instruction accesses and how long it runs; the file
does not. The checks: instructions stay in the arena; persistent values are accessed one at a time,
in their own storage format, and written only by permitted tapes; workspaces do not overlap other
operands; kernel variants are those that the integers require; every kernel in the table is used;
and the work is as compiled.

Work counts iterations of innermost loops. A Program states the compiler's count for each tape and
kernel; a tape may take `SLACK` times as many. The statement may be false, but then the arena still
bounds each instruction: kernels that touch each element a few times are bounded by the number of
elements (strides of 0 don't help), products and convolutions by outputs times the elements of one
factor.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...errors import OutdatedError
from ...formats import FORMATS
from ...kernels import registry
from ...kernels.declaration.spec import ALIGN
from ...kernels.tapes.decode import Bound, Decoded, bound, decode
from ...kernels.targets import LANES, host, lanes_of
from ...program import Program
from ...program.mapped_file import check_files
from .roles import Slots, may_write

SLACK = 4
_TRUSTED = ("i32", "I")  # storages (or variables for them) of operands that contain positions


class _Region(NamedTuple):
    """Bytes [start, stop) of the arena accessed by an operand; mode as in the declaration; trusted:
    positions, which a kernel may read again after checking them."""

    name: str
    mode: str
    storage: str
    start: int
    stop: int
    trusted: bool = False

    def meets(self, start: int, stop: int) -> bool:
        return self.start < stop and start < self.stop


def check_program(program: Program, arena_nbytes: int) -> list[Bound]:
    """Check that the tapes of a Program stay within its arena, its slots and its stated work.

    Returns:
      This build's kernels by index in the tapes.
    Raises:
      ProgramError: names the bad instruction or slot.
      RunError: the Program file was truncated or overwritten.
    """
    kernels = bound(program.kernels, program.revisions)
    slots = Slots(program, arena_nbytes)
    planned = lanes_of(program.recipe)
    lanes, used = _variants_for(program), set()
    for tape, words in program.tapes.items():
        left = {name: SLACK * turns for name, turns in program.work.get(tape, {}).items()}
        for call in decode(words.tolist(), kernels):
            used.add((call.kernel.name, call.kernel.variant, tuple(call.storages.values())))
            _check_words(call, arena_nbytes + program.mapped_nbytes)
            extents = call.extents(program.threads, planned)
            regions = _regions(call, extents, program.threads, planned)
            _check_regions(call, regions, arena_nbytes, slots)
            for region in regions:
                _check_slots(call, region, tape, slots)
            if call.kernel.name == "resample":
                _check_tables(call, program)
            lanes &= _lanes_of(call, lanes)
            if not lanes:
                raise OutdatedError(
                    f"tape word {call.offset}: {call.kernel.name}.{call.kernel.variant} is not the "
                    "variant its integers require."
                )
            turns = call.work(extents, program.threads, planned)
            _take(left, call, tape, turns)
    unused = [row[0] for row in program.kernels if row not in used]
    if unused:
        raise OutdatedError(f"{program.model_name}: kernel {unused[0]} is listed but not used.")
    return kernels


def _variants_for(program: Program) -> set[int]:
    """Lane counts that a Program's variants may be for: its own, or any if unknown."""
    own = program.recipe.get("lanes")
    return {own} if own else {host().lanes, *LANES}


def _lanes_of(call: Decoded, lanes: set[int]) -> set[int]:
    """The lane counts in `lanes` for which the compiler would choose this variant."""
    variants = registry.variants(call.kernel.name)
    fitting = set()
    for count in lanes:
        first = next((k for k in variants if k.suits(call.values, call.storages, count)), None)
        if first is call.kernel:
            fitting.add(count)
    return fitting


def _take(left: dict[str, int], call: Decoded, tape: str, turns: int) -> None:
    name = call.kernel.name
    left[name] = left.get(name, 0) - turns
    if left[name] < 0:
        raise OutdatedError(
            f"tape word {call.offset}: with this instruction, {name} does more than {SLACK} times "
            f"the stated work of tape {tape}."
        )


def _check_regions(call: Decoded, regions: list[_Region], arena_nbytes: int, slots: Slots) -> None:
    """Check that operands are in the arena, aligned, and don't overlap workspaces; operands after
    the end of the arena must be in a mapped slot, read-only."""
    for region in regions:
        align = ALIGN if region.mode == "t" else FORMATS[region.storage].alignment
        outside = region.start < 0 or region.stop < region.start or region.stop > arena_nbytes
        if outside and region.mode == "r" and region.start >= arena_nbytes:
            outside = not slots.meeting(region.start, region.stop)
        if outside or region.start % align:
            raise OutdatedError(
                f"tape word {call.offset}: operand {region.name} of {call.kernel.name} uses bytes "
                f"{region.start} to {region.stop}, but the arena has {arena_nbytes}."
            )
    fixed = [region for region in regions if region.mode == "t" or region.trusted]
    for other in fixed:
        for region in regions:
            # a workspace overlaps nothing; positions may be read, not written
            harmful = other.mode == "t" or region.mode != "r"
            if harmful and region is not other and region.meets(other.start, other.stop):
                raise OutdatedError(
                    f"tape word {call.offset}: operand {region.name} of {call.kernel.name} "
                    f"overlaps its {other.name}."
                )


def _check_words(call: Decoded, arena_nbytes: int) -> None:
    most = 8 * arena_nbytes
    for operand in call.kernel.spec.operands:
        word = call.values.get(operand.name, 0)
        if operand.range is not None and operand.range.measures and abs(word) > most:
            raise OutdatedError(
                f"tape word {call.offset}: {operand.name} of {call.kernel.name} is {word}, too "
                f"large for an arena of {arena_nbytes} bytes."
            )


def _regions(call: Decoded, extents: Mapping[str, int], threads: int, lanes: int) -> list[_Region]:
    """Regions accessed by an instruction, its workspace last."""
    spec, regions = call.kernel.spec, []
    for operand in spec.operands:
        if operand.name in extents:
            start = call.values[operand.name]
            storage = call.storages.get(operand.storage, operand.storage)
            stop = start + extents[operand.name]
            trusted = operand.storage in _TRUSTED
            regions.append(_Region(operand.name, operand.mode, storage, start, stop, trusted))
    need = spec.scratch_nbytes(call.values, threads, lanes)
    if need:
        start, stride = call.scratch or (0, 0)
        if stride < need or stride % ALIGN:
            raise OutdatedError(
                f"tape word {call.offset}: {call.kernel.name} has {stride} workspace bytes per "
                f"thread; expected at least {need}, a multiple of {ALIGN}."
            )
        regions.append(_Region("scratch", "t", "u8", start, start + stride * threads))
    return regions


def _check_slots(call: Decoded, region: _Region, tape: str, slots: Slots) -> None:
    """Check regions in persistent slots: inside the slot, its format, and the right to write."""
    is_control, met = region.name == "ctl", slots.meeting(region.start, region.stop)
    # With several losses, each has its own block; its gradient only compares the numbers there.
    own = not met and region.mode == "r" and call.kernel.family == "losses"
    if is_control and not own and [slot.name for slot in met] != ["ctl"]:
        raise OutdatedError(
            f"tape word {call.offset}: {call.kernel.name} uses a wrong address for the "
            "control block."
        )
    for slot in met:
        inside = slot.offset <= region.start and region.stop <= slot.offset + slot.nbytes
        if not inside or region.storage != slot.dtype or (slot.role == "control") != is_control:
            raise OutdatedError(
                f"tape word {call.offset}: operand {region.name} ({region.storage}) of "
                f"{call.kernel.name} accesses bytes {region.start} to {region.stop}, which do not "
                f"match {slot.name!r} ({slot.dtype})."
            )
        writer = slots.writer(slot, tape)
        if region.mode != "r" and not may_write(call, region.name, slot, writer):
            what = "the positions of sparse weights" if slot.role == "index" else f"{slot.name!r}"
            raise OutdatedError(
                f"tape word {call.offset}: operand {region.name} of {call.kernel.name} writes "
                f"{what}, a {slot.role} that {tape} must not write."
            )


def _check_tables(call: Decoded, program: Program) -> None:
    """Check that tap tables are constants with rising starts, so no tap is read twice."""
    constants = {slot.offset: slot for slot in program.persistent if slot.role == "constant"}
    constants |= {program.arena_nbytes + slot.offset: slot for slot in program.mapped}
    check_files(program.init)
    for table, size, taps in (("rows", "oh", "rt"), ("cols", "ow", "ct")):
        if call.values[table] < 0:
            continue
        slot = constants.get(call.values[table])
        array = program.init.get(slot.name) if slot is not None else None
        starts = array.reshape(-1)[: call.values[size] + 1] if array is not None else ()
        steps = np.diff(np.clip(starts, 0, call.values[taps])) if len(starts) else -np.ones(1)
        if (steps < 0).any():
            raise OutdatedError(
                f"tape word {call.offset}: {table} of {call.kernel.name} is not a valid tap table."
            )
