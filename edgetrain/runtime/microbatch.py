"""Runs arrays through the micro tape, to get only their loss and gradients."""

import math
from collections.abc import Mapping

import numpy as np

from ..kernels import control
from ..program import TARGET, WEIGHT
from .samples.sample_callback import check_weights
from .samples.staging import stage, stage_inputs
from .session import Session


def run_minibatch(
    session: Session, inputs: Mapping[str, np.ndarray], target: np.ndarray | None
) -> float:
    """Call `run_microbatch` for each microbatch of a minibatch; returns the mean loss.

    Gradients are accumulated; running statistics are updated by each microbatch.
    """
    size, loss = session.program.microbatch, 0.0
    for number in range(session.program.minibatch // size):
        part = slice(number * size, (number + 1) * size)
        given = {name: array[part] for name, array in inputs.items()}
        loss = run_microbatch(session, given, None if target is None else target[part], number)
    return loss


def run_microbatch(
    session: Session,
    inputs: Mapping[str, np.ndarray],
    target: np.ndarray | None,
    number: int = 0,
) -> float:
    """Stage a microbatch and run the micro tape; returns the mean loss of the minibatch so far, NaN
    if no target counted.

    Args:
      inputs: arrays by name; WEIGHT: sample weights (default: 1).
      number: index of the microbatch in its minibatch.
    Raises:
      DataError: inputs or target have a wrong shape, or are out of range.
    """
    program = session.program
    inputs = {WEIGHT: np.ones(program.microbatch, np.float32), **inputs}
    check_weights(np.asarray(inputs[WEIGHT], np.float32), lambda row: f"sample {row}")
    with session.turn:
        session.ints[control.MICROBATCH] = number
        stage_inputs(program, session.arena, program.inputs["micro"], inputs)
        if target is not None:
            stage(program, TARGET, session.arena.view(program.targets["micro"]), target)
        session.ints[control.COUNT] = program.microbatch
        session.reals[control.NOMINAL] = program.minibatch * program.target_count
        session.executor.run("micro")
        counted = session.reals[control.WEIGHT] or session.ints[control.TARGETS]
        return float(session.reals[control.LOSS_SUM]) / session.divisor if counted else math.nan
