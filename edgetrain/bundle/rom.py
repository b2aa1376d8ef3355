"""A bundle's constants as LLVM text: tables, state names and initial values."""

import struct
from collections.abc import Iterable, Sequence

import numpy as np

from ..kernels.device import layout as device
from ..losses.terms import terms_of_recipe
from ..optim.schedules import SCHEDULES, Schedule
from ..optim.schedules.base import BUNDLED
from ..program import TARGET, Program
from ..program.samples import elements
from ..program.stored import names_table, state_digest
from ..units.plugin import about, ends
from .functions import RATES
from .image import Image, initial_values
from .lengths import constants, length_of, weights_place

WEIGHTS_MAGIC = 0x57544445  # "EDTW"
MAPPED_SECTION = ".rodata"
Entry = int | tuple[str, int]  # a word, or (symbol, byte offset from it)


def llvm_text(image: Image, pointer_bits: int) -> str:
    """The constant `rom` and the tables it points to; `tape.*`, `table` and `strides` are external.

    With several lengths, also `rom.K` for each length and the table `lengths`.
    """
    program, wide = image.program, pointer_bits
    _, inits = initial_values(program)
    used = [name for item in (image, *image.sets) for name, _ in item.addresses.values()]
    apart = ("et_", "rom.")
    named = {name for name in used if not name.startswith(apart)} - {"rates"}
    lines = [f"@{name} = external constant i8" for name in sorted(named)]
    lines.append(_bytes("names", names_table(program)))
    bounded = [*SCHEDULES.values()][device.FIRST_SCHEDULES :]
    lines.append(_bytes("schedules", b"".join(map(_schedule, bounded))))
    lines.append(_table("rates", [(f"et_{name}__plain", 0) for name in RATES], wide))
    rows = [(offset, image.place(slot), slot.nbytes) for offset, slot in inits]
    digest = state_digest(program)
    lines += _rom(image, "", digest, rows, _halves(image), wide)
    if image.sets:
        lines += _lengths(image, digest, wide)
    return "\n".join(lines) + "\n"


def _lengths(image: Image, digest: bytes, wide: int) -> list[str]:
    """ROM and constants of each length, and the table of lengths. Every length can read states
    stored by the others."""
    lines: list[str] = []
    table: list[Entry] = []
    for number, item in enumerate(image.sets):
        rows, values = [], b""
        for slot, given in constants(item.program):
            rows.append((len(values), item.place(slot), slot.nbytes))
            values += given
        lines.append(_bytes(f"constants.{number}", values or bytes(1)))
        lines += _rom(item, f".{number}", digest, rows, _halves(item, whole=True), wide)
        offset, nbytes = weights_place(item.program)
        table += [
            length_of(item.program),
            item.program.minibatch,
            (f"rom.{number}", 0),
            (f"constants.{number}", 0),
            item.control_nbytes + offset,
            nbytes,
            *_targets_of_sample(item.program),
        ]
    return [*lines, _table("lengths", table, wide)]


def _targets_of_sample(program: Program) -> list[int]:
    """The words of a row of the table of lengths from ROW_EACH on."""
    terms = terms_of_recipe(program.recipe, TARGET)
    staged = program.staged("eval")
    each = [term.each(elements(program, staged[term.target])) for term in terms]
    return each + [1] * (device.ROW_WORDS - device.ROW_EACH - len(each))


def _rom(
    image: Image,
    suffix: str,
    digest: bytes,
    inits: Sequence[tuple[int, int, int]],
    halves: Sequence[tuple[int, int]],
    wide: int,
) -> list[str]:
    """ROM and its tables, whose names end with `suffix`.

    Args:
      digest: shared by Programs that can read each other's stored states.
    """
    tables: dict[str, list[int]] = {
        "literals": _flat(halves),
        "inits": _flat(inits),
        "relatives": _flat(image.relatives.items()),
        "states": _flat(row[1:] for row in image.state),
        "values": _flat(
            (image.place(s), s.size, device.VALUE_TYPES.index(s.dtype)) for s in image.values
        ),
    }
    lines = [_table(f"addresses{suffix}", _flat(image.addresses.items()) or [0], wide)]
    lines += [
        _bytes(f"{name}{suffix}", struct.pack(f"<{len(t)}I", *t) or bytes(4))
        for name, t in tables.items()
    ]
    return [
        *lines,
        _table(f"rom{suffix}", _words(image, suffix, digest, len(inits), len(halves)), wide),
    ]


