"""Queries of rules about the graph so far: producers and constants."""

import numpy as np

from ...ir import Builder, Node


class Makers:
    """Base class of `Context`, which fills these attributes."""

    _builder: Builder
    _arrays: dict[str, np.ndarray]

    def maker(self, name: str) -> Node | None:
        """The ir node that writes a value, through views; None for inputs and constants."""
        while self._builder.values[name].view_of:
            name = self._builder.values[name].view_of
        return next((n for n in reversed(self._builder.nodes) if name in n.outputs), None)

    def array(self, name: str) -> np.ndarray | None:
        """The array of a constant; None for other values."""
        known = bool(name) and self._builder.values[name].role == "constant"
        return self._arrays.get(name) if known else None
