"""The record of a run: losses by step and by epoch, evaluations, messages.

Its memory is bounded: when there are too many steps, rows are merged in pairs; losses and norms are
averaged, skipped steps counted. The file is stored with the checkpoints, so a resumed run continues
its history.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..program.atomic import write_atomically
from ..units import finite
from ..units.hints import did_you_mean
from ..units.wording import counted

HISTORY_FILE = "history.json"
MOST_ROWS = 1024  # rows of steps; merged when there are twice as many
_MOST_NOTES = 200
MOST_WORDS = 300  # characters of a note
VERSION = 1
# Columns of steps: the first is a row's last step, `n` the number of steps it covers.
COLUMNS = ("step", "n", "loss", "lr", "grad_norm", "loss_scale", "skipped")
_MEANS = ("loss", "grad_norm")
_SUMS = ("n", "skipped")
CONFUSION = "confusion"  # suffix of the metric's name, after the output's
_OF_EPOCHS = ("epoch", "step", "loss", "seconds")


class History:
    """The result of `fit`: columns with one entry per epoch, and the steps.

    `history["loss"]` is the training loss of each epoch; of more than 1,024, the first and the last
    1,023 are kept. Evaluation columns start with `val_`, such
    as `history["val_accuracy"]`; they are NaN for epochs that were not evaluated.

    Attributes:
      steps: numbers by column name, one per row.
      epochs: a dict per epoch, its evaluation included.
      confusions: the newest confusion matrix and its epoch, by the metric's name.
      notes: (step, text).
    """

    def __init__(self) -> None:
        self._each = 1.0  # steps of a whole row
        self.steps: dict[str, list[float]] = {name: [] for name in COLUMNS}
        self.epochs: list[dict[str, Any]] = []
        self.confusions: dict[str, dict[str, Any]] = {}
        self.notes: list[tuple[int, str]] = []

    @property
    def last(self) -> int:
        """The last step."""
        return int(self.steps["step"][-1]) if self.steps["step"] else 0

    if not TYPE_CHECKING:  # otherwise type checkers would accept every attribute

        def __getattr__(self, name):
            text = f"History has no attribute {name!r}. Its columns are {', '.join(_OF_EPOCHS)}"
            raise AttributeError(f"{text} and more: history['loss'].", name=name, obj=self)

    @property
    def confusion(self) -> dict[str, Any] | None:
        """The newest confusion matrix and its epoch; with several outputs, the first output's."""
        return next(iter(self.confusions.values()), None)

    def has_epoch(self, number: int) -> bool:
        """Whether this epoch's training loss is known."""
        return any(item["epoch"] == number and "loss" in item for item in self.epochs[-1:])

    # Columns, as of a dict.

    @property
    def columns(self) -> dict[str, list[Any]]:
        """All columns by name."""
        result = {name: [e.get(name, math.nan) for e in self.epochs] for name in _OF_EPOCHS}
        tested = [epoch.get("evaluation") or {} for epoch in self.epochs]
        for name in dict.fromkeys(name for item in tested for name in item):
            values = [item.get(name) for item in tested]
            result[f"val_{name}"] = [math.nan if value is None else value for value in values]
        return result

    def keys(self) -> list[str]:
        """Column names."""
        return [*self.columns]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> list[Any]:
        columns = self.columns
        if name in columns:
            return columns[name]
        text = f"history[{str(name)[:40]!r}]: no such column; available: {', '.join(columns)}."
        if str(name).startswith("val_") and not any(e.get("evaluation") for e in self.epochs):
            raise UsageError(f"{text} Nothing was evaluated: pass evaluate=True to fit.")
        raise UsageError(f"{text}{did_you_mean(str(name), columns)}")

    def __repr__(self) -> str:
        columns = self.columns
        last = {n: v[-1] for n, v in columns.items() if v and n not in ("epoch", "step")}
        shown = ", ".join(f"{name} {value:.4g}" for name, value in last.items())
        return f"History({counted(len(self.epochs), 'epoch')}{', last: ' if shown else ''}{shown})"

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row per epoch.

        Raises:
          UsageError: pandas is not installed.
        """
        from .shown import optional_package

        pandas = optional_package("pandas")
        return pandas.DataFrame(self.columns).set_index("epoch")

    def plot(self, axes: Any = None) -> Any:
        """Plot loss over steps with matplotlib, and the evaluations.

        Args:
          axes: matplotlib axes; None: a new figure.
        Returns:
          The axes.
        Raises:
          UsageError: matplotlib is not installed.
        """
        from .shown import plotted

        return plotted(self, axes)

    def since(self, step: int) -> "History":
        """The history after a step."""
        result = History()
        first = sum(1 for recorded in self.steps["step"] if recorded <= step)
        result.steps = {name: column[first:] for name, column in self.steps.items()}
        result.epochs = [dict(epoch) for epoch in self.epochs if epoch["step"] > step]
        result.notes = [note for note in self.notes if note[0] > step]
        result.confusions, result._each = dict(self.confusions), self._each
        return result

    def curve(self, points: int) -> list[float]:
        """The loss over the whole run, averaged into at most `points` values."""
        rows = list(zip(self.steps["loss"], self.steps["n"], strict=True))
        count = min(points, len(rows))
        result = []
        for k in range(count):
            part = rows[k * len(rows) // count : (k + 1) * len(rows) // count]
            known = [(loss, n) for loss, n in part if math.isfinite(loss)]
            weight = sum(n for _, n in known)
            result.append(sum(loss * n for loss, n in known) / weight if weight else math.nan)
        return result

    def add(self, event: Mapping[str, Any]) -> None:
        """Record an event of a Trainer."""
        kind = event["event"]
        if kind == "step":
            self._add_step(event)
        elif kind == "epoch":
            self.epochs.append({name: event[name] for name in _OF_EPOCHS})
        elif kind == "eval":
            self._add_evaluation(event)
        elif kind == "resume":
            self.cut(event["step"])
            self._note(event["step"], f"resumed at step {event['step']:,}")
        elif kind == "stop":
            self._note(event["step"], f"stopped: {event['reason']}")
        elif kind in ("data", "warning", "skip"):
            self._note(self.last, str(event["message"]))
        elif kind == "rewire":
            self._note(event["step"], f"rewired: {event['dropped']:,} nonzeros moved")
        if len(self.epochs) > MOST_ROWS:
            del self.epochs[1 : len(self.epochs) - MOST_ROWS + 1]

    def cut(self, step: int) -> None:
        """Drop everything after a step; it will be trained again."""
        kept = sum(1 for recorded in self.steps["step"] if recorded <= step)
        for column in self.steps.values():
            del column[kept:]
        self.epochs = [epoch for epoch in self.epochs if epoch["step"] <= step]
        last = self.epochs[-1]["epoch"] if self.epochs else 0
        self.confusions = {n: item for n, item in self.confusions.items() if item["epoch"] <= last}
        self.notes = [note for note in self.notes if note[0] <= step]

    def _add_step(self, event: Mapping[str, Any]) -> None:
        if event["skipped"]:
            self._note(event["step"], f"skipped: {event['reason']}")
        row = {"n": 1, **{name: event[name] for name in COLUMNS if name in event}}
        joined = self.steps["n"] and self.steps["n"][-1] < self._each
        for name in COLUMNS:
            value = row.get(name)
            self.steps[name].append(math.nan if value is None else float(value))
        if joined:
            self._join(len(self.steps["n"]) - 2)
        elif len(self.steps["n"]) >= 2 * MOST_ROWS:
            self._join(0)
            self._each *= 2

    def _join(self, first: int) -> None:
        """Merge rows in pairs, from `first` on."""
        counts = self.steps["n"][first:]
        for name, column in self.steps.items():
            rows = list(zip(column[first:], counts, strict=True))
            joined = [_joined(name, a, b) for a, b in zip(rows[::2], rows[1::2], strict=False)]
            column[first:] = [*joined, *column[len(column) - len(rows) % 2 :]]

    def _add_evaluation(self, event: Mapping[str, Any]) -> None:
        numbers = {
            name: float(value)
            for name, value in event.items()
            if isinstance(value, int | float) and name not in ("epoch", "samples")
        }
        if not self.epochs or self.epochs[-1]["epoch"] != event["epoch"]:
            self.epochs.append({"epoch": event["epoch"], "step": self.last})
        self.epochs[-1]["evaluation"] = numbers
        for name, table in event.items():
            if name.endswith(CONFUSION) and isinstance(table, list):
                self.confusions[name] = {"epoch": event["epoch"], "counts": table}

    def _note(self, step: int, words: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append((int(step), words[:MOST_WORDS]))

    # On disk.

    def write(self, path: str | Path) -> None:
        """Write the file atomically.

        Raises:
          RunError: the file cannot be written.
        """
        kept = {
            "version": VERSION,
            "steps": self.steps,
            "epochs": self.epochs,
            "confusion": self.confusions.get(CONFUSION),
            "notes": self.notes,
        }
        of_outputs = {n: found for n, found in self.confusions.items() if n != CONFUSION}
        kept |= {"confusions": of_outputs} if of_outputs else {}
        text = json.dumps(finite(kept)).encode()
        write_atomically(path, lambda file: file.writelines([text]), links=False)

    @classmethod
    def read(cls, path: str | Path) -> "History":
        """Read a file of `write`; an empty History if it is missing or damaged.

        Raises:
          RunError: not a regular file (a link, for example).
        """
        from .values import read  # only needed to resume or show a run

        return read(path, cls())


def _joined(name: str, one: tuple[float, float], other: tuple[float, float]) -> float:
    """Merge two rows (value, steps) of a column; means skip NaN."""
    if name in _SUMS:
        return one[0] + other[0]
    if name not in _MEANS:
        return other[0]
    known = [(value, steps) for value, steps in (one, other) if math.isfinite(value)]
    weight = sum(steps for _, steps in known)
    return sum(value * steps for value, steps in known) / weight if weight else math.nan
