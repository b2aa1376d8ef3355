"""The meaning of a tape: calls on named values, and the versions that they read and write."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import ProgramError
from ..formats import FORMATS
from ..formats.csr import POOL
from ..ir import Call, Value
from ..kernels import control
from .contents import Contents, Pieces
from .forms import Form, Forms, Reference

CONTROL, POINTERS = "ctl", "pointers"
# Words of the control block that no tape of a microbatch writes: forward, loss and backward read
# only these.
STILL = (
    control.SEED,
    control.STEP,
    control.MICROBATCH,
    control.COUNT,
    control.LOSS_SCALE,
    control.NOMINAL,
)
_UPDATE = "update"  # phase of calls that read all of the control block
_ALIGN = 64


@dataclass(frozen=True, slots=True)
class MeantCall:
    """One kernel call of a graph.

    Attributes:
      label: of the node, for messages.
      phase: as in ir.Node; `update` for calls of the update and rewire tapes.
      in_place: pairs of roots (written, read) that the op may keep in the same bytes.
    """

    label: str
    phase: str
    call: Call
    in_place: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Meaning:
    """What one tape computes.

    Attributes:
      values: all values that the calls mention, by name.
      inputs: filled from outside before the first call.
      outputs: read from outside after the last call.
    """

    values: Mapping[str, Value]
    calls: Sequence[MeantCall]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def root(self, name: str) -> str:
        """The value whose bytes `name` uses."""
        while above := self.values[name].view_of:
            name = above
        return name


class Operand(NamedTuple):
    """A call's reference by address: bytes [start, start + nbytes)."""

    nth: int
    name: str
    mode: str  # r, w or m
    start: int
    nbytes: int

    def meets(self, other: "Operand") -> bool:
        return self.start < other.start + other.nbytes and other.start < self.start + self.nbytes


@dataclass(slots=True)
class Effect:
    """The effect of a call.

    Attributes:
      call: the graph's first call that reads these versions.
      reads: operand index -> bytes read, without undefined ones.
      writes: operand index -> version.
      parted: operands of which the call touches only its own part.
      overlaps: (index written, other index, distance in bytes from its start to the other's start).
    """

    call: MeantCall
    reads: dict[int, Pieces]
    writes: dict[int, int]
    parted: frozenset[int]
    overlaps: set[tuple[int, int, int]]


# For each range that must hold a version: the operand's index, the range's start in the operand,
# its bytes, and whether the call reads only its own part of them.
Mask = tuple[tuple[int, int, int, bool], ...]


@dataclass(slots=True)
class Known:
    """The calls of one form: its references, and effects by mask and pieces read."""

    references: tuple[Reference, ...]
    effects: dict[Mask, dict[tuple[Pieces, ...], Effect]]


