"""What the memory of a bundle holds when training begins, and the tables its object has for it.

Offsets are in bytes from the first byte of the memory: words of the device (kernels/device),
the plan block, what its words point to, then the arena.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..kernels.device import layout as device
from ..kernels.step_loop import layout as plans
from ..kernels.tapes.tape import BARRIER_WORDS, LIMIT, MOST, MOST_SPIN
from ..program import WEIGHT, WEIGHTS, Program, Slot
from ..program.mapped_file import check_files
from ..program.plan_block import control_words, sizes, zeroed
from ..program.samples import elements
from ..program.stored import blocks, stored_places

TAPES = ("rate", "micro", "update", "rewire", "eval")
_RUN_WORDS = 5  # operands of `run_tape`; behind them how many of several threads it is worth


@dataclass
class Image:
    """Tables of a bundle; see kernels/device/layout.py.

    Attributes:
      literals: offset -> word. relatives: offset -> offset. addresses: offset -> (symbol, bytes
        behind it).
      control_nbytes: bytes before the arena.
      state: (name, offset, bytes, offset in a stored state) of what is saved, the control block
        last. values: slots that may be read and set.
    """

    program: Program
    align: int
    literals: dict[int, int] = field(default_factory=dict)
    relatives: dict[int, int] = field(default_factory=dict)
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    control_nbytes: int = 0
    state: list[tuple[str, int, int, int]] = field(default_factory=list)
    values: list[Slot] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Of the memory, which begins at a multiple of `align`."""
        return self.control_nbytes + self.program.arena_nbytes

    @property
    def stored_nbytes(self) -> int:
        """Of a stored state behind its header."""
        _, _, nbytes, at = self.state[-1]
        return at + blocks(nbytes) - device.BLOCK

    def place(self, slot: Slot) -> int:
        """Offset of a slot of the arena."""
        return self.control_nbytes + slot.offset


