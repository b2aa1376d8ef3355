"""Checks the model's first outputs, for example for probabilities instead of logits."""

import numpy as np

from ...formats import decoded
from ...program import TARGET, WEIGHT
from ..session import Session


class FirstLook:
    """Keeps the first microbatch, and predicts it after the step.

    The data is not read again, and no weight, counter or random number changes.
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
        """A warning about suspicious outputs; "" if they look fine."""
        self._session.feed.watch = None
        if not self._inputs:
            return ""
        inputs, self._inputs = self._inputs, {}
        return self._session.loss.doubt(self._session.predict(inputs))
