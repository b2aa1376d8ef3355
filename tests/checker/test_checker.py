"""The proof that a tape computes what its graph means: what it refuses and what it can prove."""

import ast
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from edgetrain.checker import prove
from edgetrain.checker.meaning import STILL
from edgetrain.errors import ProgramError
from edgetrain.kernels.control import TARGETS
from edgetrain.kernels.tapes.decode import bound
from edgetrain.program import Program
from edgetrain.runtime.samples.check import made_up_filler
from edgetrain.runtime.session import Session
from tests.quick import slow_between

from ..fuzz.nets import NETS
from ..test_arrows import PACKAGE
from .mutants import Meant, Tally, instructions, judge, meant, mutant

ONE = "residual"


@cache
def net(name: str) -> Meant:
    return meant(name)


def changed(name: str, tape: str, change) -> Program:
    """Return a net's Program with `change` applied to one tape's instructions."""
    rows = instructions(net(name).program)[tape]
    change(rows)
    words = np.array([word for row in rows for word in row], np.int64)
    program = net(name).program
    return replace(program, tapes={**program.tapes, tape: words})


def place(row: list[int], operand: str) -> int:
    """Return the index of an operand's word in an instruction of ONE."""
    at = 2
    for one in bound(net(ONE).program.kernels)[row[0]][0].spec.operands:
        if one.name == operand:
            return at
        at += 2 if one.mode == "t" else 1
    raise KeyError(operand)


def first(rows: list[list[int]], kernel: str) -> int:
    """Return the index of the first instruction that calls a kernel."""
    table = net(ONE).program.kernels
    return next(at for at, row in enumerate(rows) if table[row[0]][0] == kernel)


@pytest.mark.parametrize("name", NETS)
def test_tapes_of_the_smallest_plan_are_proved(name: str) -> None:
    prove(net(name).meanings, net(name).program)


def test_an_instruction_that_reads_another_version_is_refused() -> None:
    def change(rows: list[list[int]]) -> None:
        row = rows[first(rows, "conv_dw")]
        row[place(row, "x")] = row[place(row, "dy")]

    message = r"tape micro word \d+: conv_dw: operand x reads .*; node .* expects "
    with pytest.raises(ProgramError, match=message):
        prove(net(ONE).meanings, changed(ONE, "micro", change))


def test_a_number_that_the_graph_does_not_have_is_refused() -> None:
    def change(rows: list[list[int]]) -> None:
        row = rows[first(rows, "conv_dw")]
        row[place(row, "key")] += 1

    with pytest.raises(ProgramError, match="conv_dw: the graph has no call"):
        prove(net(ONE).meanings, changed(ONE, "micro", change))


def test_what_is_added_twice_is_refused() -> None:
    def change(rows: list[list[int]]) -> None:
        at = first(rows, "conv_dw")
        rows.insert(at, list(rows[at]))

    with pytest.raises(ProgramError, match="conv_dw: operand dwt reads .* expects "):
        prove(net(ONE).meanings, changed(ONE, "micro", change))


def test_what_is_missing_is_refused() -> None:
    def change(rows: list[list[int]]) -> None:
        rows.pop(first(rows, "bn_running"))

    message = "at the end of tape micro, .* contains .*; expected "
    with pytest.raises(ProgramError, match=message):
        prove(net(ONE).meanings, changed(ONE, "micro", change))


def test_a_workspace_on_an_operand_is_refused() -> None:
    def change(rows: list[list[int]]) -> None:
        row = rows[first(rows, "conv_dw")]
        row[place(row, "ws")] = row[place(row, "dy")]

    with pytest.raises(ProgramError, match="conv_dw: its workspace overlaps operand "):
        prove(net(ONE).meanings, changed(ONE, "micro", change))


def test_an_output_over_an_operand_that_the_op_reads_again_is_refused() -> None:
    def change(rows: list[list[int]]) -> None:
        row = rows[first(rows, "conv_dx")]
        row[place(row, "dx")] = row[place(row, "dy")]

    with pytest.raises(ProgramError, match="conv_dx: operand dx overwrites operand dy"):
        prove(net(ONE).meanings, changed(ONE, "micro", change))


def test_a_value_that_the_program_has_no_slot_for_is_refused() -> None:
    program = net(ONE).program
    fewer = tuple(slot for slot in program.persistent if slot.name != "stem.w")
    with pytest.raises(ProgramError, match="stem.w has no slot in micro"):
        prove(net(ONE).meanings, replace(program, persistent=fewer))


@pytest.mark.parametrize("name", slow_between(NETS, 3))
def test_mutants_inside_their_bounds_are_refused_or_harmless(name: str) -> None:
    tally = Tally()
    for number in range(25):
        judge(net(name), mutant(net(name), random.Random(f"{name} {number}")), tally, str(number))
    assert (tally.wrong, tally.refused > 0) == ([], True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_many_mutants_inside_their_bounds_are_refused_or_harmless(name: str) -> None:
    tally, number = Tally(), 0
    while tally.refused + tally.ran < 500:
        judge(net(name), mutant(net(name), random.Random(f"m {name} {number}")), tally, str(number))
        number += 1
    assert tally.wrong == []


@pytest.mark.parametrize("name", [n for n in NETS if "fused_update" not in NETS[n][1]])
def test_a_microbatch_reads_still_words_of_the_control_block(name: str) -> None:
    """Other words of the control block do not affect gradients."""
    program, found = net(name).program, []
    for other in (0, 3):
        session = Session(program, 1)
        filler = made_up_filler(session)
        filler(np.arange(program.microbatch))
        before = session.ints.copy()
        session.ints[:] = other
        session.ints[[*STILL]] = before[[*STILL]]
        session.reals[STILL[-2:],] = 1.0
        session.ints[STILL[3]] = program.microbatch
        session.ints[TARGETS] = 0  # the first microbatch: sums of several losses are reset
        session.executor.run("micro")
        found.append({n: a.tobytes() for n, a in session.values.items() if n != "ctl"})
        session.close()
    assert found[0] == found[1]


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    allowed = {"errors", "formats", "ir", "program", "kernels"}
    declarations = {"control", "registry", "tapes.decode", "targets"}
    for path in (PACKAGE / "checker").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                room, _, inside = (node.module or "").partition(".")
                assert room in allowed, path.name
                names = [inside] if inside else [alias.name for alias in node.names]
                assert room != "kernels" or set(names) <= declarations, path.name
