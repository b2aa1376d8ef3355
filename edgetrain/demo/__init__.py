"""The demo: trains a small convolutional network on the digits included in edgetrain, within a
budget.

The model is the file of `examples/digits`, the data `digits`; neither is downloaded.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..api import compile
from ..optim import SGD
from ..optim.schedules import Cosine
from ..program import Program
from ..runtime.run.folder import RunFolder
from ..runtime.training.settings import check_length
from ..runtime.training.trainer import Trainer
from ..units.public import public

MODEL = Path(__file__).with_name("digits.onnx")
DATA = "digits"
BUDGET, EPOCHS = "256KiB", 15
_RECIPE = SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)


@public
def demo(
    budget: str | int | None = BUDGET,
    *,
    epochs: float = EPOCHS,
    out: str | Path | None = None,
    verbose: bool | None = None,
) -> Trainer:
    """Train a small network on the included digits within `budget` bytes; needs no files.

    Shows the memory account, progress, and the accuracy on held-out digits.

    Args:
      budget: memory limit, such as 262144 or "256KiB"; None: no limit.
      epochs: passes over the 1,437 training samples.
      out: run directory, as for `Trainer`; None: nothing is written.
      verbose: as for `Trainer`.
    Returns:
      The Trainer: `demo().predict(x)`, `.history`, `.summary()`, `.export_onnx("trained.onnx")`.
    Raises:
      BudgetError: no plan fits; the message names the smallest budget that does.
    """
    check_length(epochs, None)
    trainer = trainer_of_digits(compiled(budget, verbose=verbose), out, verbose=verbose)
    trainer.fit(epochs=epochs, evaluate=True)
    return trainer


def compiled(budget: str | int | None, *, verbose: bool | None = None) -> Program:
    """The demo's Program.

    Raises:
      BudgetError: no plan fits.
    """
    return compile(MODEL, optimizer=_RECIPE, minibatch=32, budget=budget, verbose=verbose)


def trainer_of_digits(
    program: Program,
    out: str | Path | RunFolder | None,
    *,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    verbose: bool | None = None,
) -> Trainer:
    """A Trainer of the demo's Program on the digits."""
    return Trainer(program, DATA, out, schedule=Cosine(), on_event=on_event, verbose=verbose)
