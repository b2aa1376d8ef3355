"""Finds equal sections of objects, so that a library contains them only once.

Two sections are the same if their bytes and the sections they refer to are. Sections that refer to
each other (code and its jump table) are assumed to be the same until something distinguishes them.
Nothing compares the addresses of kernels, so two kernels may be merged.

Source: Tallam, Coutant, Taylor, Li, Demetriou 2010, "Safe ICF: Pointer Safe and Unwinding Aware
Identical Code Folding in Gold".
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from .relocatable import ALLOC, EXECUTE, MERGE, WRITE, Relocatable, Relocation, Section, Symbol
from .relocate import Machine

Key = tuple[int, int]  # number of an object, number of its section
_WIDEST = 64  # bytes of the largest constant that code refers to: a vector


class Folding:
    """The referenced sections of some objects, each content once.

    Attributes:
      kept: sections to lay out, in the order of the objects.
      same: section -> the equal section in `kept`.
    """

    def __init__(
        self,
        objects: Sequence[Relocatable],
        defined: Mapping[str, tuple[int, Symbol]],
        machine: Machine,
    ) -> None:
        """Args:
        defined: visible symbol -> number of its object, and the symbol's entry there.
        """
        self._objects, self._defined, self._machine = objects, defined, machine
        self._pools = {
            (n, k): nbytes
            for n, item in enumerate(objects)
            for k in item.sections
            if (nbytes := _pool_of(item, k))
        }
        numbers = self._told_apart()
        first: dict[int, Key] = {}
        for key, number in numbers.items():
            first.setdefault(number, key)
        alike = {key: first[number] for key, number in numbers.items()}
        result = set(self._reached(alike))
        self.kept = [key for key in numbers if key in result]
        self.same = {key: item for key, item in alike.items() if item in result}

    def _told_apart(self) -> dict[Key, int]:
        """Section -> a number that is equal for equal sections."""
        contents: dict[Key, Hashable] = {}
        others: dict[Key, list[Key]] = {}
        for n, item in enumerate(self._objects):
            for k, section in item.sections.items():
                if section.data:
                    contents[n, k], others[n, k] = self._described((n, k), section)
        numbers = _numbered(contents)
        while True:
            finer = _numbered(
                {key: (numbers[key], *(numbers[o] for o in others[key])) for key in numbers}
            )
            if len(set(finer.values())) == len(set(numbers.values())):
                return finer
            numbers = finer

    def _described(self, key: Key, section: Section) -> tuple[Hashable, list[Key]]:
        """A section's own content for comparison, and the sections it refers to."""
        if section.flags & WRITE:
            return key, []
        out: list[Hashable] = [section.data, section.align, section.flags & EXECUTE]
        others: list[Key] = []
        for entry in self._objects[key[0]].relocations.get(key[1], ()):
            what, other = self._referred(key[0], entry)
            out.append((entry.offset, entry.kind, what))
            others += other
        return tuple(out), others

    def _referred(self, number: int, entry: Relocation) -> tuple[Hashable, list[Key]]:
        target = self._target(number, entry.symbol)
        if target is None:
            return (entry.symbol.name, entry.addend), []
        key, symbol = target
        nbytes = self._pools.get(key)
        if not nbytes:
            return (symbol.offset, entry.addend), [key]
        data = self._objects[key[0]].sections[key[1]].data
        if symbol.name:
            start = symbol.offset - symbol.offset % nbytes
            return (symbol.offset - start, entry.addend, data[start : start + nbytes]), []
        # The offset counts from the section's start; on x86-64, minus the rest of the instruction.
        # If that leaves two possible constants, both must be the same.
        least, most = (symbol.offset + entry.addend + more for more in self._machine.behind)
        start, stop = least - least % nbytes, most - most % nbytes + nbytes
        return (least - start, stop - start, data[max(start, 0) : stop]), []

    def _target(self, number: int, symbol: Symbol) -> tuple[Key, Symbol] | None:
        """The section of a symbol, and the symbol; None if no object defines it."""
        if not symbol.section:
            if symbol.name not in self._defined:
                return None
            number, symbol = self._defined[symbol.name]
        return (number, symbol.section), symbol

    def _reached(self, alike: Mapping[Key, Key]) -> Iterator[Key]:
        """Sections that are reachable from visible symbols."""
        seen: set[Key] = set()
        pending = [(number, symbol.section) for number, symbol in self._defined.values()]
        while pending:
            key = alike[pending.pop()]
            if key not in seen:
                seen.add(key)
                yield key
                for entry in self._objects[key[0]].relocations.get(key[1], ()):
                    target = self._target(key[0], entry.symbol)
                    if target is not None:
                        pending.append(target[0])


def _numbered(contents: Mapping[Key, Hashable]) -> dict[Key, int]:
    known: dict[Hashable, int] = {}
    return {key: known.setdefault(what, len(known)) for key, what in contents.items()}


def _pool_of(file: Relocatable, number: int) -> int:
    """Bytes of each constant, if a section consists only of constants of one size; else 0.

    Such sections are marked as mergeable, except the one with vectors of 64 bytes. That one is
    recognised if functions (so also their jump tables) have their own sections, and tables have
    symbols.
    """
    section = file.sections[number]
    if section.flags & (WRITE | EXECUTE) or not section.flags & ALLOC or number in file.relocations:
        return 0
    if section.flags & MERGE:
        return section.entry
    is_whole = section.align == _WIDEST and len(section.data) % _WIDEST == 0
    return _WIDEST if section.name == ".rodata" and is_whole and _apart(file, number) else 0


def _apart(file: Relocatable, number: int) -> bool:
    texts: Iterable[Section] = (s for s in file.sections.values() if s.name == ".text")
    sized = any(symbol.section == number and symbol.nbytes for symbol in file.symbols)
    return not sized and not any(section.data for section in texts)
