"""Damaged Programs and tapes are refused, or run without leaving the arena (contract 8)."""

import dataclasses
import json
import multiprocessing
import random
import signal
from pathlib import Path

import numpy as np
import pytest

import edgetrain as et
from edgetrain.errors import ProgramError
from edgetrain.kernels import control
from edgetrain.program import Program
from edgetrain.runtime.loading.program import load_program
from edgetrain.runtime.session import Session
from tests.quick import slow_except

from .conftest import Compile

TAPES = ("micro", "update", "eval", "rewire")
FILES, MUTANTS = 200, 400
SECONDS = 20  # maximum for one mutated tape


def test_a_saved_program_comes_back_whole(forked_program: Program, tmp_path: Path) -> None:
    loaded = load_program(forked_program.save(tmp_path / "p.edge"))
    for field in dataclasses.fields(Program):
        found, expected = (getattr(p, field.name) for p in (loaded, forked_program))
        if field.name in ("tapes", "init"):
            assert found.keys() == expected.keys()
            assert all(np.array_equal(found[k], expected[k]) for k in expected)
        elif field.name in ("account", "recipe"):
            assert found == json.loads(json.dumps(expected))
        else:
            assert found == expected, field.name


def test_damaged_files_are_refused(forked_program: Program, tmp_path: Path) -> None:
    path = forked_program.save(tmp_path / "p.edge")
    sound = path.read_bytes()
    draw = random.Random(0)
    for _ in range(FILES):
        data = bytearray(sound)
        if draw.random() < 0.3:
            del data[draw.randrange(len(data)) :]
        else:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        with pytest.raises(ProgramError, match="p.edge"):
            load_program(path)


def test_another_kernel_or_thread_count_is_refused(forked_program: Program) -> None:
    name, variant, storages = forked_program.kernels[0]
    for other in ((name, "none", storages), ("none", variant, storages), ("run_tape", "plain", ()),
                  ("drive_train", "plain", ()), ("drive_stage", "plain", ())):  # fmt: skip
        kernels = (other, *forked_program.kernels[1:])
        with pytest.raises(ProgramError):
            Session(dataclasses.replace(forked_program, kernels=kernels))
    for threads in (0, 3):
        with pytest.raises(ProgramError, match="threads"):
            Session(forked_program, threads)


def test_slots_outside_the_arena_are_refused(forked_program: Program) -> None:
    last = forked_program.persistent[-1]
    for offset in (forked_program.arena_nbytes, 2**60, 32):
        slots = (*forked_program.persistent[:-1], dataclasses.replace(last, offset=offset))
        with pytest.raises(ProgramError, match="slot"):
            Session(dataclasses.replace(forked_program, persistent=slots))


def mutated(word: int, words: np.ndarray, draw: random.Random) -> int:
    """Another value for a word of a tape: a flipped bit, a neighbour, something huge, ..."""
    return draw.choice([
        word ^ (1 << draw.randrange(63)), 0, -1, word + 1, word - 1, word + 64, word - 64, 2 * word,
        draw.getrandbits(62), int(words[draw.randrange(len(words))]),
    ])  # fmt: skip


def run_mutants(path: str, seeds: range) -> None:
    """Run in a separate process: every mutant is refused or runs to its end."""
    program = et.load_program(path)
    Session(program, 1).close()
    for seed in seeds:
        draw = random.Random(seed)
        tape = draw.choice([tape for tape in TAPES if len(program.tapes[tape])])
        words = program.tapes[tape].copy()
        where = draw.randrange(len(words))
        value = mutated(int(words[where]), words, draw)
        words[where] = max(-(2**63), min(2**63 - 1, value))
        try:
            session = Session(dataclasses.replace(program, tapes={**program.tapes, tape: words}), 1)
        except ProgramError:
            continue
        signal.alarm(SECONDS)
        session.ints[control.COUNT] = program.microbatch
        session.reals[control.NOMINAL] = program.minibatch
        session.executor.run(tape)
        session.executor.run("micro")
        signal.alarm(0)
        assert session.arena.slack_is_clean(), seed
        session.close()


@pytest.mark.parametrize("density", slow_except([1.0, 0.4], 0.4))
def test_mutated_tapes_are_refused_or_stay_in_the_arena(
    forked: Compile, density: float, tmp_path: Path
) -> None:
    path = forked(density=density).save(tmp_path / "p.edge")
    process = multiprocessing.get_context("spawn").Process(
        target=run_mutants, args=(str(path), range(MUTANTS))
    )
    process.start()
    process.join(600)
    process.kill()
    assert process.exitcode == 0
