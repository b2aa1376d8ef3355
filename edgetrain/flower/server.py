"""Server side: export or evaluate the arrays of a federation; doesn't need Flower."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..program.trained import export_trained
from ..runtime.loading.program import opened_program
from ..runtime.training.trainer import Trainer
from ..units.public import public
from .arrays import Exchange, initial_state


@public
def export_onnx(program: Any, arrays: Mapping[str, Any], path: str | Path) -> Path:
    """Write the trained model as ONNX, with original names and layout, for inference anywhere.

    Args:
      program: the Program the boards trained, or the path of its .edge file.
      arrays: by name, from Flower (`result.arrays`) or numpy.
    Raises:
      DataError: the arrays don't match this Program.
      RunError: the arrays are not finite, or the file can't be written.
    """
    program = opened_program(program)
    state = initial_state(program)
    state = {name: array.copy() for name, array in state.items()}
    Exchange(program, state).write(_plain(arrays))
    return export_trained(program, state, path)


@public
def evaluate(program: Any, arrays: Mapping[str, Any], data: Any, **settings: Any) -> dict[str, Any]:
    """Loss and metrics of the arrays on the server's own data.

    Args:
      program, arrays: as in `export_onnx`.
      data: as in `Trainer.evaluate`.
      settings: of `Trainer`: threads, metrics.
    """
    with Trainer(program, **settings) as trainer:
        Exchange(trainer.program, trainer.session.values).write(_plain(arrays))
        return trainer.evaluate(data)


def _plain(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays as numpy arrays."""
    return {name: a.numpy() if hasattr(a, "stype") else a for name, a in arrays.items()}
