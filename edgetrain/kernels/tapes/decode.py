"""Decodes the words of a tape to instructions, and computes the work that they declare."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...errors import OutdatedError, ProgramError, UnsupportedOpError
from ...formats import BLOCKED, FLOATS, FORMATS, WHOLE
from .. import registry
from ..registry import Kernel

_INTEGERS = tuple(format.name for format in WHOLE)
_DRIVE = ("drive_train", "drive_evaluate")
_ANY, _ONE_KIND = ("copy", "fill", "truth"), ("gather", "where")

Bound = tuple[Kernel, Mapping[str, str]]


class Decoded(NamedTuple):
    """One instruction.

    Attributes:
      offset: index of its first word in the tape.
      values: words by operand, without scratch.
      scratch: (offset of the first thread's, bytes from one thread's to the next), or None.
    """

    offset: int
    kernel: Kernel
    storages: Mapping[str, str]
    values: Mapping[str, int]
    scratch: tuple[int, int] | None

    @property
    def about(self) -> tuple:
        """Everything except where its operands are."""
        operands = self.kernel.spec.operands
        numbers = (
            self.values[o.name] >= 0 if o.is_reference else self.values[o.name]
            for o in operands
            if o.mode != "t"
        )
        return self.kernel.name, self.kernel.variant, *self.storages.values(), *numbers

    def extents(self, threads: int, lanes: int) -> dict[str, int]:
        """Bytes that each present reference touches; errors as in `Spec.extents`, with the word."""
        try:
            return self.kernel.spec.extents(self.values, self.storages, threads, lanes)
        except OutdatedError as error:
            what = f"tape word {self.offset}: {self.kernel.name}: {error.what}"
            raise OutdatedError(what) from error

    def work(self, extents: Mapping[str, int], threads: int, lanes: int) -> int:
        """Loop iterations that it declares: elements touched, plus the kernel's declared work."""
        spec = self.kernel.spec
        kinds = {o.name: self.storages.get(o.storage, o.storage) for o in spec.operands}
        plain = registry.variants(self.kernel.name)[-1].spec
        touched = sum(FORMATS[kinds[name]].count(nbytes) for name, nbytes in extents.items())
        return touched + plain.turns(self.values, threads, lanes)


def decode(words: Sequence[int], kernels: Sequence[Bound]) -> Iterator[Decoded]:
    """The instructions of a tape in order.

    Args:
      kernels: (kernel, storages) by the index that the tape uses.
    Raises:
      ProgramError: names the word at which no complete instruction begins.
    """
    offset = 0
    while offset < len(words):
        index, count = words[offset], words[offset + 1] if offset + 1 < len(words) else -1
        if not 0 <= index < len(kernels) or count != kernels[index][0].spec.words:
            raise OutdatedError(f"tape word {offset}: not an instruction.")
        if offset + 2 + count > len(words):
            raise OutdatedError(f"tape word {offset}: truncated.")
        kernel, storages = kernels[index]
        values, scratch, k = {}, None, offset + 2
        for operand in kernel.spec.operands:
            if operand.mode == "t":
                scratch, k = (words[k], words[k + 1]), k + 2
            else:
                values[operand.name], k = words[k], k + 1
        yield Decoded(offset, kernel, storages, values, scratch)
        offset = k


def work_of(
    tapes: Mapping[str, Sequence[int]], kernels: Sequence[Bound], threads: int, lanes: int
) -> dict[str, dict[str, int]]:
    """Tape -> kernel -> loop iterations that its instructions declare."""
    out: dict[str, dict[str, int]] = {}
    known: dict[tuple, int] = {}  # equal calls do equal work, wherever their operands are
    for tape, words in tapes.items():
        turns = out.setdefault(tape, {})
        for call in decode(words, kernels):
            about = call.about
            if about not in known:
                known[about] = call.work(call.extents(threads, lanes), threads, lanes)
            name = call.kernel.name
            turns[name] = turns.get(name, 0) + known[about]
    return out


def fits(kernel: Kernel, storages: Sequence[str]) -> bool:
    """Whether a kernel can be made for these storages: numbers must be floats and positions
    integers, except in kernels that only move or compare elements; blocks only if the variable
    allows them."""
    free, kinds = kernel.name in _ANY or kernel.name.startswith("cmp_"), set()
    variables = kernel.spec.variables
    if len(variables) != len(storages):
        return False
    blocks = kernel.blocks.split()
    for variable, storage in zip(variables, storages, strict=True):
        if storage not in FLOATS + _INTEGERS and not (storage in BLOCKED and variable in blocks):
            return False
    for variable, storage in zip(variables, storages, strict=True):
        if variable == "I" and storage in FLOATS:
            return False
        if variable not in "IM":
            kinds.add(storage in FLOATS + BLOCKED)
    return free or kinds <= {True} or (kernel.name in _ONE_KIND and len(kinds) == 1)


def bound(
    table: Sequence[tuple[str, str, Sequence[str]]], revisions: Mapping[str, int] | None = None
) -> list[Bound]:
    """This build's kernels for the rows (name, variant, storages) of a Program's table.

    Args:
      revisions: the revisions that the Program was compiled for, as from `revisions_of`; None skips
        the check, for a table that this build made.
    Raises:
      OutdatedError: this build lacks a kernel, or has it at another revision.
      ProgramError: a kernel is listed twice.
    """
    out: list[Bound] = []
    # Kernels of the step loop take addresses; they call tapes, and are not part of one.
    for name, variant, storages in table:
        result: list[Kernel] = []
        if name != "run_tape" and not name.startswith("drive_"):
            with contextlib.suppress(UnsupportedOpError):
                result = [item for item in registry.variants(name) if item.variant == variant]
        if not result or not fits(result[0], storages):
            raise OutdatedError(
                f"kernel {name}.{variant} for {tuple(storages)}: not available in this build."
            )
        row = result[0], dict(zip(result[0].spec.variables, storages, strict=True))
        if row in out:
            raise ProgramError(f"kernel {name}.{variant} is listed twice. Compile the model again.")
        out.append(row)
    if revisions is None:
        return out
    for label, now in _revisions(out).items():
        was = revisions.get(label, 1)
        if was != now:
            raise OutdatedError(
                f"kernel {label}: compiled for revision {was}; this build has revision {now}, "
                "whose results differ."
            )
    return out


def _revisions(kernels: Sequence[Bound]) -> dict[str, int]:
    """Label -> the latest revision of a kernel's results for its storages."""
    out: dict[str, int] = {}
    for kernel, storages in kernels:
        out[kernel.label] = max(out.get(kernel.label, 1), kernel.revision_of(storages))
    return out | {kernel.label: kernel.revision for kernel in _drive()}


def _drive() -> list[Kernel]:
    """Kernels that no tape lists, but that affect a run's bits."""
    return [registry.variants(name)[0] for name in _DRIVE]


def revisions_of(table: Sequence[tuple[str, str, Sequence[str]]]) -> dict[str, int]:
    """Label -> revision other than 1, for the kernels that a Program with this table depends on."""
    kernels = [
        (kernel, dict(zip(kernel.spec.variables, storages, strict=True)))
        for name, variant, storages in table
        for kernel in registry.variants(name)
        if kernel.variant == variant
    ]
    return {label: revision for label, revision in _revisions(kernels).items() if revision != 1}
