"""What the memory of a bundle holds when training begins, and the tables its object has for it.

Offsets are in bytes from the first byte of the memory: words of the device (kernels/device),
the plan block, what its words point to, then the arena.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..kernels import control
from ..kernels.device import layout as device
from ..kernels.drive import layout as plans
from ..kernels.spec import NBYTES
from ..kernels.tape import BARRIER_WORDS
from ..optim import loss_scale_of
from ..program import Program, Slot
from ..runtime.plan_block import sizes
from ..runtime.session import TARGET
from ..runtime.stored import blocks, stored_places

TAPES = ("rate", "micro", "update", "rewire", "eval")
_RUN_WORDS = 5  # operands of `run_tape`


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
    runs = {tape: out.take(8 * _RUN_WORDS) for tape in TAPES if tape == "rate" or lengths.get(tape)}
    barrier = out.take(8 * BARRIER_WORDS) if program.threads > 1 else None
    fields = [out.take(8 * plans.FIELD_WORDS * (len(_staged(program, "micro")))) for _ in range(2)]
    asides = {s.name: out.take(4 * _size(program, s)) for s in _staged(program, "micro")
              if s.dtype == "f16"}  # fmt: skip
    pointers = out.take(8 * (len(program.inputs["micro"])))
    zero = [s for s in program.persistent if s.role == "accumulator"]
    ranges = _ranges(zero)
    zeroed = out.take(16 * len(ranges))
    image.control_nbytes = -(-out.end // align) * align
    _plan_words(image, runs, fields, pointers, lengths)
    for tape, at in runs.items():
        _run_operands(image, tape, at, lengths, barrier)
    for tape, at in zip(("micro", "eval"), fields, strict=True):
        for k, slot in enumerate(_staged(program, tape)):
            last = k == len(_staged(program, tape)) - 1
            name = TARGET if last else slot.name
            aside = asides.get(_staged(program, "micro")[k].name)
            _field(image, slot, at + 8 * plans.FIELD_WORDS * k, aside, name)
    _plan(image, plans.ZEROS, len(ranges))
    image.relatives[_word(plans.ZERO)] = zeroed
    for k, (start, nbytes) in enumerate(ranges):
        image.relatives[zeroed + 16 * k] = image.control_nbytes + start
        image.literals[zeroed + 16 * k + 8] = nbytes
    _control_words(image)
    image.state = [(s.name, image.place(s), s.nbytes, at) for s, at in stored_places(program)]
    image.values = [
        s for s in program.persistent
        if s.role in ("parameter", "buffer") and s.dtype in ("f32", "f16")
    ]  # fmt: skip
    return image


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


def _staged(program: Program, tape: str) -> Sequence[Slot]:
    return (*program.inputs[tape], program.targets[tape])


def _size(program: Program, slot: Slot) -> int:
    """Elements of a sample."""
    return slot.size // program.microbatch


def _ranges(slots: Iterable[Slot]) -> list[tuple[int, int]]:
    """(offset, bytes) in the arena; neighbours, with nothing but padding between, as one."""
    out: list[tuple[int, int]] = []
    for slot in sorted(slots, key=lambda s: s.offset):
        if out and slot.offset - sum(out[-1]) < device.BLOCK:
            out[-1] = out[-1][0], slot.offset + slot.nbytes - out[-1][0]
        elif slot.size:
            out.append((slot.offset, slot.nbytes))
    return out


def _plan_words(image: Image, runs, fields, pointers: int, lengths) -> None:
    program = image.program
    image.relatives[_word(plans.CTL)] = image.place(program.slot("ctl"))
    image.addresses[_word(plans.RUN_TAPE)] = "et_run_tape__plain", 0
    image.addresses[_word(plans.STRIDES)] = "strides", 0
    for tape, at in runs.items():
        image.relatives[_word(getattr(plans, tape.upper()))] = at
    for word, value in sizes(program).items():
        _plan(image, word, value)
    _plan(image, plans.FIELDS, len(_staged(program, "micro")))
    for word, at in zip((plans.TRAIN_FIELDS, plans.EVAL_FIELDS), fields, strict=True):
        image.relatives[_word(word)] = at
    image.relatives[_word(plans.POINTERS)] = pointers
    output = program.outputs["eval"][0]
    image.relatives[_word(plans.OUTPUT)] = image.place(output)
    _plan(image, plans.OUTPUT_TYPE, plans.TYPES.index(output.dtype))
    _plan(image, plans.OUTPUT_SIZE, _size(program, output))


def _run_operands(image: Image, tape: str, at: int, lengths, barrier: int | None) -> None:
    """Operands of `run_tape`: arena, code, its end, table, barrier."""
    image.relatives[at] = image.control_nbytes
    if lengths.get(tape):
        image.addresses[at + 8] = f"tape.{tape}", 0
        image.addresses[at + 16] = f"tape.{tape}", lengths[tape]
        image.addresses[at + 24] = "table", 0
    else:
        code = 8 * device.RATE_CODE
        image.relatives[at + 8], image.relatives[at + 16] = code, code + 32
        image.addresses[at + 24] = "rates", 0
        image.literals |= {code + 8: 2, code + 16: image.program.slot("ctl").offset}
    if barrier is not None:
        image.relatives[at + 32] = barrier


def _field(image: Image, slot: Slot, at: int, aside: int | None, name: str) -> None:
    program = image.program
    words = {
        plans.STAGED_TYPE: plans.TYPES.index(slot.dtype),
        plans.SIZE: _size(program, slot),
        plans.RAW_TYPE: plans.TYPES.index("f32" if slot.dtype == "f16" else slot.dtype),
        plans.CHANNELS: 1,
        plans.INNER: 1,
        plans.LIMIT: int(program.limits.get(name, 0)) if slot.dtype == "i32" else 0,
    }
    ignored = program.recipe["loss"].get("ignore_index") if name == TARGET else None
    if ignored is not None:
        words |= {plans.IGNORED: int(ignored), plans.CHECK_IGNORED: 1}
    image.literals |= {at + 8 * word: value for word, value in words.items()}
    image.relatives[at + 8 * plans.STAGED] = image.place(slot)
    if aside is not None:
        image.relatives[at + 8 * plans.ASIDE] = aside


def _control_words(image: Image) -> None:
    program, at = image.program, image.place(image.program.slot("ctl"))
    reals = {
        control.LOSS_SCALE: loss_scale_of(program.recipe["precision"]).start,
        control.BASE_LR: program.recipe["optimizer"]["lr"],
    }
    image.literals[at + 8 * control.SEED] = int(program.recipe["seed"])
    for word, value in reals.items():
        image.literals[at + 8 * word] = int(np.float64(value).view(np.int64))


def initial_values(program: Program) -> list[tuple[str, Slot, np.ndarray]]:
    """(symbol, slot, array) of what does not start at zero; arrays in the slot's storage."""
    from ..runtime.arena import DTYPES

    out = []
    for k, (name, array) in enumerate(program.init.items()):
        slot = program.slot(name)
        given = np.ascontiguousarray(array, DTYPES[slot.dtype])
        assert given.nbytes == slot.size * NBYTES[slot.dtype]
        if given.any() or (given.dtype.kind == "f" and np.signbit(given).any()):
            out.append((f"init.{k}", slot, given))
    return out
