"""The arena of a Program, from its tape: for those who have the Program and not the plan.

Names of values are not kept in a Program, so a life is called by the kernel that began it and the
parameter that this kernel reads. What is computed again looks like what was computed before.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from ..program import Program, Slot
from ..program.account import KIND_OF_ROLE
from ..program.instructions import Decoded, instructions
from .scene import Arena, Box, Phase, make_arena

_UPDATE_SHARE = 0.04


@dataclass
class _Life:
    """Bytes from the instruction that wrote them first to the last one that touched them."""

    start: int
    stop: int
    low: int
    high: int
    name: str
    module: str
    forward: bool
    kind: str = ""
    saved: bool = False

    def box(self) -> Box:
        kind = self.kind or ("saved" if self.forward and self.saved else "transient")
        return Box(
            self.start, self.stop, self.low, self.high - self.low, kind, self.name, self.module
        )


@dataclass
class _Lives:
    """The lives that go on, by address, and those that ended."""

    now: list[tuple[int, int, _Life]] = field(default_factory=list)
    ended: list[_Life] = field(default_factory=list)
    _count: int = 0

    def meeting(self, low: int, high: int) -> list[_Life]:
        """What lies in [low, high); lives that go on share no byte, so few are looked at."""
        at = bisect_left(self.now, (high, -1))
        found: list[_Life] = []
        while at and len(found) < at + 1:
            at -= 1
            if self.now[at][2].high <= low:
                break
            found.append(self.now[at][2])
        return found

    def begin(self, life: _Life) -> None:
        """A write of fresh bytes: what lay there has ended."""
        self.end(life.low, life.high, life.start)
        self._count += 1
        insort(self.now, (life.low, self._count, life))

    def end(self, low: int, high: int, at: int) -> None:
        """What lies in [low, high) has ended; what is written in place takes over here."""
        for other in self.meeting(low, high):
            other.stop = min(other.stop, at)
            self.now = [row for row in self.now if row[2] is not other]
            self.ended.append(other)

    def all(self) -> list[_Life]:
        return [*self.ended, *(row[2] for row in self.now)]


def program_arena(program: Program, title: str) -> Arena:
    """What lives where while a Program's microbatch and update run."""
    found = list(instructions(program, "micro"))
    count = len(found)
    wide = max(1, round(_UPDATE_SHARE * (count + 1)))
    last = count + 1 + wide
    slots = [slot for slot in program.persistent if slot.size]
    persistent = max((slot.offset + slot.nbytes for slot in slots), default=0)
    boxes = [_fixed(slot, last) for slot in slots]
    lives, steps, phases = _Lives(), ["inputs"], [Phase("inputs", 0, 1)]
    staged = [*program.inputs["micro"], program.targets["micro"]]
    target = program.targets["micro"]
    for slot in staged:
        lives.begin(_Life(0, 1, slot.offset, slot.offset + slot.nbytes, slot.name, "", True, "io"))
    seen_loss = False
    for position, (instruction, extents) in enumerate(found, 1):
        regions = _regions(instruction, extents)
        touches = any(
            low < target.offset + target.nbytes and target.offset < high for low, high, _ in regions
        )
        backward = seen_loss and not touches
        phase = "backward" if backward else "loss" if touches else "forward"
        seen_loss = seen_loss or touches
        label = _label(instruction, slots)
        for box in _scratch(instruction, program.threads, position, label[0]):
            lives.end(box.offset, box.offset + box.nbytes, position)
            boxes.append(box)
        _touch(lives, regions, position, label, seen_loss, persistent)
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
        budget=program.account.get("budget_nbytes"),
        repeats=program.minibatch // program.microbatch,
    )


def _fixed(slot: Slot, last: int) -> Box:
    kind = KIND_OF_ROLE.get(slot.role, "params")
    return Box(0, last, slot.offset, slot.nbytes, kind, slot.name, slot.name.rpartition(".")[0])


def _regions(found: Decoded, extents: dict[str, int]) -> list[tuple[int, int, str]]:
    """(first byte, last + 1, mode) of each operand, what is read first."""
    modes = {operand.name: operand.mode for operand in found.kernel.spec.operands}
    rows = [
        (found.values[name], found.values[name] + nbytes, modes[name])
        for name, nbytes in extents.items()
        if nbytes and name != "ctl"
    ]
    return sorted(rows, key=lambda row: "rmw".index(row[2]))


def _label(found: Decoded, slots: list[Slot]) -> tuple[str, str]:
    """(what an instruction is called, the module of the parameter that it touches)."""
    by_offset = {slot.offset: slot for slot in slots if slot.role in ("parameter", "accumulator")}
    for operand in found.kernel.spec.operands:
        if operand.is_reference and (slot := by_offset.get(found.values[operand.name])):
            return f"{found.kernel.name} ({slot.name})", slot.name.rpartition(".")[0]
    return found.kernel.name, ""


def _touch(lives: _Lives, regions, position: int, label, after_loss: bool, fixed: int) -> None:
    for low, high, mode in regions:
        if low < fixed:
            continue
        met = lives.meeting(low, high)
        if mode == "w" or not met:
            name, module = label
            lives.begin(_Life(position, position + 1, low, high, name, module, not after_loss))
            continue
        for life in met:
            life.stop = position + 1
            life.saved = life.saved or after_loss


def _scratch(found: Decoded, threads: int, position: int, name: str) -> list[Box]:
    if not found.scratch or not found.scratch[1]:
        return []
    start, stride = found.scratch
    words = f"scratch of {name}"
    return [Box(position, position + 1, start, stride * threads, "workspace", words)]
