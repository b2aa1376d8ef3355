"""Records steps skipped because of non-finite values, and the samples that caused them.

The record is `skipped.json` in the run directory: for each step, the indices of its samples in
order and of the bad ones. The samples of other steps follow from the Program's seed and the step's
number.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RunError
from ...formats import coded, decoded
from ...kernels import control
from ...program import TARGET, schema
from ...program.atomic import write_atomically
from ...program.finite import nonfinite
from ...units.files import read_regular
from ..run.folder import RunFolder
from ..session import Session, StepResult

RECORD_FILE = "skipped.json"
MOST_STEPS, MOST_INDICES = 64, 2**17  # limits of the record, which keeps the newest; at most 1.5 MB
MOST_BAD = 16  # most samples to find in a step
_MOST_NBYTES = 2**22
_VERSION = 1
_INDEX = schema.integer(0, 2**62)
_STEP = schema.record(
    {
        "step": _INDEX,
        "epoch": _INDEX,
        "samples": schema.several(_INDEX, most=MOST_INDICES),
        "bad": schema.several(_INDEX, most=MOST_BAD),
    },
    {"batch": _INDEX},
)
_RECORD = schema.record(
    {"version": schema.integer(_VERSION, _VERSION), "steps": schema.several(_STEP, most=MOST_STEPS)}
)


@dataclass(frozen=True)
class Fed:
    """The samples of a step.

    Attributes:
      indices: samples in order: indices into a source, or rows of a batch.
      put: stages the samples of these rows of `indices`, int64 [microbatch], for an evaluation.
      where: name of a row's sample in messages.
      batch: index of the batch in its pass; None if the samples come from a source.
    """

    indices: np.ndarray
    put: Callable[[np.ndarray], None]
    where: Callable[[int], str]
    batch: int | None = None


def bad_rows(session: Session, fed: Fed, forward: bool) -> list[int]:
    """Rows with non-finite values, or with a non-finite loss in evaluation mode, which keeps
    samples independent.

    Checks microbatches, and halves of a non-finite one down to single samples. Finds at most
    MOST_BAD.

    Args:
      forward: check losses too, which needs forward passes.
    """
    each, result = session.program.microbatch, list[int]()
    staged = [b for b in session.buffers("eval").values() if b.dtype.kind == "f" or coded(b)]

    def is_finite(rows: np.ndarray) -> bool:
        whole = rows[np.arange(each) % len(rows)]
        with np.errstate(over="ignore"):
            fed.put(whole)
        if not all(np.isfinite(decoded(buffer)).all() for buffer in staged):
            return False
        loss = session.evaluate(len(rows), lambda _: fed.put(whole))["loss"] if forward else 0.0
        return math.isfinite(loss) or not session.tally[0]

    def search(rows: np.ndarray) -> None:
        if len(result) == MOST_BAD or is_finite(rows):
            return
        if len(rows) == 1:
            result.append(int(rows[0]))
            return
        for half in np.array_split(rows, 2):
            search(half)

    for start in range(0, len(fed.indices), each):
        search(np.arange(start, min(start + each, len(fed.indices))))
    return result


class SkippedSteps:
    """Finds and records the samples of skipped steps.

    Args:
      folder: where to store the record, or None.
      emit: receives events.
    Attributes:
      spoiled: the input or target that is not finite in all checked samples of a step; "": none.
    """

    def __init__(
        self, session: Session, folder: RunFolder | None, emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self._session, self._folder, self._emit = session, folder, emit
        self.spoiled = ""
        self._hopeless = -1  # update count at which no sample was finite, so none will be

    def note(self, result: StepResult, epoch: int, fed: Fed) -> None:
        """Record the last step, which was skipped because of non-finite values."""
        step = self._session.step
        bad = self._looked_at(step, fed, not math.isfinite(result.loss))
        row: dict[str, Any] = {"step": step, "epoch": epoch}
        if fed.batch is not None:
            row["batch"] = fed.batch
        row["samples"] = fed.indices[:MOST_INDICES].tolist()
        row["bad"] = fed.indices[bad].tolist()
        self._keep(row)

    def _looked_at(self, step: int, fed: Fed, forward: bool) -> list[int]:
        """Find and report the bad rows; none if weights or loss scale are the cause."""
        updates = int(self._session.ints[control.ADAM_T])
        if self._hopeless == updates:
            return []
        self.spoiled = ""
        try:
            bad = bad_rows(self._session, fed, forward)
        except Exception as error:  # from the source; the step is over, the run continues
            self._tell(step, f"its samples can't be read again ({error})", [])
            return []
        count = len(fed.indices)
        if len(bad) in (count, MOST_BAD):
            self._hopeless = updates
            self.spoiled = self._field_of(fed, bad)
            bad, result = [], "no checked sample has a finite loss"
            if self.spoiled:
                result = f"{self.spoiled} of its samples is not finite"
        elif bad:
            result = f"not finite because of {', '.join(map(fed.where, bad))}"
        else:
            result = "its loss is not finite, but that of each sample alone is"
        if bad or forward:
            self._tell(step, result, fed.indices[bad].tolist())
        return bad

    def _field_of(self, fed: Fed, rows: list[int]) -> str:
        """The input or target that is not finite in all of these rows; "": none."""
        names = set[str]()
        for row in rows:
            with np.errstate(over="ignore"):
                fed.put(np.full(self._session.program.microbatch, row))
            names.add(nonfinite(self._session.buffers("eval")))
        name = names.pop() if len(names) == 1 else ""
        return "the target" if name == TARGET else name and f"input {name!r}"

    def _tell(self, step: int, found: str, bad: list[int]) -> None:
        message = f"step {step} was skipped: {found}."
        self._emit({"event": "skip", "step": step, "samples": bad, "message": message})

    def _keep(self, row: dict[str, Any]) -> None:
        """Add a step to the record; a repeated step replaces its old entry."""
        if self._folder is None:
            return
        path = self._folder.path / RECORD_FILE
        rows = [old for old in self._read(path) if old["step"] < row["step"]][1 - MOST_STEPS :]
        rows.append(row)
        while len(rows) > 1 and sum(len(old["samples"]) for old in rows) > MOST_INDICES:
            del rows[0]
        text = json.dumps({"version": _VERSION, "steps": rows}, separators=(",", ":")).encode()
        try:
            write_atomically(path, lambda file: file.writelines([text]), links=False)
        except RunError as error:
            self._emit({"event": "warning", "message": str(error)})

    def _read(self, path: Path) -> list[dict[str, Any]]:
        """The steps in a record; empty if there is no file, or it is damaged (with a warning)."""
        try:
            text = read_regular(path, links=False, most=_MOST_NBYTES)
            schema.verify(_RECORD, schema.parse(text), str(path), RunError, "Starting a new one.")
            return schema.parse(text)["steps"]
        except FileNotFoundError:
            return []
        except (OSError, RunError, schema.Wrong) as error:
            message = f"{path}: not a record of skipped steps ({error}). Starting a new one."
            self._emit({"event": "warning", "message": message})
            return []
