"""Steps that were skipped because something was not finite: which samples, and a record of them.

A run's directory keeps the record, `skipped.json`: for each such step the indices of its samples,
in the order in which they were fed, and those to blame. The samples of any other step follow from
the Program's seed and the step's number.
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
from ...program import schema
from ...program.atomic import write_atomically
from ...units.files import read_regular
from ..run.folder import RunFolder
from ..session import Session, StepResult

RECORD_FILE = "skipped.json"
MOST_STEPS, MOST_INDICES = 64, 2**17  # that the record keeps: the newest, at most 1.5 MB
MOST_BAD = 16  # samples that are looked for in a step
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
    """What a step was fed.

    Attributes:
      indices: its samples in their order: numbers of a source's, or rows of a batch.
      put: stages the samples of these rows of `indices`, int64 [microbatch], for an evaluation.
      where: what a message calls the sample of a row.
      batch: number of the batch in its pass, from 0 on; None where the samples are a source's.
    """

    indices: np.ndarray
    put: Callable[[np.ndarray], None]
    where: Callable[[int], str]
    batch: int | None = None


def bad_rows(session: Session, fed: Fed, forward: bool) -> list[int]:
    """Rows that hold something that is not finite, or whose loss is not finite in evaluation mode,
    where no sample reaches another one's.

    Each microbatch is looked at, and where one is not finite, its halves down to samples. At most
    MOST_BAD are looked for.

    Args:
      forward: look at losses too, which takes a forward of what is looked at.
    """
    each, found = session.program.microbatch, list[int]()
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
        if len(found) == MOST_BAD or is_finite(rows):
            return
        if len(rows) == 1:
            found.append(int(rows[0]))
            return
        for half in np.array_split(rows, 2):
            search(half)

    for start in range(0, len(fed.indices), each):
        search(np.arange(start, min(start + each, len(fed.indices))))
    return found


class SkippedSteps:
    """Finds out and keeps what was fed to steps that were skipped.

    Args:
      folder: where the record is kept; None keeps none.
      emit: takes events.
    """

    def __init__(
        self, session: Session, folder: RunFolder | None, emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self._session, self._folder, self._emit = session, folder, emit
        self._hopeless = -1  # updates when no sample was finite: with these weights none is

    def note(self, result: StepResult, epoch: int, fed: Fed) -> None:
        """Take note of a step, the last one, that was skipped because something was not finite."""
        step = self._session.step
        bad = self._looked_at(step, fed, not math.isfinite(result.loss))
        row: dict[str, Any] = {"step": step, "epoch": epoch}
        if fed.batch is not None:
            row["batch"] = fed.batch
        row["samples"] = fed.indices[:MOST_INDICES].tolist()
        row["bad"] = fed.indices[bad].tolist()
        self._keep(row)

    def _looked_at(self, step: int, fed: Fed, forward: bool) -> list[int]:
        """The rows to blame, which are told; none where it is the weights, or the loss scale."""
        updates = int(self._session.ints[control.ADAM_T])
        if self._hopeless == updates:
            return []
        try:
            bad = bad_rows(self._session, fed, forward)
        except Exception as error:  # of a source; the step is over, and the run goes on
            self._tell(step, f"its samples cannot be read again ({error})", [])
            return []
        count = len(fed.indices)
        if len(bad) in (count, MOST_BAD):
            self._hopeless = updates
            bad, found = [], "none of the samples that were looked at has a finite loss"
        elif bad:
            found = f"not finite with {', '.join(map(fed.where, bad))}"
        else:
            found = "its loss is not finite, but is for each of its samples alone"
        if bad or forward:
            self._tell(step, found, fed.indices[bad].tolist())
        return bad

    def _tell(self, step: int, found: str, bad: list[int]) -> None:
        message = f"step {step} is skipped: {found}."
        self._emit({"event": "skip", "step": step, "samples": bad, "message": message})

    def _keep(self, row: dict[str, Any]) -> None:
        """Put a step into the record; one that is done again takes its old place."""
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
        """The steps of a record; none where there is no file, or it is damaged, which is said."""
        try:
            text = read_regular(path, links=False, most=_MOST_NBYTES)
            schema.verify(_RECORD, schema.parse(text), str(path), RunError, "It begins anew.")
            return schema.parse(text)["steps"]
        except FileNotFoundError:
            return []
        except (OSError, RunError, schema.Wrong) as error:
            message = f"{path}: not a record of skipped steps ({error}). It begins anew."
            self._emit({"event": "warning", "message": message})
            return []
