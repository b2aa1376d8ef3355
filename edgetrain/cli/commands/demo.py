"""`demo`: trains a small network on the embedded digits; needs no file."""

from typing import Any

from ...demo import compiled, trainer_of_digits
from ...errors import UsageError
from ...runtime.training.settings import check_length
from ...runtime.training.signals import raising
from ...runtime.training.trainer import Trainer
from ...screen.progress import make_progress
from ...screen.tables import account_lines
from ...screen.waiting import waited
from ...units.wording import quoted
from ..device.process import resident_nbytes
from ..parser.namespace import Namespace


def demo(arguments: Namespace) -> int:
    """Train, showing the memory account, progress and accuracy; writes nothing without --out.

    Raises:
      UsageError: the name of --out is empty.
      BudgetError: no plan fits.
    """
    check_length(arguments.epochs, None)
    if arguments.out == "":
        raise UsageError("--out: the name is empty; expected a directory.")
    with raising(), make_progress(arguments.json) as progress:
        with waited("demo: planning"):
            program = compiled(arguments.budget, verbose=False)
        with waited("loading kernels"):
            trainer = trainer_of_digits(program, arguments.out, on_event=progress, verbose=False)
        with trainer:
            progress(
                {
                    "event": "start",
                    **program.account,
                    "model": program.model_name,
                    "process_nbytes": resident_nbytes(trainer.session.arena),
                    "lines": account_lines(program.account),
                }
            )
            trainer.fit(epochs=arguments.epochs, evaluate=True)
            done = _result(trainer)
            if arguments.json:
                progress(done)
    if not arguments.json:
        print("\n".join(_lines(done)))
    return 0


def _result(trainer: Trainer) -> dict[str, Any]:
    tested = trainer.history.epochs[-1]["evaluation"]
    return {
        "event": "done",
        "step": trainer.steps,
        "arena_nbytes": trainer.program.arena_nbytes,
        "loss": tested["loss"],
        "accuracy": tested["accuracy"],
        "out": None if trainer.out is None else str(trainer.out),
    }


def _lines(done: dict[str, Any]) -> list[str]:
    """The result, and the command to try next."""
    lines = [
        f"trained {done['step']} steps in an arena of {done['arena_nbytes']:,} bytes; accuracy "
        f"{100 * done['accuracy']:.2f} % on held-out digits"
    ]
    if done["out"] is not None:
        out = quoted(str(done["out"]))
        lines.append(f"the run is in {done['out']}: edgetrain export {out} -o trained.onnx")
    return [*lines, "next, your own model: edgetrain plan MODEL.onnx --budget BYTES"]
