"""Compile tasks, one per line of standard input, into the cache; `workers.py` runs several."""

import gc
import importlib
import json
import sys
from typing import Any


def make(task: dict[str, Any]) -> None:
    """Compile a kernel (name, variant's number, storages) or a unit of loops (name, module)."""
    if "unit" in task:
        from ..loops.functions import Unit

        importlib.import_module(task["module"])
        next(unit for unit in Unit.every if unit.name == task["unit"]).keep()
        return
    from .. import registry
    from . import jit

    kernel = registry.variants(task["kernel"])[task["number"]]
    kernel.object(task["storages"], jit.host())


def main() -> None:
    """Answer each line of standard input: "made", or the error."""
    gc.disable()  # saves a tenth of the time; nearly all objects live until the process ends
    for line in sys.stdin:
        try:
            make(json.loads(line))
            answer = "made"
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(" ".join(answer.split()), flush=True)


if __name__ == "__main__":
    main()
