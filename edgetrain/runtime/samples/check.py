"""Computes the digest that a bundle should get on generated samples."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...data.order.by_length import LengthOrder
from ...errors import RunError
from ...optim import Schedule
from ...program import Program
from ...program.samples import made_up
from ...units.phases import phase
from ..session import Session

MINIBATCHES = 4  # minibatches of generated samples, repeated in another order


def digest_of(session: Session) -> int:
    """CRC-32 of a checkpoint's contents, like a bundle's NAME_digest."""
    value = 0
    for array in session.state().values():
        value = zlib.crc32(array.tobytes(), value)
    return value


@dataclass(frozen=True)
class Checked:
    """The result of a run on generated samples.

    Attributes:
      digest: CRC-32 of the final state.
      skipped: steps without an update.
      rewired: steps with a rewiring.
      scales: loss scale before and after the run.
    """

    digest: int
    skipped: int
    rewired: int
    scales: tuple[float, float]


def state_digest(program: Program, steps: int, spike: float | None = None) -> int:
    """CRC-32 of the state after `checked_run` with one worker, while the bundle is being
    written."""
    return checked_run(program, steps, spike, threads=1).digest


def checked_run(
    program: Program, steps: int, spike: float | None = None, threads: int | None = None
) -> Checked:
    """Train `steps` minibatches of generated samples.

    Args:
      spike: as in `made_up`.
      threads: workers, which don't affect bits; None: the Program's.
    Raises:
      RunError: a step was discarded.
    """
    session = Session(program, threads)
    try:
        session.set_schedule(Schedule(), steps)
        filler, before = made_up_filler(session, spike), session.loss_scale
        results = []
        for step in range(steps):
            with phase(f"step {step + 1} of {steps} of made-up samples"):
                result = session.minibatch(MINIBATCHES * program.minibatch, filler)
            if result is None:
                raise RunError(f"step {step + 1} of made-up samples was discarded.")
            results.append(result)
        return Checked(
            digest_of(session),
            sum(r.skipped for r in results),
            sum(r.rewired is not None for r in results),
            (before, session.loss_scale),
        )
    finally:
        session.close()


def lengths_digest(program: Program, steps: int) -> int:
    """Like `state_digest`, for a bundle with all lengths of the Program. Each length has
    MINIBATCHES minibatches of samples, numbered from the shortest length to the longest."""
    session = Session(program, 1)
    assert session.lengths is not None
    programs = [*session.lengths.programs.values()]
    sizes = [(MINIBATCHES * item.minibatch, item.minibatch) for item in programs]
    order = LengthOrder(program.recipe["seed"], sizes)
    try:
        session.set_schedule(Schedule(), steps)
        for step in range(steps):
            number, samples = order.at(step)
            session.change(programs[number])
            samples = samples + sum(n for n, _ in sizes[:number])
            fill, each = made_up_filler(session), session.program.microbatch

            def part(start: int, _: int, fill=fill, rows=samples, each=each) -> None:
                fill(rows[start : start + each])

            with phase(f"step {step + 1} of {steps} of made-up samples"):
                session.partial_minibatch(len(samples), part)
        return digest_of(session)
    finally:
        session.close()


def made_up_filler(session: Session, spike: float | None = None) -> Callable[[np.ndarray], None]:
    """A filler that stages generated samples."""
    program, buffers = session.program, session._staging["micro"]
    staged = program.staged("micro")

    def filler(indices: np.ndarray) -> None:
        for row, sample in enumerate(indices.tolist()):
            for k, (name, slot) in enumerate(staged.items()):
                value = made_up(program, slot, k, sample, name, spike)
                buffers[name][row] = slot.format.encode(value).reshape(buffers[name][row].shape)

    return filler
