"""Checks the model's first outputs, for example for probabilities instead of logits."""

import numpy as np

from ...formats import decoded
from ..session import Session


class FirstLook:
    """Keeps the first microbatch, and predicts it after the step.

    The data is not read again, and no weight, counter or random number changes.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs: dict[str, np.ndarray] = {}
        self._program = program = session.program
        wary = any(term.loss.absorbs for term in session.terms)
        if wary and not program.sliced and not program.unpredicted:
            session.sample_callback.watch = self._keep

    def _keep(self) -> None:
        self._session.sample_callback.watch = None
        buffers = self._session.buffers("micro")
        self._program = self._session.program
        names = self._program.input_names
        self._inputs = {name: np.array(decoded(buffers[name])) for name in names}

    def doubt(self) -> str:
        """A warning about suspicious outputs; "" if they look fine."""
        self._session.sample_callback.watch = None
        if not self._inputs:
            return ""
        inputs, self._inputs = self._inputs, {}
        with self._session.turn:
            self._session.change(self._program)  # a callback may have used another length
            result = self._session.predictions(inputs)
        doubts = (term.loss.doubt(result[term.output]) for term in self._session.terms)
        return next(filter(None, doubts), "")
