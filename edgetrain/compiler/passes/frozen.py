"""Weights that are not trained, and constants, stay in the Program's file: none lies in the arena.

On request (`Options.maps`). They are read where the file is mapped, in the storage that was asked
for, in training and evaluation alike. Decided before remat, so it is the same in every plan.
"""

from ...errors import UsageError
from ...ir import Graph
from ..options import Options
from .autodiff import accumulator_name


def frozen_names(train: Graph, options: Options) -> frozenset[str]:
    """Roots that no tape writes: parameters without a gradient, constants.

    Raises:
      UsageError: a storage was asked for, and there are none.
    """
    if not options.maps:
        return frozenset()
    found = frozenset(
        name
        for name, value in train.values.items()
        if not value.view_of
        and (
            value.role == "constant"
            or (value.role == "parameter" and accumulator_name(name) not in train.values)
        )
    )
    if not found:
        raise UsageError(
            f"frozen {options.frozen}: all weights are trained, so none can stay in the Program "
            "file. Pass --freeze or --train PATTERN, or --lora FIELDS, or leave frozen out."
        )
    return found
