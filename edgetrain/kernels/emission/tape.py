"""The instructions of a Program as separate functions, with their integers as constants.

Tapes become rows of words [number, 0], as the step loop reads them (step_loop/layout.py). `number`
is the index of a function `void (i64 base, i64 args, i64 thread, i64 nthreads)` in one table. Equal
instructions share one function. If a Program has one thread, so does a run of small instructions:
they need no synchronisation, and a step of `poll` stays small.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import registry
from ..step_loop.layout import SPLIT_NONE, STRIDE_NONE
from ..tapes.decode import Bound, bound, decode
from ..targets import lanes_of
from .text import direct, operand_types, parameter

_ENTRY = "i64 %base, i64 %args, i64 %thread, i64 %nthreads"
_SMALL = 8  # instructions that share a function have at most 1 / 8 of the longest one's work
_POLLED = ("micro", "update", "rewire")  # tapes of a minibatch
_MOST_OWN = 64  # instructions with their own code; more would cost compile time and bytes


# Cost of a loop iteration by family, relative to one of `conv`; others: _USUAL. Measured on a
# processor without vectors or float64 (digits in fp16 on a Cortex-M7).
_TURN = {"conv": 1, "optimizers": 1, "norm": 6, "losses": 12, "optim": 12}
_USUAL = 4


class Tapes(Protocol):
    """The parts of a Program that are used here."""

    @property
    def recipe(self) -> Mapping[str, Any]: ...
    @property
    def threads(self) -> int: ...
    @property
    def arena_nbytes(self) -> int: ...
    @property
    def kernels(self) -> Sequence[tuple[str, str, Sequence[str]]]: ...
    @property
    def tapes(self) -> Mapping[str, np.ndarray]: ...
    @property
    def revisions(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Instruction:
    """An instruction that tapes run at one or more places.

    Attributes:
      kernel: its index in the Program.
      words: of its operands.
      stride: STRIDE_NONE or SPLIT_NONE.
      turns: loop iterations, as the kernel declares them; work: the sum over all its places.
    """

    kernel: int
    words: tuple[int, ...]
    stride: int
    turns: int
    work: int


@dataclass(frozen=True)
class Table:
    """A Program's tapes as indices into a table of functions.

    Attributes:
      entries: for each function, the instructions that it runs one after the other.
      numbers: indices of entries, by tape.
      arena_nbytes: reference words from here on, minus this, are offsets into the mapped data.
    """

    kernels: list[Bound]
    instructions: list[Instruction]
    entries: list[tuple[int, ...]]
    numbers: Mapping[str, list[int]]
    arena_nbytes: int

    def stride(self, entry: int) -> int:
        """STRIDE_NONE if parts of the entry may run one after the other, else SPLIT_NONE."""
        result = self.entries[entry]
        return self.instructions[result[0]].stride if len(result) == 1 else SPLIT_NONE

    def longest(self, parts: int = 1) -> tuple[str, tuple[int, ...], int]:
        """(tape, instructions, turns) of the longest uninterrupted run, if everything that can be
        split is split into `parts`.

        Raises:
          ValueError: there is no instruction.
        """
        result = []
        for tape, numbers in self.numbers.items():
            for number in numbers if tape.partition(".")[0] in _POLLED else ():
                group = self.entries[number]
                turns = sum(self.instructions[k].turns for k in group)
                undivided = self.stride(number) == SPLIT_NONE
                result.append((tape, group, turns if undivided else -(-turns // parts)))
        return max(result, key=lambda piece: piece[2])

    def lengths(self) -> dict[str, int]:
        """Bytes of each tape."""
        return {tape: 16 * len(result) for tape, result in self.numbers.items()}


def table_of(program: Tapes) -> Table:
    """A Program's distinct instructions, and its tapes as their indices."""
    kernels, lanes = bound(program.kernels, program.revisions), lanes_of(program.recipe)
    known: dict[tuple, int] = {}
    result: list[Instruction] = []
    rows: dict[str, list[int]] = {}
    works: dict[str, list[int]] = {}
    for tape, words in program.tapes.items():
        row, costs = rows.setdefault(tape, []), works.setdefault(tape, [])
        given = words.tolist()
        for item in decode(given, kernels):
            index = given[item.offset]
            kernel, storages = kernels[index]
            operands = tuple(given[item.offset + 2 : item.offset + 2 + given[item.offset + 1]])
            work = item.work(item.extents(program.threads, lanes), program.threads, lanes)
            work *= _TURN.get(kernel.family, _USUAL)
            number = known.setdefault((index, operands), len(result))
            if number == len(result):
                stride = _stride(kernel, program.threads)
                result.append(Instruction(index, operands, stride, work, 0))
            instruction = result[number]
            result[number] = dataclasses.replace(instruction, work=instruction.work + work)
            row.append(number)
            costs.append(work)
    most = max((work for costs in works.values() for work in costs), default=0) // _SMALL
    entries: dict[tuple[int, ...], int] = {}
    numbers: dict[str, list[int]] = {}
    for tape, row in rows.items():
        groups = _grouped(row, works[tape], most if program.threads == 1 else 0)
        numbers[tape] = [entries.setdefault(group, len(entries)) for group in groups]
    return Table(kernels, result, list(entries), numbers, program.arena_nbytes)


