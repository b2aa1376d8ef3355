"""A look at what the model gives for the first microbatch: probabilities where logits are meant."""

import numpy as np

from ...formats import decoded
from ...program import TARGET, WEIGHT
from ..session import Session


class FirstLook:
    """Keeps the first microbatch that is fed, and has the model predict it after the step.

    Nothing is read from the data a second time, and no weight, counter or random number moves.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs: dict[str, np.ndarray] = {}
        program = session.program
        if session.loss.absorbs and not program.sliced and not program.unpredicted:
            session.feed.watch = self._keep

    def _keep(self) -> None:
        self._session.feed.watch = None
        buffers = self._session.buffers("micro")
        kept = {n: np.array(decoded(b)) for n, b in buffers.items() if n not in (TARGET, WEIGHT)}
        self._inputs = kept

    def doubt(self) -> str:
        """What looks wrong about the outputs; "" where nothing does."""
        self._session.feed.watch = None
        if not self._inputs:
            return ""
        inputs, self._inputs = self._inputs, {}
        return self._session.loss.doubt(self._session.predict(inputs))
