"""The initial memory of a bundle, and the tables that describe it.

Offsets are in bytes from the start of the memory. It contains the device's words (kernels/device),
the plan block, the data that these words point to, and the arena.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..kernels.device import layout as device
from ..kernels.step_loop import layout as plans
from ..kernels.tapes.tape import BARRIER_WORDS, LIMIT, MOST, MOST_SPIN
from ..program import WEIGHT, WEIGHTS, Program, Slot
from ..program.mapped_file import check_files
from ..program.plan_block import control_words, sizes, zeroed
from ..program.samples import elements
from ..program.stored import blocks, stored_places
from .lengths import Mapped, arena_nbytes

TAPES = ("rate", "micro", "update", "rewire", "eval")
_RUN_WORDS = 5  # operands of `run_tape`; followed by a number of threads, if there are several


@dataclass
class Image:
    """Tables of a bundle; see kernels/device/layout.py.

    Attributes:
      literals: offset -> word.
      relatives: offset -> offset that it points to.
      addresses: offset -> (symbol, byte offset from it).
      arena_nbytes: size of the arena; with several lengths, of the largest.
      control_nbytes: bytes before the arena.
      sets: with several lengths, one image per length, shortest first, with only the words that
        differ between them.
      state: (name, offset, bytes, offset in a stored state) of everything saved; the control block
        is last.
      values: slots that can be read and set.
    """

    program: Program
    align: int
    arena_nbytes: int = 0
    literals: dict[int, int] = field(default_factory=dict)
    relatives: dict[int, int] = field(default_factory=dict)
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    control_nbytes: int = 0
    state: list[tuple[str, int, int, int]] = field(default_factory=list)
    values: list[Slot] = field(default_factory=list)
    sets: "tuple[Image, ...]" = ()

    def __post_init__(self) -> None:
        self.arena_nbytes = self.arena_nbytes or self.program.arena_nbytes

    @property
    def programs(self) -> tuple[Program, ...]:
        """The Program at each length; () if there is only one."""
        return tuple(item.program for item in self.sets)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, whose start is a multiple of `align`."""
        return self.control_nbytes + self.arena_nbytes

    @property
    def stored_nbytes(self) -> int:
        """Bytes of a stored state without its header."""
        _, _, nbytes, offset = self.state[-1]
        return offset + blocks(nbytes) - device.BLOCK

    def place(self, slot: Slot) -> int:
        """Offset in the memory of an arena slot."""
        return self.control_nbytes + slot.offset


def image_of(
    program: Program,
    lengths: dict[str, int],
    argument_words: int,
    align: int,
    sets: Sequence[Program] = (),
) -> Image:
    """Lay out a bundle's memory.

    Args:
      lengths: bytes of each tape.
      argument_words: maximum number of operands of an instruction.
      align: alignment of the memory, and of the arena in it.
      sets: the Program at each of its lengths, shortest first; () if there is only one.
    """
    places = _places(program, lengths, argument_words, align, sets)
    if not sets:
        return _filled(Image(program, align), places, lengths, "")
    arena = arena_nbytes(sets)
    own = [
        _filled(Image(item, align, arena_nbytes=arena), places, lengths, f".{number}")
        for number, item in enumerate(sets)
    ]
    number = next(k for k, item in enumerate(sets) if item.key == program.key)
    opened = replace(own[number], sets=_differences(own))
    _block_words(opened, places.block, number)
    return opened


@dataclass(frozen=True)
class _Places:
    """Offsets of the data before the arena."""

    runs: dict[str, int]
    barrier: int | None
    fields: list[int]
    asides: dict[str, int]
    pointers: int
    zeroes: int
    block: int
    control_nbytes: int


