"""Which of the rungs that `--allow` permits a Program takes: those that make it smaller.

A rung changes the graph, so it is decided before plans are searched over, and for all of them: by
the smallest plan of the smallest microbatch, whatever the budget. Rungs are tried in the order of
units/rungs.py, each beside those that were taken before it, with quick plans whatever the effort:
more of it never changes the graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...kernels import targets
from ...ops.model import Model
from ...units.efforts import QUICK
from ...units.rungs import ALLOWED
from ...units.stages import stage
from ..options import Options
from .frontier import find_frontier, microbatches


@dataclass(frozen=True)
class Settled:
    """Options that allow what is taken and nothing else.

    Attributes:
      declined: rung -> bytes of the smallest plan without and with it.
    """

    options: Options
    declined: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def facts(self) -> dict[str, dict[str, dict[str, int]]]:
        """What the account says of rungs that are not taken."""
        keys = "without_nbytes", "with_nbytes"
        rows = {name: dict(zip(keys, sizes, strict=True)) for name, sizes in self.declined.items()}
        return {"declined": rows} if rows else {}


def settled(model: Model, options: Options) -> Settled:
    """Try every rung that is allowed.

    Raises:
      ModelError, UsageError: a rung finds nothing in the model that it is for.
    """
    wanted = [name for name in ALLOWED if name in options.allow]
    if not wanted:
        return Settled(options)
    plain = replace(options, allow=())
    with stage("planning without what is allowed"):
        least = least_nbytes(model, plain)
    taken: tuple[str, ...] = ()
    declined: dict[str, tuple[int, int]] = {}
    for name in wanted:
        with stage(f"planning {name}"):
            found = least_nbytes(model, replace(options, allow=(*taken, name)))
        if found < least:
            taken, least = (*taken, name), found
        else:
            declined[name] = least, found
    return Settled(replace(options, allow=taken), declined)


def settled_as(options: Options, decided: Options) -> Settled:
    """The same as for another length: one Program has one recipe."""
    return Settled(replace(options, allow=decided.allow, convolutions=decided.convolutions))


def least_nbytes(model: Model, options: Options) -> int:
    """Bytes of the smallest plan there is, of the smallest microbatch."""
    smallest = microbatches(model, options)[-1]
    target = targets.get(options.target).processor
    sized = replace(options, microbatch=smallest, max_extra_forward=None, effort=QUICK)
    return find_frontier(model, sized, target)[0].arena_nbytes