def _words(image: Image, suffix: str, digest: bytes, inits: int, halves: int) -> list[Entry]:
    program = image.program
    target = program.targets["eval"]
    rom: list[Entry] = [0] * device.ROM_WORDS
    rom[device.MEMORY] = image.nbytes
    rom[device.ARENA] = image.control_nbytes
    rom[device.CTL] = image.place(program.slot("ctl"))
    counted = {
        device.LITERALS: (f"literals{suffix}", halves),
        device.RELATIVES: (f"relatives{suffix}", len(image.relatives)),
        device.ADDRESSES: (f"addresses{suffix}", len(image.addresses)),
        device.INITS: (f"inits{suffix}", inits),
        device.STATES: (f"states{suffix}", len(image.state)),
        device.NAMES: ("names", len(names_table(program))),
        device.VALUES: (f"values{suffix}", len(image.values)),
        device.SCHEDULES: ("schedules", len(SCHEDULES)),
    }
    for word, (name, count) in counted.items():
        rom[word], rom[word + 1] = (name, 0), count
    rom[device.STORED_NBYTES] = image.stored_nbytes
    rom[device.DIGEST], rom[device.DIGEST + 1] = struct.unpack("<2q", digest)
    rom[device.TRAIN] = "et_drive_train__plain", 0
    rom[device.EVALUATE] = "et_drive_evaluate__plain", 0
    rom[device.TARGET], rom[device.TARGET_NBYTES] = image.place(target), target.nbytes
    rom[device.INPUTS] = len(program.input_names)
    mixed = "mixed_by" in program.account
    is_mean = not program.outputs["eval"][0].shape
    rom[device.MEASURED] = program.microbatch if mixed or is_mean else 1
    rom[device.PREDICTED] = program.microbatch if mixed else 1
    return rom


def _schedule(kind: type[Schedule]) -> bytes:
    """Bounds of a schedule's numbers, as words of device/layout.py."""
    packed = struct.pack("<q", kind.needs_total)
    for number, code in ((int, "q"), (float, "d")):
        bounds = [ends(number, about(field).bounds) for field in kind.own_of(number)][:BUNDLED]
        bounds += [ends(number, {"least": 0})] * (BUNDLED - len(bounds))
        if not kind.in_bundles():
            bounds = [(most, least) for least, most in bounds]  # nothing is within these bounds
        packed += struct.pack(f"<6{code}", *_flat(bounds))
    return packed


def _halves(image: Image, whole: bool = False) -> list[tuple[int, int]]:
    """(offset, 32-bit half) of the literals; zero halves are left out, unless `whole`."""
    out = []
    for index, value in image.literals.items():
        low, high = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF
        out += [(index + 4 * k, half) for k, half in enumerate((low, high)) if half or whole]
    return out


def _flat(rows: Iterable[Sequence]) -> list:
    return [entry for row in rows for entry in row]


def _table(name: str, entries: Sequence[Entry], pointer_bits: int) -> str:
    """Entries of 8 bytes each; 32-bit addresses are padded with four zero bytes."""
    kinds, values = [], []
    for entry in entries:
        if isinstance(entry, int):
            kinds.append("i64")
            values.append(f"i64 {entry}")
            continue
        symbol, behind = entry
        pointer = f"ptr @{symbol}"
        if behind:
            pointer = f"ptr getelementptr (i8, ptr @{symbol}, i64 {behind})"
        kinds += ["ptr"] if pointer_bits == 64 else ["ptr", "i32"]
        values += [pointer] if pointer_bits == 64 else [pointer, "i32 0"]
    return f"@{name} = internal constant <{{ {', '.join(kinds)} }}> " + (
        f"<{{ {', '.join(values)} }}>, align 8"
    )


def _bytes(name: str, data: bytes, kind: str = "constant") -> str:
    """A constant (or other global) of bytes, written in as few characters as possible."""
    table = [f"\\{k:02X}" for k in range(256)]
    for k in range(32, 127):
        if chr(k) not in '"\\':
            table[k] = chr(k)
    text = "".join(map(table.__getitem__, data))
    return f'@{name} = internal {kind} [{len(data)} x i8] c"{text}", align 8'


def weights_text(image: Image) -> str:
    """Initial values, as a constant."""
    return _bytes("weights", initial_values(image.program)[0] or bytes(1)) + "\n"


def planes_text(image: Image) -> str:
    """Initial values split into byte planes, which compress better; the module's script joins them
    (`plane_count`)."""
    values = initial_values(image.program)[0]
    if plane_count(image) > 1:
        words = np.frombuffer(values, "<u4")
        # Move the sign after the fraction, so the first plane is exactly the exponents.
        turned = (words << 1 | words >> 31).astype(">u4")
        values = turned.view(np.uint8).reshape(-1, 4).T.tobytes()
    return _bytes("weights", values or bytes(1), "global") + "\n"


def plane_count(image: Image) -> int:
    """Number of byte planes, highest bytes first: 4 if the initial values are whole 32-bit words
    (most are), else 1."""
    return 1 if initial_nbytes(image) % 4 else 4


def mapped_text(symbol: str, nbytes: int) -> str:
    """A zero constant of `nbytes` bytes. The contents are put into the object later (elf.filled),
    because LLVM text would be several times as long."""
    return (
        f"@{symbol} = hidden constant [{nbytes} x i8] zeroinitializer, "
        f'section "{MAPPED_SECTION}", align 64\n'
    )


def weights_file(image: Image) -> bytes:
    """Contents of NAME.weights: the initial values, a magic number and their size. It can be
    appended to any file."""
    values = initial_values(image.program)[0]
    return values + struct.pack("<2I", WEIGHTS_MAGIC, len(values))


def initial_nbytes(image: Image) -> int:
    """Bytes of the initial values."""
    return len(initial_values(image.program)[0])
