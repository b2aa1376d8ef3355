"""Which of the rungs that `--allow` permits a Program takes: those that make it smaller.

A rung changes the graph, so it is decided before plans are searched over, and for all of them: by
the smallest plan of the smallest microbatch, whatever the budget. Rungs are tried in the order of
units/rungs.py, each beside those that were taken before it, with quick plans whatever the effort:
more of it never changes the graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...units.efforts import QUICK
from ...units.rungs import ALLOWED
from ...units.stages import stage
from ..compilation import Compilation
from ..options import Options
from .frontier import find_frontier, microbatches


@dataclass(frozen=True)
class Settled:
    """A compilation whose options allow what is taken and nothing else.

    Attributes:
      declined: rung -> bytes of the smallest plan without and with it.
    """

    compilation: Compilation
    declined: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def facts(self) -> dict[str, dict[str, dict[str, int]]]:
        """What the account says of rungs that are not taken."""
        keys = "without_nbytes", "with_nbytes"
        rows = {name: dict(zip(keys, sizes, strict=True)) for name, sizes in self.declined.items()}
        return {"declined": rows} if rows else {}


def settled(compilation: Compilation) -> Settled:
    """Try every rung that is allowed.

    Raises:
      ModelError, UsageError: a rung finds nothing in the model that it is for.
    """
    wanted = [name for name in ALLOWED if name in compilation.options.allow]
    if not wanted:
        return Settled(compilation)
    with stage("planning without what is allowed"):
        least = least_nbytes(compilation.with_options(allow=()))
    taken: tuple[str, ...] = ()
    declined: dict[str, tuple[int, int]] = {}
    for name in wanted:
        with stage(f"planning {name}"):
            found = least_nbytes(compilation.with_options(allow=(*taken, name)))
        if found < least:
            taken, least = (*taken, name), found
        else:
            declined[name] = least, found
    return Settled(compilation.with_options(allow=taken), declined)


def settled_as(compilation: Compilation, decided: Options) -> Settled:
    """The same as for another length: one Program has one recipe."""
    allow, convolutions = decided.allow, decided.convolutions
    return Settled(compilation.with_options(allow=allow, convolutions=convolutions))


def least_nbytes(compilation: Compilation) -> int:
    """Bytes of the smallest plan there is, of the smallest microbatch."""
    smallest = microbatches(compilation)[-1]
    quick = compilation.with_options(microbatch=smallest, max_extra_forward=None, effort=QUICK)
    return find_frontier(quick)[0].arena_nbytes
