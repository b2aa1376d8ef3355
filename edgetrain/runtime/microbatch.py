"""One microbatch of arrays, for whoever wants its loss and gradients alone."""

from collections.abc import Mapping

import numpy as np

from ..kernels import control
from ..program import TARGET, WEIGHT
from .feed import check_weights
from .session import Session
from .staging import stage, stage_inputs


def run_microbatch(
    session: Session, inputs: Mapping[str, np.ndarray], target: np.ndarray | None
) -> float:
    """Fill the staging bytes, run the micro tape once; returns the mean loss.

    Args:
      inputs: by name; WEIGHT: of the samples, 1 each by default.
    Raises:
      DataError: inputs or target are not of the shapes that were compiled, or out of range.
    """
    program = session.program
    inputs = {WEIGHT: np.ones(program.microbatch, np.float32), **inputs}
    check_weights(np.asarray(inputs[WEIGHT], np.float32), lambda row: f"sample {row}")
    with session.turn:
        stage_inputs(program, session.arena, program.inputs["micro"], inputs)
        if target is not None:
            stage(program, TARGET, session.arena.view(program.targets["micro"]), target)
        session.ints[control.COUNT] = program.microbatch
        session.reals[control.NOMINAL] = program.minibatch * program.target_count
        session.executor.run("micro")
        return float(session.reals[control.LOSS_SUM]) / session.divisor
