"""`warm`: compile kernels ahead of time, on all cores."""

from pathlib import Path
from typing import Any

from ...errors import NotInstalledError, UsageError
from ...kernels.cache import disk, library, sources
from ...kernels.cache.addresses import addresses
from ...screen.tables import to_json
from ..parser.namespace import Namespace
from ..parser.plan_options import PASS_MODEL, check_compiled


def warm(arguments: Namespace) -> int:
    """Compile the planner's loops, and the kernels of a model or all of them; print the counts.

    A device without a compiler only checks its kernel library.

    Raises:
      UsageError: neither a model nor --all, or no cache folder.
      NotInstalledError: kernels are missing, and this device has no compiler.
    """
    if (arguments.model is None) == (not arguments.all):
        raise UsageError("expected either MODEL (.onnx or .edge) or --all.")
    facts = _installed(arguments) if sources.made() is not None else _compiled(arguments)
    if arguments.json:
        print(to_json(facts))
    elif "library" in facts:
        print(f"{facts['kernels']} kernels are in {facts['library']}: nothing to compile")
    else:
        print(
            f"{facts['kernels']} kernels and {facts['planner_units']} parts of the planner are "
            f"cached in {facts['cache']}"
        )
    return 0


def _installed(arguments: Namespace) -> dict[str, Any]:
    """What the library contains: a Program's kernels, or all kernels."""
    result = library.installed()
    if result is None or not result.same:
        raise NotInstalledError(
            "no kernel library of this version is installed for this processor. "
            f"Run: {library.how_to_install()}"
        )
    count = result.index["kernels"] if arguments.all else _warm_model(arguments)
    return {"kernels": count, "library": str(result.folder)}


def _compiled(arguments: Namespace) -> dict[str, Any]:
    """Compile and cache everything that is missing."""
    from ...kernels.linking import choices

    if disk.directory() is None:
        raise UsageError("no cache folder for kernels. Set EDGETRAIN_CACHE to a folder.")
    planner = _warm_planner()
    if arguments.all:
        kernels = list(choices.every())
        addresses(kernels)
    count = len(kernels) if arguments.all else _warm_model(arguments)
    return {"kernels": count, "planner_units": planner, "cache": str(disk.directory())}


def _warm_planner() -> int:
    """Compile the planner's loops; returns their number."""
    from ...compiler.plan.units import ALWAYS, SELDOM
    from ...kernels.loops import functions

    functions.begin((*ALWAYS, *SELDOM))
    for unit in functions.Unit.every:
        for name in unit.entries:
            unit.address(name)
    return len(functions.Unit.every)


def _warm_model(arguments: Namespace) -> int:
    """Compile the kernels of a model or Program; returns their number."""
    from ...runtime.loading.program import load_program
    from ...runtime.session import Session
    from .plan import compiled

    path = Path(arguments.model)
    if path.suffix == ".edge":
        check_compiled(arguments, path, PASS_MODEL)
        program = load_program(path)
    else:
        program = compiled(arguments)
    Session(program).close()
    return len(program.kernels)
