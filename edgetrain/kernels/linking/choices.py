"""The combinations of storages for which a library has each kernel.

A Program's numbers are in shipped formats (`Format.shipped`: fp32 or fp16), chosen by role
(compiler/passes/precision.py), so one kernel may get any mix of them. Model memory may also be in
8-bit blocks; then all state of an optimizer has the same format. Kernels for other formats are
compiled on use. Positions, masks and integers have their own formats.
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
    """Whether a Program can combine these storages, as the kernel declares (`storages`). One
    operand of a binary op is an activation, in the format of the gradient. Absent operands count as
    fp32."""
    together = registry.declaration(kernel)["storages"]
    if together:
        return bool(Later(together)(storages))
    if kernel.name.startswith("bgrad_"):
        return storages["S"] != FP32.name or FP32.name in (storages["A"], storages["B"])
    if kernel.name.endswith("rmsprop"):
        return _states_of_rmsprop(storages["V"], storages["M"], storages["A"])
    return kernel.family != "optim" or len(_needed_states(kernel, storages)) < 2


def _needed_states(kernel: Kernel, storages: Mapping[str, str]) -> set[str]:
    """Formats of the state that an optimizer always keeps: its required operands after w and g."""
    operands = [o for o in kernel.spec.operands if o.storage in kernel.spec.variables]
    return {storages[o.storage] for o in operands[2:] if not o.optional}


def _states_of_rmsprop(square: str, momentum: str, mean: str) -> bool:
    """Whether RMSprop's states can have these formats. Momentum and mean may be absent; with a
    mean, the square is never in blocks."""
    if mean != FP32.name:
        return mean == square != INT8.name and momentum in (square, FP32.name)
    return momentum in (square, FP32.name) or (square, momentum) == (FP32.name, INT8.name)


def choices(kernel: Kernel) -> Iterator[dict[str, str]]:
    """Storages by variable, for every combination that a Program may use."""
    variables = kernel.spec.variables
    for chosen in itertools.product(*(_domain(kernel, variable) for variable in variables)):
        storages = dict(zip(variables, chosen, strict=True))
        if fits(kernel, chosen) and _possible(kernel, storages) and _chosen(kernel, storages):
            yield storages


def _chosen(kernel: Kernel, storages: Mapping[str, str]) -> bool:
    """Whether a variant's condition allows these storages (`I == 'u8'`, number formats only)."""
    text = kernel.when.text if kernel.when else ""
    numbers = (storages[name] for name in kernel.spec.variables if of_numbers(name) in text)
    return all(name in FLOATS for name in numbers) and (
        "I == 'u8'" not in text or storages["I"] == "u8"
    )


def every() -> Iterator[tuple[Kernel, dict[str, str]]]:
    """All kernels that a runtime calls, with all their storages, ordered by name; kernels of
    device/ are only for bundles."""
    for name in registry.names():
        for kernel in registry.variants(name):
            if kernel.family != "device":
                for storages in choices(kernel):
                    yield kernel, storages
