"""Joins objects of kernels to a shared object: an ELF file for dlopen, made without a linker.

Kernels call no other code except, on the host, memset and its kin, and refer only to their own
constants. So sections are laid out one after the other, each content once (folding.py), and
relative addresses are filled in here. The loader only has to fill in a table of addresses in the
last, writable page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...errors import UnsupportedOpError
from .folding import Folding, Key
from .relocatable import EXECUTE, WRITE, Relocatable, Relocation, Symbol
from .relocate import MACHINES, STUB_NBYTES, Machine
from .shared_file import READ, Export, Part, written


def shared_object(objects: Sequence[bytes], imports: Sequence[str] = ()) -> bytes:
    """Join relocatable objects; their global symbols become the library's.

    Args:
      objects: for one processor, x86-64 or AArch64.
      imports: symbols that the loading process provides, such as `memset`.
    Raises:
      UnsupportedOpError: another processor, a relocation that kernels do not use, or a missing or
        duplicate symbol.
    """
    result = [Relocatable(code) for code in objects]
    numbers = {item.machine for item in result}
    if len(numbers) != 1 or not numbers <= MACHINES.keys():
        raise UnsupportedOpError(
            f"objects for processors {sorted(numbers)}: expected one of "
            f"{', '.join(map(str, MACHINES))} (ELF numbers). Link them with a compiler for it."
        )
    return _Library(result, MACHINES[numbers.pop()], tuple(imports)).bytes()


@dataclass
class _Region:
    """Sections with the same rights, one after the other."""

    data: bytearray = field(default_factory=bytearray)

    def add(self, section: bytes, align: int) -> int:
        self.data += bytes(-len(self.data) % align) + section
        return len(self.data) - len(section)


class _Library:
    def __init__(self, objects: list[Relocatable], machine: Machine, imports: tuple) -> None:
        self._objects, self._machine, self._imports = objects, machine, imports
        self._regions = {rights: _Region() for rights in (READ, EXECUTE, WRITE)}
        self._places: dict[Key, tuple[int, int]] = {}  # -> (region, offset)
        self._written: list[Key] = []  # sections that were laid out
        self._globals = self._defined()
        self._slots: dict[tuple, int] = {}  # target of an address -> offset in region WRITE
        self._stubs: dict[str, int] = {}
        self._lay_out()

    def _defined(self) -> dict[str, tuple[int, Symbol]]:
        result: dict[str, tuple[int, Symbol]] = {}
        for number, item in enumerate(self._objects):
            for symbol in item.symbols:
                if symbol.visible and symbol.section:
                    if symbol.name in result:
                        raise UnsupportedOpError(
                            f"symbol {symbol.name} is defined twice. Link each object only once."
                        )
                    result[symbol.name] = number, symbol
        return result

    def _lay_out(self) -> None:
        folding = Folding(self._objects, self._globals, self._machine)
        self._written = folding.kept
        placed = {key: self._placed(key) for key in self._written}
        self._places = {key: placed[item] for key, item in folding.same.items()}
        for number, section in self._written:
            for entry in self._relocations(number, section):
                self._prepare(number, entry)

    def _relocations(self, number: int, section: int) -> Sequence[Relocation]:
        return self._objects[number].relocations.get(section, ())

    def _placed(self, key: Key) -> tuple[int, int]:
        section = self._objects[key[0]].sections[key[1]]
        absolute = any(entry.kind == self._machine.absolute for entry in self._relocations(*key))
        region = WRITE if absolute or section.flags & WRITE else section.flags & EXECUTE
        return region, self._regions[region].add(section.data, section.align)

    def _prepare(self, number: int, entry: Relocation) -> None:
        """Allocate a slot or stub if this relocation needs one."""
        if not entry.symbol.section and entry.symbol.name not in self._globals:
            name = entry.symbol.name
            if name not in self._imports:
                raise UnsupportedOpError(f"symbol {name}: no object in this library defines it.")
            self._slot((name,))
            if entry.kind in self._machine.calls and name not in self._stubs:
                self._stubs[name] = self._regions[EXECUTE].add(bytes(STUB_NBYTES), 16)
        elif entry.kind in self._machine.through:
            self._slot(self._target(number, entry.symbol))

    def _slot(self, of: tuple) -> None:
        if of not in self._slots:
            self._slots[of] = self._regions[WRITE].add(bytes(8), 8)

    def _target(self, number: int, symbol: Symbol) -> tuple[int, int]:
        """(region, offset) of a symbol that is defined here."""
        if not symbol.section:
            number, symbol = self._globals[symbol.name]
        region, start = self._places[number, symbol.section]
        return region, start + symbol.offset

    def bytes(self) -> bytes:
        exports = [
            Export(name, *self._target(number, symbol), symbol.nbytes)
            for name, (number, symbol) in sorted(self._globals.items())
        ]
        parts = [Part(rights, self._regions[rights].data) for rights in (READ, EXECUTE, WRITE)]
        names = [of[0] for of in self._slots if isinstance(of[0], str)]
        count = len(self._slots) + sum(
            entry.kind == self._machine.absolute
            for number, section in self._written
            for entry in self._relocations(number, section)
        )
        return written(parts, exports, names, self._machine, count, self._fill)

    def _fill(self, starts: dict[int, int]) -> Iterator[tuple[int, int, int | str]]:
        """Fill in relative addresses once absolute ones are known.

        Yields:
          What the loader fills in: (address, kind, addend or the name of a symbol).
        """
        machine = self._machine
        for of, offset in self._slots.items():
            slot = starts[WRITE] + offset
            if isinstance(of[0], str):
                yield slot, machine.slot, of[0]
            else:
                yield slot, machine.relative, starts[of[0]] + of[1]
        for name, offset in self._stubs.items():
            place, slot = starts[EXECUTE] + offset, starts[WRITE] + self._slots[name,]
            self._regions[EXECUTE].data[offset : offset + STUB_NBYTES] = machine.stub(place, slot)
        for key in self._written:
            region, start = self._places[key]
            for entry in self._relocations(*key):
                yield from self._entry(key[0], entry, region, start + entry.offset, starts)

    def _entry(
        self, number: int, entry: Relocation, region: int, offset: int, starts: dict[int, int]
    ) -> Iterator[tuple[int, int, int | str]]:
        machine, name = self._machine, entry.symbol.name
        place = starts[region] + offset
        foreign = not entry.symbol.section and name not in self._globals
        if foreign and entry.kind in machine.calls:
            target = starts[EXECUTE] + self._stubs[name]
        elif foreign:
            target = starts[WRITE] + self._slots[name,]
        else:
            where = self._target(number, entry.symbol)
            target = starts[where[0]] + where[1]
            if entry.kind == machine.absolute:
                yield place, machine.relative, target + entry.addend
                return
            if entry.kind in machine.through:
                target = starts[WRITE] + self._slots[where]
        if entry.kind not in machine.direct or (
            foreign and entry.kind not in machine.calls | machine.through
        ):
            raise UnsupportedOpError(
                f"relocation {entry.kind} of {name or 'a section'}: not supported. "
                "Link the objects with a compiler for this processor."
            )
        fill = machine.direct[entry.kind]
        fill(self._regions[region].data, offset, place, target + entry.addend)
