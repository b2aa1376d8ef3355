"""What a bundle will compute on made-up samples, found out here: a Session is given the same."""

import ctypes
import zlib

import numpy as np

from ..errors import RunError
from ..optim import Schedule
from ..program import Program
from ..program.samples import made_up
from .session import Session

MINIBATCHES = 4  # of made-up samples, taken again in another order


def digest_of(session: Session) -> int:
    """CRC-32 of what a checkpoint holds, as NAME_digest of a bundle."""
    value = 0
    for array in session.state().values():
        value = zlib.crc32(array.tobytes(), value)
    return value


def state_digest(program: Program, steps: int, spike: float = 1.0) -> int:
    """CRC-32 of the state after a run of `steps` minibatches of made-up samples.

    Args:
      spike: as in `made_up`.
    Raises:
      RunError: a step was refused.
    """
    session = Session(program, 1)
    try:
        session.set_rate(program.recipe["optimizer"]["lr"], Schedule(), steps)
        buffers, staged = session._staging["micro"], program.staged("micro")

        def filler(indices: np.ndarray) -> None:
            for row, sample in enumerate(indices.tolist()):
                for k, (name, slot) in enumerate(staged.items()):
                    value = made_up(program, slot, k, sample, name, spike)
                    buffers[name][row] = slot.format.encode(value).reshape(buffers[name][row].shape)

        for step in range(steps):
            if session.minibatch(MINIBATCHES * program.minibatch, filler) is None:
                raise RunError(f"step {step + 1} of made-up samples was discarded.")
        return digest_of(session)
    finally:
        session.close()


def made_up_fill(program: Program):
    """A fill callback over made-up samples, as a bundle takes it."""
    staged = program.staged("micro").items()
    last = len(staged) - 1

    def fill(user, split, sample, x, y) -> int:
        for k, (name, slot) in enumerate(staged):
            values = made_up(program, slot, k, sample, name)
            where = y if k == last else x
            if k < last and last > 1:
                where = (ctypes.c_void_p * last).from_address(x)[k]
            ctypes.memmove(where, values.ctypes.data, values.nbytes)
        return 0

    return fill
