"""A file's kernels, slots and work are checked before its tapes run (contract 8)."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import ProgramError
from edgetrain.kernels.cache import jit
from edgetrain.kernels.tapes.decode import bound, decode, work_of
from edgetrain.program import Program
from edgetrain.runtime.loading.program import load_program
from edgetrain.runtime.loading.roles import Slots
from edgetrain.runtime.loading.tapes import SLACK, check_program

from ..fuzz.nets import compiled

_program = functools.cache(compiled)


def _check(program: Program) -> None:
    check_program(program, program.arena_nbytes)


def _word(program: Program, tape: str, kernel: str, operand: str, add: int = 0) -> int:
    """Index of an operand in the first instruction that calls a kernel."""
    for found in decode(program.tapes[tape].tolist(), bound(program.kernels)):
        if found.kernel.name == kernel:
            at = found.offset + 2
            for declared in found.kernel.spec.operands:
                if declared.name == operand:
                    return at + add
                at += 2 if declared.mode == "t" else 1
    raise AssertionError(f"no {kernel} in {tape}")


def _changed(program: Program, tape: str, kernel: str, **operands: int) -> Program:
    """The Program with some words of the kernel's first instruction replaced."""
    words = program.tapes[tape].copy()
    for operand, value in operands.items():
        words[_word(program, tape, kernel, operand)] = value
    return dataclasses.replace(program, tapes={**program.tapes, tape: words})


def _value(program: Program, tape: str, kernel: str, operand: str, add: int = 0) -> int:
    return int(program.tapes[tape][_word(program, tape, kernel, operand, add)])


@pytest.mark.parametrize("name", ["depthwise", "lstm", "sparse", "transposed"])
def test_honest_programs_pass(name: str) -> None:
    _check(_program(name))


