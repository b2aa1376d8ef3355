"""The account of an arena: nine kinds of bytes, what each is, its colour in a picture."""

import dataclasses
from dataclasses import dataclass
from typing import Any


def _kind(meaning: str, colour: str, *roles: str) -> Any:
    """A field of Account; `roles`: of values that are of this kind wherever they stand."""
    facts = {"meaning": meaning, "colour": colour, "roles": roles}
    return dataclasses.field(default=0, metadata=facts)


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes of each kind at the peak step; together they are the arena."""

    params: int = _kind(
        "weights, running statistics, constants",
        "#4269d0",
        "parameter",
        "buffer",
        "staged",
        "constant",
    )
    indices: int = _kind("positions of nonzero weights", "#97bbf5", "index")
    grads: int = _kind("accumulated gradients", "#efb118", "accumulator")
    optimizer: int = _kind("momentum, moments", "#a463f2", "state")
    saved: int = _kind("what forward keeps for backward", "#3ca951")
    transient: int = _kind("everything else that is live then", "#ff725c")
    workspace: int = _kind("scratch of kernels, all threads", "#9c6b4e")
    io: int = _kind("inputs, targets, control block", "#9498a0", "control", "input", "target")
    padding: int = _kind("alignment, and gaps between lifetimes", "#d5d5d5")


_FIELDS = dataclasses.fields(Account)
# By kind, in the order in which they are shown.
MEANINGS: dict[str, str] = {f.name: f.metadata["meaning"] for f in _FIELDS}
COLOURS: dict[str, str] = {f.name: f.metadata["colour"] for f in _FIELDS}
KIND_OF_ROLE: dict[str, str] = {role: f.name for f in _FIELDS for role in f.metadata["roles"]}