def _grouped(row: list[int], works: list[int], most: int) -> Iterator[tuple[int, ...]]:
    """Groups of consecutive instructions with at most `most` work; larger ones are alone."""
    group: list[int] = []
    total = 0
    for number, work in zip(row, works, strict=True):
        if group and total + work > most:
            yield tuple(group)
            group, total = [], 0
        group.append(number)
        total += work
    if group:
        yield tuple(group)


def _stride(kernel: registry.Kernel, threads: int) -> int:
    """Whether parts of the instruction may run one after the other on one workspace.

    With one thread, the workspace's stride is compiled in as 0; with more threads, they need it.
    """
    scratches = [o for o in kernel.spec.operands if o.mode == "t"]
    counted = "nthreads" in registry.declaration(kernel)["operands"]
    if len(scratches) > 1 or counted or (scratches and threads > 1):
        return SPLIT_NONE
    return STRIDE_NONE


def worth_own_code(table: Table, share: float = 0.995) -> set[int]:
    """Indices of the instructions that take nearly all the work, longest first."""
    by_work = sorted(range(len(table.instructions)), key=lambda k: -table.instructions[k].work)
    total = sum(item.work for item in table.instructions)
    chosen: set[int] = set()
    done = 0
    for number in by_work:
        if done >= share * total or len(chosen) == _MOST_OWN:
            break
        chosen.add(number)
        done += table.instructions[number].work
    return chosen


class Mapped(NamedTuple):
    """The constant that reference words from `first` on refer to."""

    symbol: str
    first: int


def _arguments(
    kernel: registry.Kernel, words: Sequence[int], threads: int, mapped: Mapped
) -> Iterator[str]:
    """Lines that compute operand k as %vk; `words` as in a tape."""
    index = 0
    for k, kind in enumerate(kernel.spec.kinds):
        word, index = words[index], index + 1
        if kind == "f":
            yield f"  %v{k} = bitcast i32 {word & 0xFFFFFFFF} to float"
        elif kind == "r" and word >= mapped.first:
            yield f"  %b{k} = ptrtoint ptr @{mapped.symbol} to i64"
            yield f"  %v{k} = add i64 %b{k}, {word - mapped.first}"
        elif kind == "r":
            absent = word < 0
            yield f"  %v{k} = add i64 {0 if absent else '%base'}, {0 if absent else word}"
        elif kind == "t":
            stride, index = words[index] if threads > 1 else 0, index + 1
            yield f"  %o{k} = mul i64 {stride}, %thread\n  %b{k} = add i64 %base, {word}"
            yield f"  %v{k} = add i64 %b{k}, %o{k}"
        else:
            yield f"  %v{k} = add i64 0, {word}"


def function_text(
    name: str,
    kernel: registry.Kernel,
    symbol: str,
    words: Sequence[int],
    threads: int,
    inlined: bool,
    mapped: Mapped,
) -> str:
    """The function of one instruction. `own`: inline the kernel, specialised for its integers."""
    kinds = kernel.spec.kinds
    given = ["i64 %thread", "i64 %nthreads"]
    given += [f"{parameter(kind)} %v{k}" for k, kind in enumerate(kinds)]
    lines = "\n".join(_arguments(kernel, words, threads, mapped))
    return (
        f"define void @{name}({_ENTRY}) {{\n{lines}\n"
        f'  call void @"{direct(symbol)}"({", ".join(given)}){" alwaysinline" if inlined else ""}\n'
        "  ret void\n}\n"
    )


