"""`warm`: compile beforehand, on all processors, so that nothing waits for a compiler later."""

from pathlib import Path

from ..errors import UsageError
from ..kernels import cache, choices, load, loops
from .namespace import Namespace
from .tables import to_json


def warm(arguments: Namespace) -> int:
    """Compile the planner's loops, and the kernels of a model or all; says how many are there.

    Raises:
      UsageError: neither a model nor --all, or nowhere to keep what is compiled.
    """
    model = arguments.model
    if (model is None) == (not arguments.all):
        raise UsageError("warm: expected either MODEL (.onnx or .edge) or --all.")
    if cache.directory() is None:
        raise UsageError("warm: no folder to keep kernels in. Set EDGETRAIN_CACHE to one.")
    planner = _warm_planner()
    if arguments.all:
        kernels = list(choices.every())
        load.addresses(kernels)
        count = len(kernels)
    else:
        count = _warm_model(arguments)
    facts = {"kernels": count, "planner_units": planner, "cache": str(cache.directory())}
    if arguments.json:
        print(to_json(facts))
    else:
        print(f"{count} kernels and {planner} parts of the planner are kept in {facts['cache']}")
    return 0


def _warm_planner() -> int:
    """Every unit of loops of the compiler; how many there are."""
    from ..compiler.compile import UNITS

    loops.begin(UNITS)
    for unit in loops.Unit.every:
        for name in unit.entries:
            unit.address(name)
    return len(loops.Unit.every)


def _warm_model(arguments: Namespace) -> int:
    """Kernels of a Program, compiled from its model where it is one; how many there are."""
    from ..runtime.loading import load_program
    from ..runtime.session import Session
    from .planning import compiled

    path = Path(arguments.model)
    program = load_program(path) if path.suffix == ".edge" else compiled(arguments)
    Session(program).close()
    return len(program.kernels)