def image_of(program: Program, lengths: dict[str, int], argument_words: int, align: int) -> Image:
    """Lay out a bundle's memory.

    Args:
      lengths: bytes of each tape.
      argument_words: operands that an instruction of them has at most.
      align: of the memory, and of the arena in it.
    """
    image = Image(program, align)
    out = _Writer(image, device.WORDS * 8 + (plans.ARGUMENTS + argument_words) * 8)
    image.relatives[8 * device.PLAN] = 8 * device.WORDS
    words = _RUN_WORDS + (program.threads > 1)
    runs = {tape: out.take(8 * words) for tape in TAPES if tape == "rate" or lengths.get(tape)}
    barrier = out.take(8 * BARRIER_WORDS) if program.threads > 1 else None
    staged = program.staged("micro")
    fields = [out.take(8 * plans.FIELD_WORDS * len(staged)) for _ in range(2)]
    asides = {
        name: out.take(slot.format.raw.nbytes(elements(program, slot)))
        for name, slot in staged.items()
        if slot.format is not slot.format.raw
    }
    pointers = out.take(8 * (len(program.inputs["micro"])))
    ranges = _ranges(zeroed(program))
    zeroes = out.take(16 * len(ranges))
    image.control_nbytes = -(-out.end // align) * align
    _plan_words(image, runs, fields, pointers)
    for tape, at in runs.items():
        _run_operands(image, tape, at, lengths, barrier)
    for tape, at in zip(("micro", "eval"), fields, strict=True):
        for k, (name, slot) in enumerate(program.staged(tape).items()):
            _field(image, slot, at + 8 * plans.FIELD_WORDS * k, asides.get(name), name)
    _plan(image, plans.ZEROS, len(ranges))
    image.relatives[_word(plans.ZERO)] = zeroes
    for k, (start, nbytes) in enumerate(ranges):
        image.relatives[zeroes + 16 * k] = image.control_nbytes + start
        image.literals[zeroes + 16 * k + 8] = nbytes
    at = image.place(program.slot("ctl"))
    image.literals |= {at + 8 * word: bits for word, bits in control_words(program).items()}
    image.state = [(s.name, image.place(s), s.nbytes, at) for s, at in stored_places(program)]
    image.values = gettable(program)
    return image


def gettable(program: Program) -> list[Slot]:
    """Slots that may be read and set: weights, running statistics, weights of several losses."""
    found = [s for s in program.persistent if s.role in ("parameter", "buffer")]
    found += [s for s in program.persistent if s.name == WEIGHTS]
    return [s for s in found if s.format.floats]


class _Writer:
    def __init__(self, image: Image, start: int) -> None:
        self.end = start

    def take(self, nbytes: int) -> int:
        """Offset of so many new bytes."""
        at = self.end
        self.end += -(-nbytes // 8) * 8
        return at


def _word(word: int) -> int:
    """Offset of a word of the plan block."""
    return 8 * (device.WORDS + word)


def _plan(image: Image, word: int, value: int) -> None:
    image.literals[_word(word)] = value


def _ranges(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(offset, bytes) in the arena; neighbours, with nothing but padding between, as one."""
    out: list[tuple[int, int]] = []
    for start, nbytes in sorted(parts):
        if out and start - sum(out[-1]) < device.BLOCK:
            out[-1] = out[-1][0], start + nbytes - out[-1][0]
        elif nbytes:
            out.append((start, nbytes))
    return out


def _plan_words(image: Image, runs, fields, pointers: int) -> None:
    program = image.program
    image.relatives[_word(plans.CTL)] = image.place(program.slot("ctl"))
    image.addresses[_word(plans.RUN_TAPE)] = "et_run_tape__plain", 0
    image.addresses[_word(plans.STRIDES)] = "strides", 0
    for tape, at in runs.items():
        image.relatives[_word(getattr(plans, tape.upper()))] = at
    for word, value in sizes(program).items():
        _plan(image, word, value)
    _plan(image, plans.FIELDS, len(program.staged("micro")))
    for word, at in zip((plans.TRAIN_FIELDS, plans.EVAL_FIELDS), fields, strict=True):
        image.relatives[_word(word)] = at
    image.relatives[_word(plans.POINTERS)] = pointers
    output = program.outputs["eval"][0]
    image.relatives[_word(plans.OUTPUT)] = image.place(output)
    _plan(image, plans.OUTPUT_TYPE, plans.TYPES.index(output.dtype))
    _plan(image, plans.OUTPUT_SIZE, elements(program, output))


def _run_operands(image: Image, tape: str, at: int, lengths, barrier: int | None) -> None:
    """Operands of `run_tape`: arena, code, its end, table, barrier; behind them the threads."""
    image.relatives[at] = image.control_nbytes
    if lengths.get(tape):
        image.addresses[at + 8] = f"tape.{tape}", 0
        image.addresses[at + 16] = f"tape.{tape}", lengths[tape]
        image.addresses[at + 24] = "table", 0
    else:
        code = 8 * device.RATE_CODE
        image.relatives[at + 8], image.relatives[at + 16] = code, code + 48
        image.addresses[at + 24] = "rates", 0
        image.literals |= {code + 8: 4, code + 16: image.program.slot("ctl").offset}
    if barrier is not None:
        image.relatives[at + 32] = barrier
        image.literals |= {barrier + 8 * word: MOST_SPIN for word in (LIMIT, MOST)}
        image.literals[at + 8 * _RUN_WORDS] = image.program.threads_of(tape)


def _field(image: Image, slot: Slot, at: int, aside: int | None, name: str) -> None:
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
    image.literals |= {at + 8 * word: value for word, value in words.items()}
    image.relatives[at + 8 * plans.STAGED] = image.place(slot)
    if aside is not None:
        image.relatives[at + 8 * plans.ASIDE] = aside


def mapped_values(program: Program) -> bytes:
    """Frozen weights and constants as tapes find them, in the slots' storages."""
    check_files(program.init)
    out = bytearray(program.mapped_nbytes)
    for slot in program.mapped:
        given = np.ascontiguousarray(program.init[slot.name], slot.format.dtype)
        assert given.nbytes == slot.nbytes
        out[slot.offset : slot.offset + slot.nbytes] = given.tobytes()
    return bytes(out)


def initial_values(program: Program) -> tuple[bytes, list[tuple[int, Slot]]]:
    """What does not start at zero, in the slots' storages, and where each lies in it."""
    check_files(program.init)
    parts, places, at = [], [], 0
    placed = {slot.name: slot for slot in program.persistent}
    for name, array in program.init.items():
        if name not in placed:
            continue  # mapped
        slot = placed[name]
        given = np.ascontiguousarray(array, slot.format.dtype)
        assert given.nbytes == slot.nbytes
        if given.view(np.uint8).any():
            parts.append(given.tobytes())
            places.append((at, slot))
            at += slot.nbytes
    return b"".join(parts), places
