"""Leaves untrained weights and constants in the Program file instead of the arena.

This is optional (`Options.maps`). Training and evaluation read them from the mapped file, in the
requested storage. The decision precedes remat, so it is the same in all plans.
"""

from ...errors import UsageError
from ...ir import Graph
from ..options import Options
from .autodiff import accumulator_name


def weights_in_file(train: Graph, options: Options) -> frozenset[str]:
    """Roots that no tape writes: parameters without a gradient, and constants.

    Raises:
      UsageError: a storage was requested, but no weight is frozen.
    """
    if not options.maps:
        return frozenset()
    result = frozenset(
        name
        for name, value in train.values.items()
        if not value.view_of
        and (
            value.role == "constant"
            or (value.role == "parameter" and accumulator_name(name) not in train.values)
        )
    )
    if not result:
        raise UsageError(
            f"frozen {options.frozen}: all weights are trained, so none can stay in the Program "
            "file. Pass --freeze or --train PATTERN, or --lora FIELDS, or leave frozen out."
        )
    return result
