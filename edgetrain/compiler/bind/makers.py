"""What a rule may ask of the graph so far: who made a value, what a constant holds."""

import numpy as np

from ...ir import Builder, Node


class Makers:
    """Half of `Context`, which fills these."""

    _builder: Builder
    _arrays: dict[str, np.ndarray]

    def maker(self, name: str) -> Node | None:
        """The ir node that writes a value, through views; None of inputs and constants."""
        while self._builder.values[name].view_of:
            name = self._builder.values[name].view_of
        return next((n for n in reversed(self._builder.nodes) if name in n.outputs), None)

    def array(self, name: str) -> np.ndarray | None:
        """What a constant of the graph holds."""
        known = bool(name) and self._builder.values[name].role == "constant"
        return self._arrays.get(name) if known else None
