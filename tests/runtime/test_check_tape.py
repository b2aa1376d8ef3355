"""The check of a tape, word by word: one mistake at a time, with everything else correct."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgetrain.errors import ProgramError
from edgetrain.formats import FORMATS
from edgetrain.kernels.cache import jit
from edgetrain.kernels.tapes.decode import bound
from edgetrain.program import Program
from edgetrain.runtime.loading.tapes import check_program

TAPE = "micro"


def _operands(program: Program) -> Iterator[tuple[Any, int, int, int, int]]:
    """(operand, its word, its bytes, their alignment, scratch per thread)."""
    kernels, words, at = bound(program.kernels), program.tapes[TAPE], 0
    while at < len(words):
        (kernel, storages), count = kernels[words[at]], int(words[at + 1])
        places, values, k = {}, {}, at + 2
        for operand in kernel.spec.operands:
            places[operand.name], values[operand.name] = k, int(words[k])
            k += 2 if operand.mode == "t" else 1
        lanes = jit.host().lanes
        own = {n: v for n, v in values.items()
               if next(o for o in kernel.spec.operands if o.name == n).mode != "t"}  # fmt: skip
        extents = kernel.spec.extents(own, storages, program.threads, lanes)
        need = kernel.spec.scratch_nbytes(own, program.threads, lanes)
        for operand in kernel.spec.operands:
            storage = storages.get(operand.storage, operand.storage)
            nbytes = extents.get(operand.name, 0)
            yield (
                operand,
                places[operand.name],
                nbytes,
                FORMATS[storage].block_nbytes if storage in FORMATS else 0,
                need,
            )
        at += 2 + count


def _refused(program: Program, word: int, value: int) -> bool:
    words = program.tapes[TAPE].copy()
    words[word] = value
    try:
        changed = dataclasses.replace(program, tapes={**program.tapes, TAPE: words})
        check_program(changed, program.arena_nbytes)
    except ProgramError:
        return True
    return False


def test_the_tape_itself_passes(digits: Program) -> None:
    check_program(digits, digits.arena_nbytes)


def test_operands_lie_at_multiples_of_their_elements(digits: Program) -> None:
    words, tried = digits.tapes[TAPE], 0
    for operand, word, nbytes, align, _ in _operands(digits):
        offset = int(words[word])
        inside = operand.is_reference and offset >= 0 and nbytes > 0 and align > 1
        if inside and offset + nbytes + align <= digits.arena_nbytes:
            assert _refused(digits, word, offset + 1), operand.name
            assert _refused(digits, word, offset + align // 2), operand.name
            tried += 1
    assert tried > 20


def test_operands_end_with_the_arena(digits: Program) -> None:
    tried = 0
    for operand, word, nbytes, align, _ in _operands(digits):
        last = (digits.arena_nbytes - nbytes) // max(1, align) * max(1, align)
        if operand.is_reference and operand.mode == "r" and nbytes > 0:
            assert _refused(digits, word, last + align), operand.name
            assert _refused(digits, word, -align) or operand.optional, operand.name
            tried += 1
    assert tried > 20


def test_scratch_is_aligned_and_as_large_as_the_kernel_needs(digits: Program) -> None:
    words, tried = digits.tapes[TAPE], 0
    for operand, word, _, _, need in _operands(digits):
        if operand.mode == "t" and need:
            assert _refused(digits, word, int(words[word]) + 4)
            assert _refused(digits, word + 1, need - 1)
            tried += 1
    assert tried > 3


@pytest.mark.parametrize("cut", [1, 2])
def test_a_tape_that_is_cut_short_is_refused(digits: Program, cut: int) -> None:
    words = np.ascontiguousarray(digits.tapes[TAPE][:-cut])
    with pytest.raises(ProgramError, match="tape word"):
        changed = dataclasses.replace(digits, tapes={**digits.tapes, TAPE: words})
        check_program(changed, digits.arena_nbytes)


def test_counts_beyond_the_arenas_bits_are_refused(digits: Program) -> None:
    most, tried = 8 * digits.arena_nbytes, 0
    for operand, word, *_ in _operands(digits):
        if operand.mode == "i" and operand.name not in ("key", "ignore", "padding"):
            assert _refused(digits, word, most + 1) and _refused(digits, word, -most - 1)
            tried += 1
    assert tried > 20


def test_a_refused_instruction_says_once_what_to_do(digits: Program) -> None:
    words = np.array(digits.tapes[TAPE])
    word = next(w for o, w, *_ in _operands(digits) if o.mode == "i" and o.name != "key")
    words[word] = -(2**60)
    changed = dataclasses.replace(digits, tapes={**digits.tapes, TAPE: words})
    with pytest.raises(ProgramError) as error:
        check_program(changed, digits.arena_nbytes)
    assert str(error.value).count("Compile the model again") == 1