CHANGES: dict[str, tuple[str, str, str, dict[str, int]]] = {
    # net, tape, kernel, operands
    "a window that the variant cannot have": ("depthwise", "micro", "avgpool", {"kh": 500_000}),
    "windows beyond the image": ("residual", "micro", "conv", {"sh": 1000}),
    "no rows": ("residual", "micro", "conv", {"n": 0}),
    "a repeated product": ("mlp", "micro", "gemm", {"z1": 1000}),
    "a long product": ("mlp", "micro", "gemm", {"k2": 200_000}),
    "a repeated copy": ("lstm", "micro", "copy", {"d0": 500_000}),
    "a repeated sum": ("attention", "micro", "reduce_mean", {"r0": 400_000}),
    "a wide window of channels": ("transposed", "micro", "lrn", {"size": 300_000, "n": 300}),
    "long windows": ("pools", "micro", "maxpool_bwd", {"kh": 250}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_integers_that_make_loops_long_or_wide_are_refused(what: str) -> None:
    net, tape, kernel, operands = CHANGES[what]
    with pytest.raises(ProgramError, match="contradict|call for|work|bytes"):
        _check(_changed(_program(net), tape, kernel, **operands))


def test_output_on_its_own_scratch_is_refused() -> None:
    program = _program("residual")
    scratch = _value(program, "micro", "conv", "ws")
    with pytest.raises(ProgramError, match="scratch"):
        _check(_changed(program, "micro", "conv", y=scratch))


@pytest.mark.parametrize("step", [4, 32, -64])
def test_scratch_of_threads_is_aligned_and_large_enough(step: int) -> None:
    program = _program("residual")
    words = program.tapes["micro"].copy()
    words[_word(program, "micro", "conv", "ws", add=1)] += step
    with pytest.raises(ProgramError, match="workspace"):
        _check(dataclasses.replace(program, tapes={**program.tapes, "micro": words}))


def _with_slot(program: Program, name: str, **fields) -> Program:
    slots = [
        dataclasses.replace(slot, **fields) if slot.name == name else slot
        for slot in program.persistent
    ]
    return dataclasses.replace(program, persistent=tuple(slots))


def _named(program: Program, role: str) -> str:
    return next(slot.name for slot in program.persistent if slot.role == role)


SLOTS: dict[str, Callable[[Program], Program]] = {
    "control block on a weight": lambda p: _with_slot(
        p, "ctl", offset=p.slot(_named(p, "parameter")).offset
    ),
    "weight on another": lambda p: _with_slot(
        p, _named(p, "accumulator"), offset=p.slot(_named(p, "parameter")).offset
    ),
    "control block beside what kernels use": lambda p: _with_slot(
        p, "ctl", offset=p.arena_nbytes - 512
    ),
    "control block of another role": lambda p: _with_slot(p, "ctl", role="buffer"),
    "positions that are called a weight": lambda p: _with_slot(
        p, _named(p, "index"), role="accumulator"
    ),
    "a weight that is called positions": lambda p: _with_slot(
        p, _named(p, "parameter"), role="index"
    ),
    "a weight that is called a constant": lambda p: _with_slot(
        p, _named(p, "parameter"), role="constant"
    ),
    "a gradient that is called a weight": lambda p: _with_slot(
        p, _named(p, "accumulator"), role="parameter"
    ),
    "a role that there is not": lambda p: _with_slot(p, _named(p, "parameter"), role="other"),
    "a slot of another kind": lambda p: _with_slot(p, _named(p, "parameter"), dtype="i32"),
    "a slot twice": lambda p: dataclasses.replace(p, persistent=(*p.persistent, p.persistent[0])),
    "inputs on a weight": lambda p: dataclasses.replace(
        p,
        inputs={
            tape: tuple(dataclasses.replace(s, offset=p.persistent[0].offset) for s in slots)
            for tape, slots in p.inputs.items()
        },
    ),
    "targets on inputs": lambda p: dataclasses.replace(
        p,
        targets={
            tape: dataclasses.replace(slot, offset=p.inputs[tape][0].offset)
            for tape, slot in p.targets.items()
        },
    ),
}


@pytest.mark.parametrize("what", SLOTS)
def test_slots_that_are_not_what_they_say_are_refused(what: str) -> None:
    program = _program("sparse")
    with pytest.raises(ProgramError):
        _check(SLOTS[what](program))


def test_every_byte_belongs_to_at_most_one_slot() -> None:
    program = _program("sparse")
    slots = Slots(program, program.arena_nbytes)
    for slot in program.persistent:
        if slot.size:
            last = slot.offset + slot.nbytes - 1
            assert slots.meeting(slot.offset, slot.offset + 1) == [slot]
            assert slots.meeting(last, last + 1) == [slot]
            assert slot not in slots.meeting(last + 1, last + 2)


def test_only_update_writes_weights() -> None:
    program = _program("residual")
    weight = next(slot for slot in program.persistent if slot.name == "b0.conv1.w")
    for tape in ("micro", "eval"):
        with pytest.raises(ProgramError, match=r"must not write|do not match"):
            _check(_changed(program, tape, "conv", y=weight.offset))


def test_other_bytes_than_the_control_block_are_refused() -> None:
    program = _program("residual")
    weight = max(program.persistent, key=lambda slot: slot.nbytes)
    with pytest.raises(ProgramError, match="control block"):
        _check(_changed(program, "update", "grad_finish", ctl=weight.offset))


def test_variant_that_the_integers_do_not_call_for_is_refused() -> None:
    program = _program("residual")
    table = [
        (name, "plain" if name == "conv" else variant, storages)
        for name, variant, storages in program.kernels
    ]
    with pytest.raises(ProgramError, match="conv"):
        _check(dataclasses.replace(program, kernels=tuple(table)))


def test_unused_and_repeated_kernels_are_refused() -> None:
    program = _program("mlp")
    more = (*program.kernels, ("un_gelu", "plain", ("f32",)))
    with pytest.raises(ProgramError, match="un_gelu.* not used"):
        _check(dataclasses.replace(program, kernels=more))
    with pytest.raises(ProgramError, match="twice"):
        _check(dataclasses.replace(program, kernels=(*program.kernels, program.kernels[0])))


@pytest.mark.parametrize("storage", ["u8", "i64", "f64"])
def test_kernels_of_impossible_storages_are_refused(storage: str) -> None:
    program = _program("mlp")
    table = [(n, v, (storage,) * len(s) if n == "un_tanh" else s) for n, v, s in program.kernels]
    with pytest.raises(ProgramError, match="un_tanh.* not available"):
        _check(dataclasses.replace(program, kernels=tuple(table)))


def test_work_is_at_most_slack_times_what_the_model_takes() -> None:
    program = _program("lstm")
    assert SLACK == 4
    lanes = jit.host().lanes
    words = {tape: array.tolist() for tape, array in program.tapes.items()}
    assert work_of(words, bound(program.kernels), program.threads, lanes) == program.work

    def told(divisor: int) -> Program:
        micro = {kernel: turns // divisor for kernel, turns in program.work["micro"].items()}
        return dataclasses.replace(program, work={**program.work, "micro": micro})

    _check(told(3))
    for work in (told(5).work, {}):
        with pytest.raises(ProgramError, match="4 times"):
            _check(dataclasses.replace(program, work=work))


def test_tables_of_taps_rise() -> None:
    program = _program("transposed")
    name = next(
        slot.name
        for slot in program.persistent
        if slot.offset == _value(program, "micro", "resample", "rows")
    )
    table = np.array(program.init[name])
    table.reshape(-1)[1:3] = 9, 0
    with pytest.raises(ProgramError, match="tap table"):
        _check(dataclasses.replace(program, init={**program.init, name: table}))
    with pytest.raises(ProgramError, match="tap table"):
        _check(_with_slot(program, name, role="parameter"))


def test_minibatch_is_that_of_the_account(tmp_path) -> None:
    program = dataclasses.replace(_program("mlp"), minibatch=8_000_000)
    with pytest.raises(ProgramError, match="account"):
        load_program(program.save(tmp_path / "p.edge"))


def test_loaded_program_keeps_its_work(tmp_path) -> None:
    program = _program("mlp")
    assert et.load_program(program.save(tmp_path / "p.edge")).work == program.work


def test_gradient_on_its_own_targets_is_refused() -> None:
    program = _program("mlp")
    targets = _value(program, "micro", "ce_bwd", "t")
    with pytest.raises(ProgramError, match="overlaps its t"):
        _check(_changed(program, "micro", "ce_bwd", dx=targets))