def entry_text(symbol: str, kinds: str, alone: bool = False) -> str:
    """`symbol` as the C function that takes its operands from words in memory (args). `alone`: run
    as the only thread, whatever the caller passes."""
    lines, given = [], ["i64 0", "i64 1"] if alone else ["i64 %thread", "i64 %nthreads"]
    for k, kind in enumerate(kinds):
        lines.append(f"  %p{k} = getelementptr i64, ptr %p, i32 {k}")
        lines.append(f"  %w{k} = load i64, ptr %p{k}")
        if kind == "r":
            lines.append(f"  %s{k} = add i64 %base, %w{k}\n  %n{k} = icmp slt i64 %w{k}, 0")
            lines.append(f"  %v{k} = select i1 %n{k}, i64 0, i64 %s{k}")
        elif kind == "i":
            lines.append(f"  %v{k} = add i64 0, %w{k}")
        else:
            raise ValueError(f"{symbol}: it has operands other than addresses and integers")
        given.append(f"i64 %v{k}")
    body = "\n".join(lines)
    return (
        f"define void @{symbol}({_ENTRY}) {{\n"
        f"  %p = inttoptr i64 %args to ptr\n{body}\n"
        f'  call void @"{direct(symbol)}"({", ".join(given)})\n  ret void\n}}\n'
    )


def declaration(symbol: str, kinds: str) -> str:
    """The declaration that a module needs to call `direct(symbol)`."""
    return f'declare void @"{direct(symbol)}"({", ".join(operand_types(kinds))})\n'


def _row(values: Sequence[int]) -> str:
    return f"[{len(values)} x i64] [{', '.join(f'i64 {v}' for v in values)}]"


def text_of_table(
    table: Table,
    threads: int,
    bits: int,
    inlined: Collection[int],
    buffered: Collection[int],
    mapped: str = "",
) -> str:
    """Instructions, `@table`, `@strides` and `@tape.NAME` of every tape.

    Args:
      inlined: indices of the instructions that get their own code.
      buffered: kernels with buffers on the stack. If they were inlined into one function, their
        buffers would all take space at once.
      mapped: symbol of the constant that has the data a Program maps; defined by another object.
    """
    placed = Mapped(mapped, table.arena_nbytes)
    symbols = [kernel.symbol(storages) for kernel, storages in table.kernels]
    out = [
        declaration(symbol, kernel.spec.kinds)
        for symbol, (kernel, _) in zip(symbols, table.kernels, strict=True)
    ]
    if mapped:
        out.append(f"@{mapped} = external hidden constant i8\n")
    for number, item in enumerate(table.instructions):
        kernel = table.kernels[item.kernel][0]
        symbol = symbols[item.kernel]
        is_own = number in inlined
        out.append(function_text(f"i{number}", kernel, symbol, item.words, threads, is_own, placed))
    names = []
    for number, group in enumerate(table.entries):
        names.append(f"@i{group[0]}" if len(group) == 1 else f"@g{number}")
        if len(group) > 1:
            calls = ""
            for k in group:
                apart = " noinline" if table.instructions[k].kernel in buffered else ""
                calls += f"  call void @i{k}(i64 %base, i64 0, i64 0, i64 1){apart}\n"
            out.append(f"define void {names[-1]}({_ENTRY}) {{\n{calls}  ret void\n}}\n")
    # a 32-bit pointer is the low half of a word
    kind = "ptr" if bits == 64 else "{ ptr, i32 }"
    entry = "ptr {}" if bits == 64 else "{{ ptr, i32 }} {{ ptr {}, i32 0 }}"
    rows = ", ".join(entry.format(name) for name in names)
    out.append(f"@table = constant [{len(names)} x {kind}] [{rows}], align 8\n")
    strides = [table.stride(number) for number in range(len(table.entries))]
    out.append(f"@strides = constant {_row(strides)}, align 8\n")
    for tape, numbers in table.numbers.items():
        words = [word for number in numbers for word in (number, 0)]
        out.append(f"@tape.{tape} = constant {_row(words)}, align 8\n")
    return "".join(out)
