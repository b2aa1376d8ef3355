"""Tapes that come from a file are proved before a worker enters them.

The declarations of this build's kernels say what an instruction touches and how long it runs; the
file says neither. What is proved: an instruction stays inside the arena; what lies there from the
first step to the last is touched one whole value at a time, in its own storage, and written only by
tapes that may; scratch is scratch, of the instruction that has it; a kernel's variant is the one
that its integers call for; every kernel of the table is used; the work is what was compiled.

Work counts turns of innermost loops. A Program states, for each tape and kernel, what the compiler
counted in the model's own shapes; a tape may take `SLACK` times as many. The statement may be false
too, but then it is still the arena that bounds an instruction: kernels that touch an element a few
times are bounded by the elements (strides of 0 buy nothing), products and convolutions by outputs
times the elements of one factor.
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
_TRUSTED = ("i32", "I")  # storages, or variables for them, of operands with positions


class _Region(NamedTuple):
    """Bytes [start, stop) of the arena that an operand takes; mode as in the declaration; trusted:
    positions, which a kernel may read again after it has checked them."""

    name: str
    mode: str
    storage: str
    start: int
    stop: int
    trusted: bool = False

    def meets(self, start: int, stop: int) -> bool:
        return self.start < stop and start < self.stop


def check_program(program: Program, arena_nbytes: int) -> list[Bound]:
    """Prove that the tapes of a Program keep to its arena, its slots and its work.

    Returns:
      This build's kernels by the index that tapes use.
    Raises:
      ProgramError: names the instruction or slot and what is wrong with it.
      RunError: the Program's file was cut short or written over since it was read.
    """
    kernels = bound(program.kernels, program.revisions)
    slots = Slots(program, arena_nbytes)
    planned = lanes_of(program.recipe)
    lanes, used = _variants_for(program), set()
    for tape, words in program.tapes.items():
        left = {name: SLACK * turns for name, turns in program.work.get(tape, {}).items()}
        for found in decode(words.tolist(), kernels):
            used.add((found.kernel.name, found.kernel.variant, tuple(found.storages.values())))
            _check_words(found, arena_nbytes + program.mapped_nbytes)
            extents = found.extents(program.threads, planned)
            regions = _regions(found, extents, program.threads, planned)
            _check_regions(found, regions, arena_nbytes, slots)
            for region in regions:
                _check_slots(found, region, tape, slots)
            if found.kernel.name == "resample":
                _check_tables(found, program)
            lanes &= _lanes_of(found, lanes)
            if not lanes:
                raise OutdatedError(
                    f"tape word {found.at}: {found.kernel.name}.{found.kernel.variant} is not what "
                    "its integers call for."
                )
            turns = found.work(extents, program.threads, planned)
            _take(left, found, tape, turns)
    unused = [row[0] for row in program.kernels if row not in used]
    if unused:
        raise OutdatedError(
            f"{program.model_name}: kernel {unused[0]} is listed and no tape uses it."
        )
    return kernels


def _variants_for(program: Program) -> set[int]:
    """Lanes that may have chosen a Program's variants: its own, or any where it does not say."""
    own = program.recipe.get("lanes")
    return {own} if own else {host().lanes, *LANES}


def _lanes_of(found: Decoded, lanes: set[int]) -> set[int]:
    """Those of `lanes` for which this is the variant that the compiler would have chosen."""
    variants = registry.variants(found.kernel.name)
    fitting = set()
    for count in lanes:
        first = next((k for k in variants if k.suits(found.values, found.storages, count)), None)
        if first is found.kernel:
            fitting.add(count)
    return fitting


def _take(left: dict[str, int], found: Decoded, tape: str, turns: int) -> None:
    name = found.kernel.name
    left[name] = left.get(name, 0) - turns
    if left[name] < 0:
        raise OutdatedError(
            f"tape word {found.at}: with this instruction {name} takes more than {SLACK} times the "
            f"work of the model's shapes in {tape}."
        )


