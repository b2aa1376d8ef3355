"""A look at what the model gives for the first microbatch: probabilities where logits are meant."""

import numpy as np

from ...formats import decoded
from ..session import Session


class FirstLook:
    """Keeps the first microbatch that is fed, and has the model predict it after the step.

    Nothing is read from the data a second time, and no weight, counter or random number moves.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs: dict[str, np.ndarray] = {}
        program = session.program
        wary = any(term.loss.absorbs for term in session.terms)
        if wary and not program.sliced and not program.unpredicted:
            session.feed.watch = self._keep

    def _keep(self) -> None:
        self._session.feed.watch = None
        buffers = self._session.buffers("micro")
        names = self._session.program.input_names
        self._inputs = {name: np.array(decoded(buffers[name])) for name in names}

    def doubt(self) -> str:
        """What looks wrong about the outputs; "" where nothing does."""
        self._session.feed.watch = None
        if not self._inputs:
            return ""
        inputs, self._inputs = self._inputs, {}
        found = self._session.predictions(inputs)
        doubts = (term.loss.doubt(found[term.output]) for term in self._session.terms)
        return next(filter(None, doubts), "")
