"""`warm`: compile beforehand, on all processors, so that nothing waits for a compiler later."""

from pathlib import Path
from typing import Any

from ...errors import NotInstalledError, UsageError
from ...kernels.cache import disk, library, load, sources
from ...screen.tables import to_json
from ..parser.namespace import Namespace


def warm(arguments: Namespace) -> int:
    """Compile the planner's loops, and the kernels of a model or all; says how many are there.

    A runtime, which compiles nothing, says whether its library has them.

    Raises:
      UsageError: neither a model nor --all, or nowhere to keep what is compiled.
      NotInstalledError: kernels are missing, and nothing can be compiled here.
    """
    if (arguments.model is None) == (not arguments.all):
        raise UsageError("warm: expected either MODEL (.onnx or .edge) or --all.")
    facts = _installed(arguments) if sources.made() is not None else _compiled(arguments)
    if arguments.json:
        print(to_json(facts))
    elif "library" in facts:
        print(f"{facts['kernels']} kernels are in {facts['library']}: nothing to compile")
    else:
        print(
            f"{facts['kernels']} kernels and {facts['planner_units']} parts of the planner are "
            f"kept in {facts['cache']}"
        )
    return 0


def _installed(arguments: Namespace) -> dict[str, Any]:
    """What the library has: all of a Program's kernels, or all there are."""
    found = library.installed()
    if found is None or not found.same:
        raise NotInstalledError(
            "warm: no kernel library of this version is installed for this processor. "
            f"Run: {library.how_to_install()}"
        )
    count = found.index["kernels"] if arguments.all else _warm_model(arguments)
    return {"kernels": count, "library": str(found.folder)}


def _compiled(arguments: Namespace) -> dict[str, Any]:
    """Everything that is missing, compiled and kept."""
    from ...kernels.linking import choices

    if disk.directory() is None:
        raise UsageError("warm: no folder for compiled kernels. Set EDGETRAIN_CACHE to one.")
    planner = _warm_planner()
    if arguments.all:
        kernels = list(choices.every())
        load.addresses(kernels)
    count = len(kernels) if arguments.all else _warm_model(arguments)
    return {"kernels": count, "planner_units": planner, "cache": str(disk.directory())}


def _warm_planner() -> int:
    """Every unit of loops of the compiler; how many there are."""
    from ...compiler.plan.units import ALWAYS, SELDOM
    from ...kernels.loops import functions

    functions.begin((*ALWAYS, *SELDOM))
    for unit in functions.Unit.every:
        for name in unit.entries:
            unit.address(name)
    return len(functions.Unit.every)


def _warm_model(arguments: Namespace) -> int:
    """Kernels of a Program, compiled from its model where it is one; how many there are."""
    from ...runtime.loading.program import load_program
    from ...runtime.session import Session
    from .plan import compiled

    path = Path(arguments.model)
    program = load_program(path) if path.suffix == ".edge" else compiled(arguments)
    Session(program).close()
    return len(program.kernels)
