"""Decides which memory options permitted by `--allow` a Program uses: those that make it smaller.

They change the graph, so they are chosen before plans are searched, and for all plans alike: by the
smallest plan of the smallest microbatch, whatever the budget. They are tried in the order of
units/memory_options.py, each together with the options already accepted. The plans are quick
whatever the effort, because effort never changes the graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...units.efforts import QUICK
from ...units.memory_options import ALLOWED
from ...units.phases import phase
from ..compilation import Compilation
from ..options import Options
from .frontier import find_frontier, microbatches


@dataclass(frozen=True)
class ResolvedOptions:
    """A compilation whose `allow` contains only the memory options in use.

    Attributes:
      declined: memory option -> bytes of the smallest plan without and with it.
    """

    compilation: Compilation
    declined: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def facts(self) -> dict[str, dict[str, dict[str, int]]]:
        """For the account: the memory options that are allowed but not used."""
        keys = "without_nbytes", "with_nbytes"
        rows = {name: dict(zip(keys, sizes, strict=True)) for name, sizes in self.declined.items()}
        return {"declined": rows} if rows else {}


def resolved_options(compilation: Compilation) -> ResolvedOptions:
    """Try every allowed memory option.

    Raises:
      ModelError, UsageError: the model has nothing that an option applies to.
    """
    wanted = [name for name in ALLOWED if name in compilation.options.allow]
    if not wanted:
        return ResolvedOptions(compilation)
    with phase("planning without the allowed options"):
        least = least_nbytes(compilation.with_options(allow=()))
    taken: tuple[str, ...] = ()
    declined: dict[str, tuple[int, int]] = {}
    for name in wanted:
        with phase(f"planning {name}"):
            nbytes = least_nbytes(compilation.with_options(allow=(*taken, name)))
        if nbytes < least:
            taken, least = (*taken, name), nbytes
        else:
            declined[name] = least, nbytes
    return ResolvedOptions(compilation.with_options(allow=taken), declined)


def resolved_like(compilation: Compilation, decided: Options) -> ResolvedOptions:
    """Reuse the decision made for another length: a Program has one recipe."""
    allow, convolutions = decided.allow, decided.convolutions
    return ResolvedOptions(compilation.with_options(allow=allow, convolutions=convolutions))


def least_nbytes(compilation: Compilation) -> int:
    """Bytes of the smallest plan, for the smallest microbatch."""
    smallest = microbatches(compilation)[-1]
    quick = compilation.with_options(microbatch=smallest, max_extra_forward=None, effort=QUICK)
    return find_frontier(quick)[0].arena_nbytes
