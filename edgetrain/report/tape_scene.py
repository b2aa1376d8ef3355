"""The arena of a Program, reconstructed from its tape when the plan is not available.

Programs don't store names of values, so a lifetime is named after the kernel that starts it and the
parameter this kernel reads. Recomputation is recognised by contents: an instruction of the forward
pass, on the same contents as before, wherever they are stored.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field, replace

from ..program import Program, Slot
from ..program.account import KIND_OF_ROLE
from ..program.container_header import ALIGNMENT
from ..program.instructions import Decoded, instructions
from .scene import Arena, Box, Phase, live_bytes, make_arena

_UPDATE_SHARE = 0.04


@dataclass
class _Life:
    """Bytes from the first instruction that writes them to the last one that uses them."""

    start: int
    stop: int
    low: int
    high: int
    name: str
    module: str
    forward: bool
    content: int = 0
    kind: str = ""
    saved: bool = False
    again: bool = False
    read: bool = False

    def box(self) -> Box:
        kind = self.kind or ("saved" if self.forward and self.saved else "transient")
        return Box(
            self.start,
            self.stop,
            self.low,
            self.high - self.low,
            kind,
            self.name,
            self.module,
            self.again,
        )


@dataclass
class _Lives:
    """Current lifetimes by address, and ended ones."""

    now: list[tuple[int, int, _Life]] = field(default_factory=list)
    ended: list[_Life] = field(default_factory=list)
    _count: int = 0

    def meeting(self, low: int, high: int) -> list[_Life]:
        """Current lifetimes that overlap [low, high). They never overlap each other, so few are
        checked."""
        index = bisect_left(self.now, (high, -1))
        result: list[_Life] = []
        while index:
            index -= 1
            if self.now[index][2].high <= low:
                break
            result.append(self.now[index][2])
        return result

    def begin(self, life: _Life) -> None:
        """Start a lifetime; it ends the previous ones of these bytes."""
        self.end(life.low, life.high, life.start)
        self._count += 1
        insort(self.now, (life.low, self._count, life))

    def end(self, low: int, high: int, moment: int) -> None:
        """End the lifetimes that overlap [low, high)."""
        for other in self.meeting(low, high):
            other.stop = min(other.stop, moment)
            self.now = [row for row in self.now if row[2] is not other]
            self.ended.append(other)

    def all(self) -> list[_Life]:
        return [*self.ended, *(row[2] for row in self.now)]


class _Contents:
    """Numbers the contents of bytes: equal if the same kernel made them from equal contents."""

    def __init__(self) -> None:
        self._numbers: dict[tuple, int] = {}
        self._forward: set[int] = set()

    def fresh(self) -> int:
        """Number for bytes that no instruction wrote."""
        return self._number(("given", len(self._numbers)))

    def made(self, found: Decoded, regions, lives: _Lives, fixed: int) -> int:
        """Number for an instruction's result. Bytes below `fixed` don't change within a microbatch,
        except accumulators (gradients, statistics), which no forward instruction reads."""
        read = [
            (low, high)
            if low < fixed
            else tuple((e.content, e.low - low, e.high - high) for e in lives.meeting(low, high))
            for low, high, mode in regions
            if mode in "rm"
        ]
        return self._number((found.about, *read))

    def again(self, content: int, after_loss: bool) -> bool:
        """Whether the forward pass already computed this; contents before the loss are recorded."""
        if not after_loss:
            self._forward.add(content)
        return after_loss and content in self._forward

    def _number(self, key: tuple) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def program_arena(program: Program, title: str) -> Arena:
    """The arena during a microbatch and the update of a Program."""
    result = list(instructions(program, "micro"))
    count = len(result)
    wide = max(1, round(_UPDATE_SHARE * (count + 1)))
    last = count + 1 + wide
    slots = [slot for slot in program.persistent if slot.size]
    persistent = max((slot.offset + slot.nbytes for slot in slots), default=0)
    boxes = [_fixed(slot, last) for slot in slots]
    lives, contents = _Lives(), _Contents()
    steps, phases = ["inputs"], [Phase("inputs", 0, 1)]
    staged = [*program.inputs["micro"], program.targets["micro"]]
    for slot in staged:
        low, high = slot.offset, slot.offset + slot.nbytes
        lives.begin(_Life(0, 1, low, high, slot.name, "", True, contents.fresh(), "io"))
    target = program.targets["micro"].offset
    targets = [life for *_, life in lives.now if life.low == target]
    seen_loss = False
    for position, (instruction, extents) in enumerate(result, 1):
        regions = _regions(instruction, extents)
        read = [row[:2] for row in regions if row[2] in "rm"]
        touches = any(life in targets for row in read for life in lives.meeting(*row))
        content = contents.made(instruction, regions, lives, persistent)
        again = contents.again(content, seen_loss)
        backward = "recompute" if again else "backward" if seen_loss else "forward"
        phase = "loss" if touches else backward
        seen_loss = seen_loss or touches
        label = _label(instruction, slots)
        for box in _scratch(instruction, program.threads, position, label[0]):
            lives.end(box.offset, box.offset + box.nbytes, position)
            boxes.append(box)
        made = _Made(position, *label, content, again)
        _touch(lives, regions, made, seen_loss, persistent)
        steps.append(label[0])
        if phases[-1].name == phase:
            phases[-1] = Phase(phase, phases[-1].start, position + 1)
        else:
            phases.append(Phase(phase, position, position + 1))
    boxes += [life.box() for life in lives.all()]
    phases.append(Phase("update", count + 1, last))
    return make_arena(
        title,
        boxes,
        [*steps, *["update"] * wide],
        nbytes=program.arena_nbytes,
        phases=phases,
        live=live_bytes([_whole(box) for box in boxes], last),
        budget=program.account.get("budget_nbytes"),
        repeats=program.minibatch // program.microbatch,
    )


def _whole(box: Box) -> Box:
    """Extend a box by its alignment padding, as plans count bytes."""
    return replace(box, nbytes=-(-box.nbytes // ALIGNMENT) * ALIGNMENT)


def _fixed(slot: Slot, last: int) -> Box:
    kind = KIND_OF_ROLE.get(slot.role, "params")
    return Box(0, last, slot.offset, slot.nbytes, kind, slot.name, slot.name.rpartition(".")[0])


def _regions(found: Decoded, extents: dict[str, int]) -> list[tuple[int, int, str]]:
    """(start, stop, mode) in bytes of each operand, reads first.

    Modes are those of the kernel's declaration. `p`: like `m`, but the kernel overwrites instead of
    adding; it may write only a part.
    """
    modes = {operand.name: operand.mode for operand in found.kernel.spec.operands}
    if found.values.get("acc") == 0:
        modes = {name: "p" if mode == "m" else mode for name, mode in modes.items()}
    rows = [
        (found.values[name], found.values[name] + nbytes, modes[name])
        for name, nbytes in extents.items()
        if nbytes and name != "ctl"
    ]
    return sorted(rows, key=lambda row: "rmpw".index(row[2]))


def _label(found: Decoded, slots: list[Slot]) -> tuple[str, str]:
    """(name of an instruction, module of the parameter that it uses)."""
    by_offset = {slot.offset: slot for slot in slots if slot.role in ("parameter", "accumulator")}
    for operand in found.kernel.spec.operands:
        if operand.is_reference and (slot := by_offset.get(found.values[operand.name])):
            return f"{found.kernel.name} ({slot.name})", slot.name.rpartition(".")[0]
    return found.kernel.name, ""


@dataclass(frozen=True)
class _Made:
    """An instruction, as recorded in the lifetimes it starts."""

    position: int
    name: str
    module: str
    content: int
    again: bool


def _touch(lives: _Lives, regions, made: _Made, after_loss: bool, fixed: int) -> None:
    for number, (low, high, mode) in enumerate(regions):
        if low < fixed:
            continue
        met, content = lives.meeting(low, high), hash((made.content, number))
        part = [life for life in met if (life.low, life.high) == (low, high) and not life.read]
        if mode == "w" or not met or (mode == "p" and not part):
            moment, forward = made.position, not after_loss
            life = _Life(moment, moment + 1, low, high, made.name, made.module, forward, content)
            life.again = made.again
            lives.begin(life)
            continue
        for life in met:
            life.stop = made.position + 1
            life.saved = life.saved or after_loss
            life.read = life.read or mode in "rm"
            life.content = life.content if mode == "r" else content


def _scratch(found: Decoded, threads: int, position: int, name: str) -> list[Box]:
    if not found.scratch or not found.scratch[1]:
        return []
    start, stride = found.scratch
    words = f"workspace of {name}"
    return [Box(position, position + 1, start, stride * threads, "workspace", words)]
