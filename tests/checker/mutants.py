"""Mutants of tapes inside their bounds: the checker refuses each, or running it shows that it means
the same.

    python -m tests.checker.mutants --mutants 20000 --seed 0

prints, for each net, how many mutants were tried, how many its readers refused (bounds), how many
the checker refused, how many ran, and which of those came to other numbers.
"""

import argparse
import copy
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edgetrain.api import make_options
from edgetrain.checker import Meaning, prove
from edgetrain.compiler.compile import plan_model
from edgetrain.compiler.tapes.assemble import assemble
from edgetrain.compiler.tapes.meanings import meanings_of
from edgetrain.errors import ProgramError
from edgetrain.kernels.tapes.decode import bound
from edgetrain.optim import Schedule
from edgetrain.program import TAPES, Program
from edgetrain.runtime.loading.tapes import check_program
from edgetrain.runtime.samples.check import made_up_filler
from edgetrain.runtime.session import Session

from ..fuzz.nets import NETS
from ..planner import hurried

STEPS = 2
Tapes = dict[str, list[list[int]]]  # tape -> instructions


@dataclass
class Meant:
    """A Program of the smallest plan, its meaning, and its result."""

    program: Program
    meanings: dict[str, Meaning]
    result: int


def meant(name: str) -> Meant:
    """Compile one of NETS for one thread, with the smallest plan."""
    build, options = NETS[name]
    settings = {"minibatch": 8, "microbatch": 4, "max_grad_norm": 1.0} | options | {"threads": 1}
    model, chosen = build(), make_options(**settings)
    with hurried():
        _, front, facts = plan_model(model, chosen)
        plan = front[0]
        program = assemble(plan, facts)
    return Meant(program, meanings_of(plan.candidate), result_of(program))


def result_of(program: Program) -> int:
    """CRC-32 of all results of a run: state, predictions and losses, after a rewiring if the
    Program has one."""
    session = Session(program, 1)
    try:
        session.lr = 0.05
        session.set_schedule(Schedule(), STEPS + 1)
        filler, value = made_up_filler(session), 0
        for _ in range(STEPS):
            session.minibatch(4 * program.minibatch, filler)
        if len(program.tapes["rewire"]):
            session.rewire()
            session.minibatch(4 * program.minibatch, filler)
        told = [session.evaluate(2 * program.microbatch, _evaluated(session))]
        for array in [*session.state().values(), *session._outputs]:
            value = zlib.crc32(np.ascontiguousarray(array).tobytes(), value)
        return zlib.crc32(repr((told, session.counters())).encode(), value)
    finally:
        session.close()


def _evaluated(session: Session) -> Callable[[np.ndarray], None]:
    rng, program = np.random.default_rng(0), session.program

    def filler(indices: np.ndarray) -> None:
        for name, buffer in session.buffers("eval").items():
            whole, high = buffer.dtype.kind in "iu", max(1, program.limits.get(name, 2))
            shape = buffer.shape
            buffer[...] = rng.integers(0, high, shape) if whole else rng.normal(size=shape)

    return filler


def instructions(program: Program) -> Tapes:
    """Return each tape's instructions as lists of words."""
    out: Tapes = {}
    for tape in TAPES:
        words, at, rows = program.tapes[tape].tolist(), 0, []
        while at < len(words):
            stop = at + 2 + words[at + 1]
            rows.append(words[at:stop])
            at = stop
        out[tape] = rows
    return out


def _move(rows: list[list[int]], draw: random.Random, references: Callable) -> None:
    """Make an operand use another operand's offset, or move its own."""
    row = draw.choice(rows)
    places = references(row)
    if places:
        other = draw.choice(rows)
        found = [other[at] for at in references(other)] or [0]
        at = draw.choice(places)
        row[at] = draw.choice([draw.choice(found), row[at] + 64 * draw.choice((-2, -1, 1, 2, 16))])


def _number(rows: list[list[int]], draw: random.Random, references: Callable) -> None:
    """Change a number, mostly to one from an instruction of the same kernel."""
    row = draw.choice(rows)
    at = draw.randrange(2, len(row))
    alike = [other[at] for other in rows if other[:2] == row[:2]]
    row[at] = draw.choice([draw.choice(alike), row[at] ^ 1, row[at] + 1, row[at] - 1, 0, 1])


def _swap(rows: list[list[int]], draw: random.Random, references: Callable) -> None:
    """Swap two instructions."""
    one = draw.randrange(len(rows))
    other = draw.choice([one + 1, one + 2, draw.randrange(len(rows))])
    if other < len(rows):
        rows[one], rows[other] = rows[other], rows[one]


def _drop(rows: list[list[int]], draw: random.Random, references: Callable) -> None:
    rows.pop(draw.randrange(len(rows)))


def _again(rows: list[list[int]], draw: random.Random, references: Callable) -> None:
    """Insert a copy of an instruction anywhere."""
    row = list(draw.choice(rows))
    rows.insert(draw.randrange(len(rows) + 1), row)


_CHANGES = (_move, _move, _move, _number, _swap, _drop, _again)


def mutant(meant: Meant, draw: random.Random) -> Program:
    """Return the Program with one change to a tape, sometimes two."""
    program, tapes = meant.program, copy.deepcopy(instructions(meant.program))
    kernels = bound(program.kernels)

    def references(row: list[int]) -> list[int]:
        out, at = [], 2
        for operand in kernels[row[0]][0].spec.operands:
            if operand.is_reference or operand.mode == "t":
                out.append(at)
            at += 2 if operand.mode == "t" else 1
        return out

    for _ in range(draw.choice((1, 1, 1, 2))):
        rows = tapes[draw.choice([tape for tape in TAPES if tapes[tape]])]
        if rows:
            draw.choice(_CHANGES)(rows, draw, references)
    words = {t: np.array([w for row in rows for w in row], np.int64) for t, rows in tapes.items()}
    return replace(program, tapes=words)


@dataclass
class Tally:
    """Results of a net's mutants."""

    tried: int = 0
    outside: int = 0
    refused: int = 0
    ran: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(meant: Meant, changed: Program, tally: Tally, label: str) -> None:
    """Count a mutant by its result."""
    tally.tried += 1
    try:
        check_program(changed, changed.arena_nbytes)
    except ProgramError:
        tally.outside += 1
        return
    try:
        prove(meant.meanings, changed)
    except ProgramError:
        tally.refused += 1
        return
    tally.ran += 1
    if result_of(changed) != meant.result:
        tally.wrong.append(label)


def attack(
    mutants: int, seed: int, nets: Sequence[str] = tuple(NETS)
) -> Iterator[tuple[str, Tally]]:
    """Try `mutants` mutants that stay inside their bounds, spread evenly over the nets."""
    for name in nets:
        found, tally, number = meant(name), Tally(), 0
        while tally.tried - tally.outside < mutants // len(nets):
            draw = random.Random(f"{seed} {name} {number}")
            judge(found, mutant(found, draw), tally, f"{name} {seed} {number}")
            number += 1
        yield name, tally


def main() -> int:
    """Run the command line; return 1 if the checker accepted a tape with another result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000, help="inside their bounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets", nargs="+", choices=tuple(NETS), default=tuple(NETS))
    arguments = parser.parse_args()
    print("net             tried  outside  refused   ran  wrong")
    wrong: list[str] = []
    for name, tally in attack(arguments.mutants, arguments.seed, arguments.nets):
        print(
            f"{name:14} {tally.tried:6,} {tally.outside:8,} {tally.refused:8,} {tally.ran:5,} "
            f"{len(tally.wrong):6}",
            flush=True,
        )
        wrong += tally.wrong
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