def _places(
    program: Program,
    lengths: dict[str, int],
    argument_words: int,
    align: int,
    sets: Sequence[Program],
) -> _Places:
    out = _Writer(device.WORDS * 8 + (plans.ARGUMENTS + argument_words) * 8)
    words = _RUN_WORDS + (program.threads > 1)
    used = {tape.partition(".")[0] for tape, nbytes in lengths.items() if nbytes}
    runs = {tape: out.take(8 * words) for tape in TAPES if tape == "rate" or tape in used}
    barrier = out.take(8 * BARRIER_WORDS) if program.threads > 1 else None
    staged = program.staged("micro")
    fields = [out.take(8 * plans.FIELD_WORDS * len(staged)) for _ in range(2)]
    asides = {
        name: out.take(max(_raw_nbytes(item, name) for item in (program, *sets)))
        for name, slot in staged.items()
        if slot.format is not slot.format.raw
    }
    pointers = out.take(8 * (len(program.inputs["micro"])))
    zeroes = out.take(16 * len(_ranges(zeroed(program))))
    block = out.take(8 * (device.COUNTS + 2 * len(sets)) if sets else 0)
    return _Places(
        runs, barrier, fields, asides, pointers, zeroes, block, -(-out.end // align) * align
    )


def _raw_nbytes(program: Program, name: str) -> int:
    """Bytes of one raw sample, as the caller provides it."""
    slot = program.staged("micro")[name]
    return slot.format.raw.nbytes(elements(program, slot))


def _filled(image: Image, places: _Places, lengths: dict[str, int], suffix: str) -> Image:
    """Fill in the words of one tape set, whose tape names end with `suffix`."""
    program = image.program
    image.control_nbytes = places.control_nbytes
    image.relatives[8 * device.PLAN] = 8 * device.WORDS
    own = {tape: lengths.get(tape + suffix, 0) for tape in TAPES}
    _plan_words(image, {k: v for k, v in places.runs.items() if k == "rate" or own[k]}, places)
    for tape, offset in places.runs.items():
        if tape == "rate" or own[tape]:
            _run_operands(image, tape, offset, own[tape], suffix, places.barrier)
    for tape, offset in zip(("micro", "eval"), places.fields, strict=True):
        for k, (name, slot) in enumerate(program.staged(tape).items()):
            _field(image, slot, offset + 8 * plans.FIELD_WORDS * k, places.asides.get(name), name)
    ranges = _ranges(zeroed(program))
    _plan(image, plans.ZEROS, len(ranges))
    image.relatives[_word(plans.ZERO)] = places.zeroes
    for k, (start, nbytes) in enumerate(ranges):
        image.relatives[places.zeroes + 16 * k] = image.control_nbytes + start
        image.literals[places.zeroes + 16 * k + 8] = nbytes
    offset = image.place(program.slot("ctl"))
    image.literals |= {offset + 8 * word: bits for word, bits in control_words(program).items()}
    image.state = [
        (s.name, image.place(s), s.nbytes, offset) for s, offset in stored_places(program)
    ]
    image.values = gettable(program)
    return image


def _block_words(image: Image, block: int, number: int) -> None:
    """Set the words that select tape set `number` in a bundle of several lengths."""
    image.relatives[_word(plans.LENGTHS)] = block
    image.addresses[block + 8 * device.USED_ROM] = f"rom.{number}", 0
    image.literals[block + 8 * device.USED] = number


def _differences(own: Sequence[Image]) -> tuple[Image, ...]:
    """Reduce the images to the words that differ between them."""
    kinds = ("literals", "relatives", "addresses")
    result = [
        {index: (kind, value) for kind in kinds for index, value in getattr(item, kind).items()}
        for item in own
    ]
    zero = ("literals", 0)
    wanted = [
        index
        for index in sorted({index for words in result for index in words})
        if len({words.get(index, zero) for words in result}) > 1
    ]
    out = []
    for item, words in zip(own, result, strict=True):
        parts: dict[str, Any] = {kind: {} for kind in kinds}
        for index in wanted:
            kind, value = words.get(index, zero)
            parts[kind][index] = value
        out.append(replace(item, **parts))
    return tuple(out)


def gettable(program: Program) -> list[Slot]:
    """Slots that can be read and set: weights, running statistics and loss weights."""
    result = [s for s in program.persistent if s.role in ("parameter", "buffer")]
    result += [s for s in program.persistent if s.name == WEIGHTS]
    return [s for s in result if s.format.floats]


class _Writer:
    def __init__(self, start: int) -> None:
        self.end = start

    def take(self, nbytes: int) -> int:
        """Reserve bytes and return their offset."""
        start = self.end
        self.end += -(-nbytes // 8) * 8
        return start


def _word(word: int) -> int:
    """Offset of a word of the plan block."""
    return 8 * (device.WORDS + word)


def _plan(image: Image, word: int, value: int) -> None:
    image.literals[_word(word)] = value


def _ranges(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge (offset, bytes) ranges of the arena that are separated only by padding."""
    out: list[tuple[int, int]] = []
    for start, nbytes in sorted(parts):
        if out and start - sum(out[-1]) < device.BLOCK:
            out[-1] = out[-1][0], start + nbytes - out[-1][0]
        elif nbytes:
            out.append((start, nbytes))
    return out


def _plan_words(image: Image, runs: dict[str, int], places: _Places) -> None:
    program, fields, pointers = image.program, places.fields, places.pointers
    image.relatives[_word(plans.CTL)] = image.place(program.slot("ctl"))
    image.addresses[_word(plans.RUN_TAPE)] = "et_run_tape__plain", 0
    image.addresses[_word(plans.STRIDES)] = "strides", 0
    for tape, offset in runs.items():
        image.relatives[_word(getattr(plans, tape.upper()))] = offset
    for word, value in sizes(program).items():
        _plan(image, word, value)
    _plan(image, plans.FIELDS, len(program.staged("micro")))
    for word, offset in zip((plans.TRAIN_FIELDS, plans.EVAL_FIELDS), fields, strict=True):
        image.relatives[_word(word)] = offset
    image.relatives[_word(plans.POINTERS)] = pointers
    output = program.outputs["eval"][0]
    image.relatives[_word(plans.OUTPUT)] = image.place(output)
    _plan(image, plans.OUTPUT_TYPE, plans.TYPES.index(output.dtype))
    _plan(image, plans.OUTPUT_SIZE, elements(program, output))


def _run_operands(
    image: Image, tape: str, offset: int, nbytes: int, suffix: str, barrier: int | None
) -> None:
    """Operands of `run_tape`: arena, code, end of code, table, barrier; then the number of
    threads."""
    image.relatives[offset] = image.control_nbytes
    if nbytes:
        image.addresses[offset + 8] = f"tape.{tape}{suffix}", 0
        image.addresses[offset + 16] = f"tape.{tape}{suffix}", nbytes
        image.addresses[offset + 24] = "table", 0
    else:
        code = 8 * device.RATE_CODE
        image.relatives[offset + 8], image.relatives[offset + 16] = code, code + 48
        image.addresses[offset + 24] = "rates", 0
        image.literals |= {code + 8: 4, code + 16: image.program.slot("ctl").offset}
    if barrier is not None:
        image.relatives[offset + 32] = barrier
        image.literals |= {barrier + 8 * word: MOST_SPIN for word in (LIMIT, MOST)}
        image.literals[offset + 8 * _RUN_WORDS] = image.program.threads_of(tape)


def _field(image: Image, slot: Slot, offset: int, aside: int | None, name: str) -> None:
    program = image.program
    words = {
        plans.STAGED_TYPE: plans.TYPES.index(slot.dtype),
        plans.SIZE: elements(program, slot),
        plans.RAW_TYPE: plans.TYPES.index(slot.format.raw.name),
        plans.CHANNELS: 1,
        plans.INNER: 1,
        plans.LIMIT: int(program.limits.get(name, 0)) if not slot.format.floats else name == WEIGHT,
    }
    ignored = program.ignored_of(name)
    if ignored is not None:
        words |= {plans.IGNORED: int(ignored), plans.CHECK_IGNORED: 1}
    image.literals |= {offset + 8 * word: value for word, value in words.items()}
    image.relatives[offset + 8 * plans.STAGED] = image.place(slot)
    if aside is not None:
        image.relatives[offset + 8 * plans.ASIDE] = aside


def mapped_values(program: Program) -> bytes:
    """Frozen weights and constants in their slots' storage formats, as tapes read them."""
    check_files(program.init)
    out = bytearray(program.mapped_nbytes)
    for slot in program.mapped:
        given = np.ascontiguousarray(program.init[slot.name], slot.format.dtype)
        assert given.nbytes == slot.nbytes
        out[slot.offset : slot.offset + slot.nbytes] = given.tobytes()
    return bytes(out)


def mapped_bytes(image: Image) -> bytes:
    """Values that the bundle's tapes map; with several lengths, each value once."""
    return Mapped(image.programs).values if image.sets else mapped_values(image.program)


def mapped_nbytes(image: Image) -> int:
    """Bytes of the bundle's mapped values, over all lengths."""
    return Mapped(image.programs).nbytes if image.sets else image.program.mapped_nbytes


def initial_values(program: Program) -> tuple[bytes, list[tuple[int, Slot]]]:
    """(nonzero initial values in their slots' storage formats, offset of each slot's values)."""
    check_files(program.init)
    parts, places, offset = [], [], 0
    placed = {slot.name: slot for slot in program.persistent}
    for name, array in program.init.items():
        if name not in placed:
            continue  # mapped
        slot = placed[name]
        given = np.ascontiguousarray(array, slot.format.dtype)
        assert given.nbytes == slot.nbytes
        if given.view(np.uint8).any():
            parts.append(given.tobytes())
            places.append((offset, slot))
            offset += slot.nbytes
    return b"".join(parts), places
