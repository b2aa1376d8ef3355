"""The combinations of storages with which a library has each kernel.

A Program's numbers are in shipped formats (`Format.shipped`: fp32 or fp16), chosen by role
(compiler/passes/precision.py), so any mix of them may meet in one kernel. Model memory may also be
in blocks of 8 bits; then all state of an optimizer has the same format. Kernels of other formats
are compiled on use. Positions, masks and integers have their own formats.
"""

import itertools
from collections.abc import Iterator, Mapping

from ...formats import FLOATS, FP32, INT8, SHIPPED
from .. import registry
from ..declaration.expression import Later
from ..registry import Kernel, of_numbers
from ..tapes.decode import fits

_INTEGERS, _COLUMNS = ("i32", "u8"), ("u8", "u16")
_MOVED = ("copy", "fill", "truth", "gather", "where")  # these take integers as well
_MASKED = ("where", "mask_keep")


def _domain(kernel: Kernel, variable: str) -> tuple[str, ...]:
    blocks = (INT8.name,) if variable in kernel.blocks.split() else ()
    if variable == "I":
        return _COLUMNS
    if variable == "M" and kernel.name in _MASKED:
        return ("u8",)
    if kernel.name in _MOVED or kernel.name.startswith("cmp_"):
        return SHIPPED + _INTEGERS + blocks
    return SHIPPED + blocks


def _possible(kernel: Kernel, storages: Mapping[str, str]) -> bool:
    """Whether roles can meet so: as the kernel declares it (`storages`). Of what a binary op reads
    one is an activation, as the gradient that comes back; what is absent counts as fp32."""
    together = registry.declaration(kernel)["storages"]
    if together:
        return bool(Later(together)(storages))
    if kernel.name.startswith("bgrad_"):
        return storages["S"] != FP32.name or FP32.name in (storages["A"], storages["B"])
    if kernel.name.endswith("rmsprop"):
        return _states_of_rmsprop(storages["V"], storages["M"], storages["A"])
    return kernel.family != "optim" or len(_needed_states(kernel, storages)) < 2


def _needed_states(kernel: Kernel, storages: Mapping[str, str]) -> set[str]:
    """Formats of what an optimizer keeps whatever its hyperparameters, behind w and g."""
    operands = [o for o in kernel.spec.operands if o.storage in kernel.spec.variables]
    return {storages[o.storage] for o in operands[2:] if not o.optional}


def _states_of_rmsprop(square: str, momentum: str, mean: str) -> bool:
    """Momentum and mean may be absent; a square beside a mean is never in blocks."""
    if mean != FP32.name:
        return mean == square != INT8.name and momentum in (square, FP32.name)
    return momentum in (square, FP32.name) or (square, momentum) == (FP32.name, INT8.name)


def choices(kernel: Kernel) -> Iterator[dict[str, str]]:
    """Storages by variable, every choice that a Program may hold."""
    variables = kernel.spec.variables
    for chosen in itertools.product(*(_domain(kernel, variable) for variable in variables)):
        storages = dict(zip(variables, chosen, strict=True))
        if fits(kernel, chosen) and _possible(kernel, storages) and _chosen(kernel, storages):
            yield storages


def _chosen(kernel: Kernel, storages: Mapping[str, str]) -> bool:
    """Whether a variant's condition leaves these storages open (`I == 'u8'`, numbers alone)."""
    text = kernel.when.text if kernel.when else ""
    numbers = (storages[name] for name in kernel.spec.variables if of_numbers(name) in text)
    return all(name in FLOATS for name in numbers) and (
        "I == 'u8'" not in text or storages["I"] == "u8"
    )


def every() -> Iterator[tuple[Kernel, dict[str, str]]]:
    """All kernels that a runtime calls, with all their storages, in the order of their names; those
    of device/ are a bundle's alone."""
    for name in registry.names():
        for kernel in registry.variants(name):
            if kernel.family != "device":
                for storages in choices(kernel):
                    yield kernel, storages
