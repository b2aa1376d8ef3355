"""Bundles of Programs with several lengths: all tapes share one table of functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..kernels.emission.tape import Tapes
from ..kernels.tapes.decode import bound, decode
from ..losses.terms import terms_of_recipe
from ..program import TARGET, WEIGHTS, Program, Slot
from ..program.mapped_file import check_files
from ..program.samples import elements
from ..program.sets import MADE

_ALIGN = 64  # bytes, for mapped values


@dataclass(frozen=True)
class JoinedTapes:
    """The interface of `emission.tape.Tapes` over several tape sets: tape TAPE.K is from set K."""

    recipe: Mapping[str, Any]
    threads: int
    arena_nbytes: int
    kernels: Sequence[tuple[str, str, Sequence[str]]]
    tapes: Mapping[str, np.ndarray]
    revisions: Mapping[str, int]


def sets_of(program: Program) -> tuple[Program, ...]:
    """The Program at each of its lengths, shortest first; () if it has only one."""
    return tuple(program.chosen(dims=item.dims) for item in program.lengths.values())


def length_of(program: Program) -> int:
    """Length of the default tape set of a Program with several lengths."""
    return program.dims[next(iter(program.recipe["lengths"]))]


def arena_nbytes(sets: Sequence[Program]) -> int:
    """Bytes of the arena that all sets share."""
    return max(part.arena_nbytes for part in sets)


def tapes_of(program: Program, sets: Sequence[Program]) -> Tapes:
    """Tapes of a bundle: the Program's own, or those of all `sets` if there are any."""
    if not sets:
        return program
    kernels: dict[tuple[str, str, tuple[str, ...]], int] = {}
    tapes: dict[str, np.ndarray] = {}
    arena, placed = arena_nbytes(sets), Mapped(sets).places
    for number, item in enumerate(sets):
        indices = [kernels.setdefault(kernel, len(kernels)) for kernel in item.kernels]
        moved = {
            item.arena_nbytes + slot.offset: arena + placed[number][slot.name] - slot.offset
            for slot in item.mapped
        }
        for tape, words in item.tapes.items():
            tapes[f"{tape}.{number}"] = _moved(item, words, indices, moved)
    return JoinedTapes(
        program.recipe, program.threads, arena, list(kernels), tapes, program.revisions
    )


def _moved(
    program: Program, words: np.ndarray, indices: Sequence[int], moved: Mapping[int, int]
) -> np.ndarray:
    """A tape with renumbered kernels, and with mapped values placed after another arena.

    Args:
      moved: address of a mapped value in this tape -> its new address. The value's own offset is
        not included in the new address.
    """
    out, starts = words.copy(), np.array(sorted(moved), np.int64)
    for item in decode(words.tolist(), bound(program.kernels, program.revisions)):
        out[item.offset] = indices[int(words[item.offset])]
        place = item.offset + 2
        for kind in item.kernel.spec.kinds:
            word = int(words[place])
            if kind == "r" and word >= program.arena_nbytes:
                start = int(starts[np.searchsorted(starts, word, "right") - 1])
                offset = start - program.arena_nbytes
                out[place] = moved[start] + offset + word - start
            place += 2 if kind == "t" else 1
    return out


