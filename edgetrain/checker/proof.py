"""Checks a tape, instruction by instruction, against the versions of its graph."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from ..errors import ProgramError
from ..kernels.tapes.decode import bound
from ..kernels.targets import lanes_of
from ..program import Program, Slot
from .contents import Contents, Pieces
from .forms import Forms, Row
from .meaning import CONTROL, Effect, Known, Meaning, Operand, Versions, part_of, read_masked

_MOVE = "This is a bug in the compiler: please report it."


def prove(meanings: Mapping[str, Meaning], program: Program) -> None:
    """Prove that every tape of a Program computes what its graph means.

    Args:
      meanings: graphs by tape; tapes without calls can be left out.
    Raises:
      ProgramError: names the first instruction that reads a wrong version, or the value that is
        wrong at the end.
    """
    rows = [Row(row) for row in bound(program.kernels)]
    forms = Forms(program.threads, lanes_of(program.recipe))
    for tape, words in program.tapes.items():
        meaning = meanings.get(tape, Meaning({}, ()))
        Proof(tape, meaning, program, forms).run(words.tolist(), rows)


class Proof:
    """The versions in the arena while a tape runs."""

    def __init__(self, tape: str, meaning: Meaning, program: Program, forms: Forms) -> None:
        self._tape, self._meaning, self._program = tape, meaning, program
        self._versions = Versions(meaning, forms)
        self._contents = Contents()
        self._slots = {slot.name: slot.offset for slot in program.persistent}
        self._slots |= {s.name: program.arena_nbytes + s.offset for s in program.mapped}
        started = set()
        for name, offset in [*self._slots.items(), *((s.name, s.offset) for s in self._filled())]:
            if name in meaning.values:
                root = meaning.root(name)
                nbytes, version = meaning.values[root].nbytes, self._versions.initial[root]
                self._contents.write(offset, nbytes, version)
                started.add(root)
        missing = self._versions.initial.keys() - started
        if missing:
            raise ProgramError(
                f"{program.model_name}: {min(missing)} has no slot in {tape}. {_MOVE}"
            )

    def run(self, words: Sequence[int], rows: Sequence[Row]) -> None:
        """Check every instruction, then the final contents."""
        word = 0
        while word < len(words):
            index, count = words[word], words[word + 1] if word + 1 < len(words) else -1
            if not 0 <= index < len(rows) or count != rows[index].words:
                raise ProgramError(f"tape {self._tape} word {word}: not an instruction. {_MOVE}")
            stop = word + 2 + count
            self._step(word, rows[index], words[word + 2 : stop])
            word = stop
        for name, start in self._slots.items():
            if name in self._meaning.values:
                self._compare(name, start)
        for slot in self._program.outputs.get(self._tape, ()):
            if slot.name in self._meaning.outputs:
                self._compare(self._meaning.root(slot.name), slot.offset)

    def _filled(self) -> list[Slot]:
        target = self._program.targets.get(self._tape)
        return [*self._program.inputs.get(self._tape, ()), *([target] if target else [])]

    def _step(self, word: int, row: Row, words: Sequence[int]) -> None:
        form, places = row.read(words)
        known = self._versions.known.get(form)
        if known is None:
            self._fail(word, row, "the graph has no call with these operands")
        operands = _placed(known, places)
        part = part_of(self._contents, operands)
        for mask, by_pieces in known.effects.items():
            effect = by_pieces.get(read_masked(self._contents, mask, places, part))
            if effect is not None:
                break
        else:
            self._refuse(word, row, known, places)
        for operand in operands:  # reads of the control block's constant words are not tracked
            constant = operand.mode == "r" and operand.nth not in effect.reads
            if constant and operand.name == CONTROL and operand.start != self._slots.get(CONTROL):
                self._fail(word, row, f"operand {CONTROL} is not the control block")
        for written in operands:
            if written.mode != "r":
                self._check_overlaps(word, row, effect, written, operands)
        if row.scratch is not None:
            self._clobber(word, row, operands, *words[row.scratch : row.scratch + 2])
        for operand in operands:
            if operand.mode != "r":
                version = effect.writes[operand.nth]
                own = part if operand.nth in effect.parted else None
                self._contents.write(operand.start, operand.nbytes, version, part=own)

    def _check_overlaps(
        self, word: int, row: Row, effect: Effect, written: Operand, operands: Sequence[Operand]
    ) -> None:
        for other in operands:
            if other is not written and written.meets(other):
                moved = other.start - written.start
                if (written.nth, other.nth, moved) not in effect.overlaps:
                    what = f"operand {written.name} overwrites operand {other.name}"
                    self._fail(word, row, what)

    def _clobber(
        self, word: int, row: Row, operands: Sequence[Operand], start: int, stride: int
    ) -> None:
        """Mark the workspace of all threads as undefined."""
        scratch = Operand(-1, "", "w", start, stride * self._program.threads)
        for operand in operands:
            if scratch.nbytes and scratch.meets(operand):
                self._fail(word, row, f"its workspace overlaps operand {operand.name}")
        self._contents.erase(start, scratch.nbytes)

    def _compare(self, root: str, start: int) -> None:
        """Check that a value's final content is the one it has in the graph."""
        for word, pieces in self._versions.left(root):
            nbytes = max(piece[0] + piece[1] for piece in pieces)
            held = self._contents.read(start + word, nbytes)
            if held != pieces:
                raise ProgramError(
                    f"{self._program.model_name}: at the end of tape {self._tape}, {root} contains "
                    f"{self._told(held)}; expected {self._told(pieces)}. {_MOVE}"
                )

    def _refuse(self, word: int, row: Row, known: Known, places: Sequence[int]) -> NoReturn:
        """Describe how the instruction differs from the most similar call."""
        meant = [effect for some in known.effects.values() for effect in some.values()]
        held = {
            operand.nth: self._contents.read(operand.start, operand.nbytes)
            for operand in _placed(known, places)
        }

        def right(effect: Effect) -> int:
            return sum(held[index] == pieces for index, pieces in effect.reads.items())

        likely = max(meant, key=right)
        index = next(i for i, pieces in likely.reads.items() if pieces and pieces != held[i])
        name = next(reference.name for reference in known.references if reference.nth == index)
        self._fail(
            word,
            row,
            f"operand {name} reads {self._told(held[index])}; node {likely.call.label} expects "
            f"{self._told(likely.reads[index])}",
        )

    def _told(self, pieces: Pieces) -> str:
        names = dict.fromkeys(self._versions.name(version) for _, _, version, _ in pieces)
        return ", ".join(names) or "undefined bytes"

    def _fail(self, word: int, row: Row, what: str) -> NoReturn:
        raise ProgramError(f"tape {self._tape} word {word}: {row.kernel.name}: {what}. {_MOVE}")


def _placed(known: Known, places: Sequence[int]) -> list[Operand]:
    return [Operand(nth, name, mode, places[nth], n) for nth, name, mode, n in known.references]