class Versions:
    """Every version of a graph's values, found by running its calls in order. Each value has its
    own bytes.

    Attributes:
      known: the graph's calls by form.
      initial: root -> its initial version.

    Raises:
      ProgramError: a call reads what nothing wrote.
    """

    def __init__(self, meaning: Meaning, forms: Forms) -> None:
        self._meaning, self._forms = meaning, forms
        self._contents, self._names = Contents(), []  # type: Contents, list[str]
        self._starts: dict[str, int] = {}
        self.known: dict[Form, Known] = {}
        self.initial: dict[str, int] = {}
        filled, offset = set(map(meaning.root, meaning.inputs)), 0
        for name, value in meaning.values.items():
            if value.view_of:
                continue
            self._starts[name] = offset
            if value.persistent or value.mapped or name in filled:
                self.initial[name] = self._new(name)
                self._contents.write(offset, value.nbytes, self.initial[name])
            offset += (
                -(-value.nbytes // _ALIGN) * _ALIGN + _ALIGN
            )  # a gap, so that values don't touch
        for call in meaning.calls:
            self._run(call)

    def name(self, version: int) -> str:
        """A version's name, for messages."""
        return self._names[version]

    def left(self, root: str) -> Iterator[tuple[int, Pieces]]:
        """A value's final content: (first byte, pieces) of each defined range."""
        start, nbytes = self._starts[root], self._meaning.values[root].nbytes
        for offset, count in _covered(self._contents.read(start, nbytes, ())):
            yield offset, self._contents.read(start + offset, count)

    def _new(self, name: str) -> int:
        self._names.append(name)
        return len(self._names) - 1

    def _run(self, call: MeantCall) -> None:
        form, references = self._forms.of(call.call, self._meaning.values)
        known = self.known.get(form)
        if known is None:
            known = self.known[form] = Known(references, {})
        operands = [self._operand(call.call, reference) for reference in references]
        part = part_of(self._contents, operands)
        parted = self._parted(call.call, operands) if part is not None else frozenset()
        reads: dict[int, Pieces] = {}
        for operand in operands:
            constant = _constant(operand, call.phase) and call.call.args[CONTROL] == CONTROL
            if operand.mode != "w" and not constant:
                own = part if operand.nth in parted else None
                reads[operand.nth] = self._contents.read(operand.start, operand.nbytes, own)
                if operand.mode == "r" and operand.nbytes and not reads[operand.nth]:
                    raise ProgramError(
                        f"node {call.label}: {form.kernel} reads {call.call.args[operand.name]} "
                        "before it is written. This is a bug in the compiler: please report it."
                    )
        mask = tuple(
            (k, index, n, k in parted)
            for k, pieces in reads.items()
            for index, n in _covered(pieces)
        )
        effects = known.effects.setdefault(mask, {})
        key = read_masked(self._contents, mask, {o.nth: o.start for o in operands}, part)
        effect = effects.get(key)
        if effect is None:
            effect = effects[key] = Effect(call, reads, {}, parted, set())
        for operand in operands:
            if operand.mode != "r":
                if operand.nth not in effect.writes:
                    name = call.call.args[operand.name]
                    effect.writes[operand.nth] = self._new(f"{name} of {call.label}")
                self._allow(effect, call, operand, operands)
        for operand in operands:
            if operand.mode != "r":
                version = effect.writes[operand.nth]
                own = part if operand.nth in parted else None
                self._contents.write(operand.start, operand.nbytes, version, part=own)

    def _parted(self, call: Call, operands: Sequence[Operand]) -> frozenset[int]:
        """Operands that are the pool of all sparse layers, or its state or gradients."""
        roots = {
            o.nth: self._meaning.values[self._meaning.root(call.args[o.name])] for o in operands
        }
        return frozenset(
            nth
            for nth, root in roots.items()
            if root.persistent and root.role != "index" and root.name.split(".")[0] == POOL
        )

    def _operand(self, call: Call, reference: Reference) -> Operand:
        """A reference's place in the graph's own address space."""
        nth, name, mode, nbytes = reference
        value = self._meaning.values[call.args[name]]
        skipped = call.skip.get(name, 0)
        start = self._starts[self._meaning.root(value.name)]
        if skipped:
            start += FORMATS[value.dtype].nbytes(skipped)
        return Operand(nth, name, mode, start, nbytes)

    def _allow(
        self, effect: Effect, call: MeantCall, written: Operand, operands: Sequence[Operand]
    ) -> None:
        """Record which operands of this call may share bytes with one that it writes."""
        root, args = self._meaning.root, call.call.args
        for other in operands:
            if other is written:
                continue
            if written.meets(other):
                moved = other.start - written.start
                effect.overlaps.add((written.nth, other.nth, moved))
            elif call.in_place and written.nbytes == other.nbytes:
                pair = root(args[written.name]), root(args[other.name])
                if pair in call.in_place:
                    effect.overlaps.add((written.nth, other.nth, 0))


def part_of(contents: Contents, operands: Sequence[Operand]) -> Pieces | None:
    """The part of a pool that a call touches, given by its `pointers`; None if it has none."""
    for operand in operands:
        if operand.name == POINTERS and operand.mode == "r":
            return contents.read(operand.start, operand.nbytes)
    return None


def read_masked(
    contents: Contents,
    mask: Mask,
    starts: Mapping[int, int] | Sequence[int],
    part: Pieces | None,
) -> tuple[Pieces, ...]:
    """The content of a mask's ranges if the operands start at these offsets."""
    return tuple(
        [
            contents.read(starts[nth] + offset, nbytes, part if parted else None)
            for nth, offset, nbytes, parted in mask
        ]
    )


def _covered(pieces: Pieces) -> Iterator[tuple[int, int]]:
    """Ranges (start, bytes) that the pieces cover; adjacent ones are joined."""
    start = stop = 0
    for offset, nbytes, _, _ in pieces:
        if offset != stop:
            if stop > start:
                yield start, stop - start
            start = offset
        stop = offset + nbytes
    if stop > start:
        yield start, stop - start


def _constant(operand: Operand, phase: str) -> bool:
    """Whether an operand reads only STILL words."""
    return operand.name == CONTROL and operand.mode == "r" and phase != _UPDATE