class Mapped:
    """Mapped values of several sets, each stored once.

    Attributes:
      places: for each set, {name: offset}.
      nbytes: total size; each value is padded to a multiple of 64.
    """

    def __init__(self, sets: Sequence[Program]) -> None:
        self.places: list[dict[str, int]] = []
        self.nbytes = 0
        self._parts: list[tuple[int, bytes]] = []
        known: dict[tuple[str, bytes], int] = {}
        for part in sets:
            check_files(part.init)
            placed = {}
            for slot in part.mapped:
                own = stored(part, slot) if slot.role == "constant" else b""
                if (slot.name, own) not in known:
                    known[slot.name, own] = self.nbytes
                    self._parts.append((self.nbytes, own or stored(part, slot)))
                    self.nbytes += -(-slot.nbytes // _ALIGN) * _ALIGN
                placed[slot.name] = known[slot.name, own]
            self.places.append(placed)

    @property
    def values(self) -> bytes:
        out = bytearray(self.nbytes)
        for offset, part in self._parts:
            out[offset : offset + len(part)] = part
        return bytes(out)


def stored(program: Program, slot: Slot) -> bytes:
    """An initial array, as bytes in its slot's storage format."""
    given = np.ascontiguousarray(program.init[slot.name], slot.format.dtype)
    assert given.nbytes == slot.nbytes
    return given.tobytes()


def constants(program: Program) -> Iterator[tuple[Slot, bytes]]:
    """Constants of one tape set in the arena, and their bytes. Loss weights are excluded, because a
    run may change them."""
    check_files(program.init)
    for slot in program.persistent:
        if slot.role == "constant" and slot.name != WEIGHTS:
            given = program.init.get(slot.name)
            yield slot, bytes(slot.nbytes) if given is None else stored(program, slot)


def weights_place(program: Program) -> tuple[int, int]:
    """(offset in the arena, bytes) of the loss weights; (0, 0) for a single loss."""
    return next(((s.offset, s.nbytes) for s in program.persistent if s.name == WEIGHTS), (0, 0))


def lengths_of(program: Program, sets: Sequence[Program]) -> dict[str, Any]:
    """The lengths, as listed in MANIFEST.json; `sets` as returned by `sets_of`."""
    return {
        "dimension": next(iter(program.recipe["lengths"])),
        "padding": {name: program.ignored_of(name) or 0 for name in program.staged("micro")},
        "sets": [
            {
                "length": length_of(part),
                "set": part.label,
                "minibatch": part.minibatch,
                "values": {
                    name: elements(part, slot) for name, slot in part.staged("micro").items()
                },
                "output": output_of(part),
            }
            for part in sets
        ],
    }


def output_of(program: Program) -> int:
    """Number of values in a sample's output; 0 if outputs are not available."""
    return 0 if program.unpredicted else elements(program, program.outputs["eval"][0])


def _facts_of_target(program: Program, name: str, exact: bool) -> dict[str, Any]:
    """Values that may be cut off, and whether there is a target for each position."""
    term = next(item for item in terms_of_recipe(program.recipe, TARGET) if item.target == name)
    ignored = program.loss_of(name).get("ignore_index", None if exact else 0)
    return {"pads": term.pads(ignored), "each": not term.loss.fillers}


def facts_of_lengths(program: Program, sets: Sequence[Program]) -> dict[str, Any]:
    """Data about the lengths for a module's JavaScript, matching runtime/samples/lengths.py.

    `fields` (the inputs, then the target) lists for each field: the axes that depend on the length,
    whether they equal it, the padding value and whether a loss would count padding, and whether the
    field is generated if not given; for the target also `_facts_of_target`. `cut` lists axes of the
    output that equal the length.
    """
    lengths = [length_of(part) for part in sets]
    shapes = [
        {name: _shape(part, slot) for name, slot in part.staged("micro").items()} for part in sets
    ]
    outputs = [_shape(part, part.outputs["eval"][0]) for part in sets]
    fields = []
    for name, first in shapes[0].items():
        axes = [k for k in range(len(first)) if len({own[name][k] for own in shapes}) > 1]
        ignored = program.ignored_of(name)
        exact = all(own[name][k] == n for own, n in zip(shapes, lengths, strict=True) for k in axes)
        counted = bool(axes) and ignored is None and name.startswith(TARGET)
        made = name in MADE and name in program.input_names
        fields.append(
            {"axes": axes, "exact": exact, "ignores": ignored is not None, "fill": ignored or 0}
            | {"counted": counted, "made": made}
            | (_facts_of_target(program, name, exact) if name.startswith(TARGET) else {})
        )
    rows = zip(sets, lengths, shapes, outputs, strict=True)
    return {
        "name": next(iter(program.recipe["lengths"])),
        "fields": fields,
        "cut": [
            k
            for k, _ in enumerate(outputs[0])
            if all(own[k] == n for own, n in zip(outputs, lengths, strict=True))
        ],
        "sets": [
            {
                "length": length,
                "minibatch": part.minibatch,
                "taken": part.microbatch if "mixed_by" in part.account else 1,
                "shapes": [*own.values()],
                "output": output,
            }
            for part, length, own, output in rows
        ],
    }


def _shape(program: Program, slot: Slot) -> list[int]:
    """Shape of a sample's values."""
    count = elements(program, slot)
    return list(slot.shape[1:]) if prod(slot.shape[1:]) == count else [count]
