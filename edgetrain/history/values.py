"""Checks values of a history file: damaged ones raise ValueError, or another error that
`History.read` catches."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunError
from ..units.files import NotRegular, read_regular
from . import COLUMNS, CONFUSION, MOST_WORDS, VERSION

if TYPE_CHECKING:
    from . import History

MOST = 2**53  # largest count
WHOLE = ("step", "n", "skipped")  # columns of whole numbers


def number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("expected a finite number")
    return float(value)


def whole(value: Any) -> int:
    """A count of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError("expected a whole number")
    return value


def text(value: Any) -> str:
    """Text, cut to the length of a note."""
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value[:MOST_WORDS].encode(errors="replace").decode()


def listed(value: Any) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def column(name: str, values: Any) -> list[float]:
    """A column of steps; None in the file is NaN."""
    result = [math.nan if v is None else number(v) for v in listed(values)]
    if name in WHOLE and not all(v.is_integer() and 0 <= v <= MOST for v in result):
        raise ValueError("expected whole numbers")
    return result


def epoch(kept: Any) -> dict[str, Any]:
    """An epoch's event, its evaluation included."""
    result: dict[str, Any] = {"epoch": whole(kept["epoch"]), "step": whole(kept["step"])}
    for name in ("loss", "seconds"):
        if name in kept:
            result[name] = number_or_none(kept[name])
    if "evaluation" in kept:
        results = kept["evaluation"].items() if isinstance(kept["evaluation"], dict) else None
        if results is None:
            raise ValueError("expected results by name")
        result["evaluation"] = {text(name): number_or_none(value) for name, value in results}
    return result


def number_or_none(value: Any) -> float | None:
    """A finite number, or None."""
    return None if value is None else number(value)


def table(kept: Any) -> dict[str, Any] | None:
    """A confusion matrix; None if damaged: the rest of the file may still be sound."""
    try:
        counts = [[number(n) for n in listed(row)] for row in listed(kept["counts"])]
        if any(len(row) != len(counts) or min(row) < 0 or max(row) > MOST for row in counts):
            return None
        return {"epoch": whole(kept["epoch"]), "counts": kept["counts"]}
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def tables(*kept: Any) -> dict[str, dict[str, Any]]:
    """Confusion matrices by name, without damaged ones."""
    items = [item for entry in kept if isinstance(entry, dict) for item in entry.items()]
    result = {text(name): table(value) for name, value in items}
    return {name: value for name, value in result.items() if value is not None}


def read(path: str | Path, history: "History") -> "History":
    """Implements `History.read`: fill an empty history."""
    try:
        kept = json.loads(read_regular(path, links=False))
        if kept["version"] != VERSION:
            return history
        steps = {name: column(name, kept["steps"][name]) for name in COLUMNS}
        epochs = [epoch(item) for item in listed(kept["epochs"])]
        notes = [(whole(step), text(words)) for step, words in listed(kept["notes"])]
        confusions = tables({CONFUSION: kept["confusion"]}, kept.get("confusions"))
    except NotRegular as error:
        raise RunError(f"{path}: {error.strerror}. Remove it.") from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return history
    if len({len(item) for item in steps.values()}) == 1:
        history.steps, history.epochs = steps, epochs
        history.notes, history.confusions = notes, confusions
        history._each = max(steps["n"], default=1.0)
    return history
