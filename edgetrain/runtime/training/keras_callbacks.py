"""Keras's callbacks, with its names and arguments."""

import contextlib
import csv
import inspect
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import RunError, UsageError
from ...program.atomic import write_atomically
from ...units import finite_number
from ...units.files import read_regular
from ...units.options import typed
from ...units.public import as_path, public_api
from .callbacks import Callback
from .monitors import Watch


def _known(self: Any, known: list[str], evaluates: bool) -> None:
    """Check nothing: the callback monitors no metric and adds none."""


@public_api
class LambdaCallback(Callback):
    """Functions by hook name; the same as `Callback(on_epoch_end=..)`."""


@public_api
class ModelCheckpoint(Watch):
    """Export the model after each epoch, or after each epoch that is the best so far.

    It writes ONNX files; to resume a run, use the checkpoints in its directory `out`.

    Args:
      filepath: such as "best.onnx", or "{epoch:02d}-{val_loss:.2f}.onnx" with values from the logs;
        epochs count from 1.
      monitor: as in `EarlyStopping`, for save_best_only.
      save_best_only: only export after an epoch that is better than all before.
      save_freq: "epoch", or a number of steps.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "loss",
        *,
        save_best_only: bool = False,
        mode: str | None = None,
        min_delta: float = 0.0,
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(monitor, min_delta=min_delta, mode=mode)
        self.filepath = str(as_path("ModelCheckpoint: filepath", filepath))
        self.save_best_only = typed("ModelCheckpoint: save_best_only", save_best_only, (bool,))
        if not self.filepath.endswith(".onnx"):
            raise UsageError(
                f"ModelCheckpoint: filepath {self.filepath}: expected a name ending in .onnx. "
                "Checkpoints to resume from are in the Trainer's out."
            )
        counts = isinstance(save_freq, int) and save_freq is not True and save_freq >= 1
        if not counts and not (isinstance(save_freq, str) and save_freq == "epoch"):
            raise UsageError(
                f"ModelCheckpoint: save_freq {save_freq!r}: expected 'epoch' or a number of steps."
            )
        if save_best_only and save_freq != "epoch":
            raise UsageError(
                "ModelCheckpoint: save_best_only needs save_freq 'epoch': only epochs are compared."
            )
        self.save_freq = save_freq
        self._epoch = 0

    def check_known(self, known: list[str], evaluates: bool) -> None:
        if self.save_best_only:
            super().check_known(known, evaluates)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any]) -> None:
        self._epoch = epoch

    def state(self) -> dict[str, Any]:
        return {**super().state(), "epoch": self._epoch}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._epoch = int(state.get("epoch", 0))

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        if self.save_freq != "epoch" and self.model.steps % self.save_freq == 0:
            self._export({**logs, "batch": batch + 1, "epoch": self._epoch + 1})

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any]) -> None:
        if self.save_freq != "epoch":
            return
        if not self.save_best_only or self.better(self.model, event_of(logs)):
            self._export({**logs, "epoch": epoch + 1})

    def _export(self, numbers: Mapping[str, Any]) -> None:
        try:
            path = Path(self.filepath.format(**numbers))
        except (KeyError, IndexError, ValueError) as error:
            raise UsageError(
                f"ModelCheckpoint: filepath {self.filepath}: {error!r}; available are "
                f"{', '.join(numbers)}. Choose from these."
            ) from None
        path.parent.mkdir(parents=True, exist_ok=True)
        self.model.export_onnx(path)


@public_api
class ReduceLROnPlateau(Watch):
    """Multiply the learning rate by `factor` after `patience` epochs without improvement.

    A schedule of the Trainer multiplies the result. `et.Schedule("plateau")` does the same inside
    the Program, also on devices without Python.

    Args:
      factor: above 0, below 1.
      cooldown: epochs to ignore after a change.
      min_lr: lower limit of the rate.
    """

    def __init__(
        self,
        monitor: str = "loss",
        *,
        factor: float = 0.1,
        patience: int = 10,
        mode: str | None = None,
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, min_delta=min_delta, mode=mode)
        self.factor = finite_number("ReduceLROnPlateau: factor", factor, least=0)
        if not 0 < self.factor < 1:
            raise UsageError(f"ReduceLROnPlateau: factor {factor:g}: expected between 0 and 1.")
        self.min_lr = finite_number("ReduceLROnPlateau: min_lr", min_lr, least=0)
        self.patience = _count("ReduceLROnPlateau: patience", patience, 1)
        self.cooldown = _count("ReduceLROnPlateau: cooldown", cooldown, 0)
        self.waited = self.cooling = 0

    def on_epoch_end(self, trainer: Any, event: Mapping[str, Any]) -> None:
        if self.cooling:
            self.cooling, self.waited = self.cooling - 1, 0
        if self.better(trainer, event):
            self.waited = 0
        elif not self.cooling:
            self.waited += 1
            if self.waited >= self.patience and trainer.lr > self.min_lr:
                trainer.lr = max(trainer.lr * self.factor, self.min_lr)
                self.cooling, self.waited = self.cooldown, 0

    def state(self) -> dict[str, Any]:
        return {**super().state(), "waited": self.waited, "cooling": self.cooling}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.waited, self.cooling = int(state["waited"]), int(state["cooling"])


@public_api
class LearningRateScheduler(Callback):
    """Set the learning rate at the beginning of each epoch.

    A schedule of the Trainer multiplies it.

    Args:
      schedule: function of the epoch, counted from 0, or of (epoch, current learning rate).
    """

    check_known = _known

    def __init__(self, schedule: Callable[..., float]) -> None:
        super().__init__()
        if not callable(schedule):
            raise UsageError(
                f"LearningRateScheduler: schedule {repr(schedule)[:80]}: expected a function of "
                "(epoch, lr)."
            )
        self.schedule = schedule

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any]) -> None:
        try:
            inspect.signature(self.schedule).bind(epoch, 0.0)
            arguments: tuple[Any, ...] = (epoch, self.model.lr)
        except TypeError:
            arguments = (epoch,)
        rate = self.schedule(*arguments)
        rate = rate.item() if hasattr(rate, "item") else rate
        self.model.lr = finite_number("LearningRateScheduler: learning rate", rate, least=0)


@public_api
class CSVLogger(Callback):
    """Write a row for each epoch: its number, counted from 0, and the numbers in its logs.

    Args:
      filename: overwritten if it exists, unless the run is resumed.
      append: keep the rows of an existing file.
    """

    check_known = _known

    def __init__(
        self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False
    ) -> None:
        super().__init__()
        self.filename = as_path("CSVLogger: filename", filename)
        if not isinstance(separator, str) or len(separator) != 1:
            raise UsageError(f"CSVLogger: separator {separator!r}: expected one character.")
        self.separator = separator
        self.append = typed("CSVLogger: append", append, (bool,))
        self._columns: list[str] = []
        self._kept = 0  # rows that were there before the run
        self._resumed = False

    def on_train_begin(self, logs: Mapping[str, Any]) -> None:
        if self.append and not self._resumed and not self._columns:
            with self._accessing():
                self._kept = len(self._read()[1])

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any]) -> None:
        row = {"epoch": epoch, **logs}
        with self._accessing():
            if not self._columns:
                self._begin(row)
            with open(self.filename, "a", newline="") as file:
                self._writer(file).writerow(row)

    @contextlib.contextmanager
    def _accessing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"CSVLogger: {self.filename}: {error.strerror}.") from error

    def _read(self) -> tuple[list[str], list[dict[str, Any]]]:
        """The columns and rows of the file; none if it is missing."""
        if not os.path.exists(self.filename):
            return [], []
        text = read_regular(self.filename).decode(errors="replace")
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=self.separator)
        found = [dict(row) for row in rows]
        return [*(rows.fieldnames or ())], found

    def _begin(self, row: Mapping[str, Any]) -> None:
        """Write the header, and the rows to keep; in a resumed run, those of earlier epochs."""
        kept: list[dict[str, Any]] = []
        self._columns = ["epoch", *sorted(row.keys() - {"epoch"})]
        if self.append or self._resumed:
            columns, rows = self._read()
            self._columns = columns or self._columns
            own = [item for item in rows[self._kept :] if _before(item, row["epoch"])]
            kept = rows[: self._kept] + own
        lines = io.StringIO(newline="")
        writer = self._writer(lines)
        writer.writeheader()
        writer.writerows(kept)
        content = lines.getvalue().encode()
        write_atomically(self.filename, lambda file: file.writelines([content]), links=True)

    def _writer(self, file: Any) -> "csv.DictWriter[str]":
        return csv.DictWriter(
            file, self._columns, restval="NA", extrasaction="ignore", delimiter=self.separator
        )

    def state(self) -> dict[str, Any]:
        return {"columns": self._columns, "kept": self._kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._columns, self._resumed = [], self.append or bool(state["columns"])
        self._kept = int(state.get("kept", 0))


def event_of(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an epoch's logs to its event."""
    tested = {n.removeprefix("val_"): v for n, v in logs.items() if n.startswith("val_")}
    return {"loss": logs["loss"], **({"evaluation": tested} if tested else {})}


def _before(row: Mapping[str, Any], epoch: int) -> bool:
    try:
        return int(row["epoch"]) < epoch
    except (KeyError, TypeError, ValueError):
        return False


def _count(label: str, value: int, least: int) -> int:
    if typed(label, value, (int,)) < least:
        raise UsageError(f"{label} {value}: expected at least {least}.")
    return value
