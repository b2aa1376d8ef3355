"""`find-lr`: a learning-rate range test."""

from typing import Any

from ...data.registry import check_label
from ...program.atomic import check_target, write_atomically
from ...runtime.training.rate_finder import LearningRates, check_range, find_rates
from ...runtime.training.signals import raising
from ...runtime.training.trainer import Trainer
from ...screen.progress import can_show, sparkline
from ...screen.tables import table, to_json
from ...screen.waiting import waited
from ..parser.namespace import Namespace
from .train import program_of, replaced, source_of

_ROWS = 12


def find_lr(arguments: Namespace) -> int:
    """Print the loss at increasing rates, and the rate at which it falls fastest.

    Raises:
      RunError: the loss never falls.
    """
    given: dict[str, Any] = {name: getattr(arguments, name) for name in ("start_lr", "end_lr")}
    given["steps"] = arguments.steps
    check_range(**given)
    if arguments.picture is not None:
        from ...report.writing import check_ending  # devices draw no plots

        check_ending(arguments.picture, "--picture")
        check_target(arguments.picture, "--picture")
    check_label(arguments.data, arguments.label)
    with raising():
        with waited("reading the model"):
            source = source_of(arguments)
            program = program_of(arguments, source)
        with waited("loading kernels"):
            threads = getattr(arguments, "threads", None)
            trainer = Trainer(
                program, source, verbose=False, threads=threads, **replaced(arguments)
            )
        with trainer, waited("trying learning rates"):
            result = find_rates(trainer, **given)
    if arguments.picture is not None:
        _draw(result, arguments.picture)
    if not arguments.json:
        print("\n".join(_lines(result, arguments.steps)))
    lr = result.lr
    if arguments.json:
        facts = {"lr": lr, "rates": result.rates, "losses": result.losses}
        print(to_json({**facts, "raw_losses": result.raw_losses, "diverged": result.diverged}))
    else:
        print(f"suggested: --lr {lr:.2g}, where the loss falls fastest")
    return 0


def _lines(found: LearningRates, steps: int) -> list[str]:
    """Some of the steps, and how the test ended."""
    count = len(found.rates)
    chosen = sorted({round(k * (count - 1) / (_ROWS - 1)) for k in range(_ROWS)}) if count else []
    rows = [(f"{found.rates[k]:.2g}", f"{found.losses[k]:.4f}") for k in chosen]
    lines = table(rows, "rr", ("lr", "loss"))
    drawn = sparkline(found.losses)
    if drawn and can_show(drawn):
        lines.append(f"smoothed loss {drawn}")
    if found.diverged:
        lines.append(f"the loss diverged; stopped after {count} of {steps} steps")
    return lines


def _draw(found: LearningRates, path: str) -> None:
    """Write the plot of `LearningRates.plot` to a file."""
    figure = found.plot().figure
    ending = path.rpartition(".")[2]
    write_atomically(path, lambda file: figure.savefig(file, format=ending))