def _check_regions(found: Decoded, regions: list[_Region], arena_nbytes: int, slots: Slots) -> None:
    """Operands lie in the arena, at multiples of their elements, and not on scratch; those behind
    it in a mapped slot, which is read alone."""
    for region in regions:
        align = ALIGN if region.mode == "t" else FORMATS[region.storage].alignment
        outside = region.start < 0 or region.stop < region.start or region.stop > arena_nbytes
        if outside and region.mode == "r" and region.start >= arena_nbytes:
            outside = not slots.meeting(region.start, region.stop)
        if outside or region.start % align:
            raise OutdatedError(
                f"tape word {found.at}: operand {region.name} of {found.kernel.name} takes bytes "
                f"{region.start} to {region.stop} of an arena of {arena_nbytes}."
            )
    fixed = [region for region in regions if region.mode == "t" or region.trusted]
    for other in fixed:
        for region in regions:
            # scratch is what a kernel has to itself; positions may be read, not written
            harmful = other.mode == "t" or region.mode != "r"
            if harmful and region is not other and region.meets(other.start, other.stop):
                raise OutdatedError(
                    f"tape word {found.at}: operand {region.name} of {found.kernel.name} lies on "
                    f"its {other.name}."
                )


def _check_words(found: Decoded, arena_nbytes: int) -> None:
    most = 8 * arena_nbytes
    for operand in found.kernel.spec.operands:
        word = found.values.get(operand.name, 0)
        if operand.range is not None and operand.range.measures and abs(word) > most:
            raise OutdatedError(
                f"tape word {found.at}: {operand.name} of {found.kernel.name} is {word}; an arena "
                f"of {arena_nbytes} bytes has nothing to count so far."
            )


def _regions(found: Decoded, extents: Mapping[str, int], threads: int, lanes: int) -> list[_Region]:
    """What an instruction touches, scratch last."""
    spec, regions = found.kernel.spec, []
    for operand in spec.operands:
        if operand.name in extents:
            start = found.values[operand.name]
            storage = found.storages.get(operand.storage, operand.storage)
            stop = start + extents[operand.name]
            trusted = operand.storage in _TRUSTED
            regions.append(_Region(operand.name, operand.mode, storage, start, stop, trusted))
    need = spec.scratch_nbytes(found.values, threads, lanes)
    if need:
        start, stride = found.scratch or (0, 0)
        if stride < need or stride % ALIGN:
            raise OutdatedError(
                f"tape word {found.at}: {found.kernel.name} has {stride} bytes of scratch a "
                f"thread, needs {need} in multiples of {ALIGN}."
            )
        regions.append(_Region("scratch", "t", "u8", start, start + stride * threads))
    return regions


def _check_slots(found: Decoded, region: _Region, tape: str, slots: Slots) -> None:
    """A region that meets a persistent slot lies in it and has its storage, and may be written."""
    is_control, met = region.name == "ctl", slots.meeting(region.start, region.stop)
    # One of several losses has a block of its own, whose numbers its gradient only compares.
    own = not met and region.mode == "r" and found.kernel.family == "losses"
    if is_control and not own and [slot.name for slot in met] != ["ctl"]:
        raise OutdatedError(
            f"tape word {found.at}: {found.kernel.name} takes other bytes for the control block."
        )
    for slot in met:
        inside = slot.offset <= region.start and region.stop <= slot.offset + slot.nbytes
        if not inside or region.storage != slot.dtype or (slot.role == "control") != is_control:
            raise OutdatedError(
                f"tape word {found.at}: operand {region.name} ({region.storage}) of "
                f"{found.kernel.name} takes bytes {region.start} to {region.stop}, which are not "
                f"its part of {slot.name!r} ({slot.dtype})."
            )
        writer = slots.writer(slot, tape)
        if region.mode != "r" and not may_write(found, region.name, slot, writer):
            what = "the positions of sparse weights" if slot.role == "index" else f"{slot.name!r}"
            raise OutdatedError(
                f"tape word {found.at}: operand {region.name} of {found.kernel.name} lies on {what}"
                f", a {slot.role} that {tape} may not write so."
            )


def _check_tables(found: Decoded, program: Program) -> None:
    """Tables of taps are constants whose starts rise, so that no tap is read twice."""
    constants = {slot.offset: slot for slot in program.persistent if slot.role == "constant"}
    constants |= {program.arena_nbytes + slot.offset: slot for slot in program.mapped}
    check_files(program.init)
    for table, size, taps in (("rows", "oh", "rt"), ("cols", "ow", "ct")):
        if found.values[table] < 0:
            continue
        slot = constants.get(found.values[table])
        array = program.init.get(slot.name) if slot is not None else None
        starts = array.reshape(-1)[: found.values[size] + 1] if array is not None else ()
        steps = np.diff(np.clip(starts, 0, found.values[taps])) if len(starts) else -np.ones(1)
        if (steps < 0).any():
            raise OutdatedError(
                f"tape word {found.at}: {table} of {found.kernel.name} is not a table of taps."
            )
