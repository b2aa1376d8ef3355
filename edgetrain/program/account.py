"""The memory account of an arena: nine kinds of bytes, with descriptions and colours.

The colours are from Okabe and Ito and can be told apart by colour-blind readers.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any


def _kind(meaning: str, colour: str, *roles: str) -> Any:
    """A field of Account; `roles`: roles of values that always belong to this kind."""
    facts = {"meaning": meaning, "colour": colour, "roles": roles}
    return dataclasses.field(default=0, metadata=facts)


@dataclass(frozen=True, eq=False, repr=False)
class Account:
    """Bytes of each kind at the peak step; they add up to the arena."""

    params: int = _kind(
        "weights, running statistics, constants",
        "#0072b2",
        "parameter",
        "buffer",
        "staged",
        "constant",
    )
    indices: int = _kind("positions of nonzero weights", "#56b4e9", "index")
    grads: int = _kind("accumulated gradients", "#e69f00", "accumulator", "fused")
    optimizer: int = _kind("momentum, moments", "#cc79a7", "state")
    saved: int = _kind("saved for backward", "#009e73")
    transient: int = _kind("other values alive at the peak", "#d55e00")
    workspace: int = _kind("kernel workspaces, all threads", "#f0e442")
    io: int = _kind("inputs, targets, control block", "#8a8f98", "control", "input", "target")
    padding: int = _kind("alignment, and gaps in the layout", "#c9ccd1")


_FIELDS = dataclasses.fields(Account)
# By kind, in display order.
MEANINGS: dict[str, str] = {f.name: f.metadata["meaning"] for f in _FIELDS}
COLOURS: dict[str, str] = {f.name: f.metadata["colour"] for f in _FIELDS}
KIND_OF_ROLE: dict[str, str] = {role: f.name for f in _FIELDS for role in f.metadata["roles"]}
