"""Progress of training: JSON lines, a rich progress bar in a terminal, or plain lines."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import IO, Any, cast

from ..errors import printable
from ..units import format_bytes
from ..units.wording import counted, quoted
from .streams import Moving, lost
from .tables import to_json

Event = dict[str, Any]
Progress = Callable[[Event], None]
_PLAIN_SECONDS = 10.0  # between lines about steps
_CELL_SECONDS = 0.2  # between updates of a notebook's bar


@contextmanager
def make_progress(json: bool) -> Iterator[Progress]:
    """A function to call with each event of a run."""
    if json:
        yield _saying_losses(_json_line, _json_line)
    elif (display := notebook()) is not None and find_spec("rich") is not None:
        with _in_cell(display) as progress:
            yield progress
    elif sys.stderr is not None and sys.stderr.isatty() and find_spec("rich") is not None:
        with _rich() as progress:
            yield progress
    else:
        yield _saying_losses(_Plain(), lambda event: print(describe(event), flush=True))


def _saying_losses(progress: Progress, say: Progress) -> Progress:
    """Wrap `progress` to report once, on standard output, if standard error is lost."""
    said = False

    def told(event: Event) -> None:
        nonlocal said
        progress(event)
        if not said and (reason := lost(sys.stderr)):
            said = True
            say({"event": "warning", "message": f"standard error: {reason}; its output is lost"})

    return told


def _json_line(event: Event) -> None:
    shown = {key: value for key, value in event.items() if key != "lines"}
    print(to_json(shown), flush=True)


class _Plain:
    """One line per event; most steps are skipped."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._left = _Left()

    def __call__(self, event: Event) -> None:
        if event["event"] in ("step", "epoch"):
            event = event | {"left": self._left.after(event)}
        if event["event"] == "step":
            now = time.monotonic()
            if now - self._last < _PLAIN_SECONDS and not event["skipped"]:
                return
            self._last = now
        elif event["event"] == "start":
            self._last = time.monotonic()
        show(event)


class _Left:
    """Estimates the remaining time from the steps done."""

    def __init__(self) -> None:
        self._begun: tuple[float, int] | None = None
        self._total = 0

    def after(self, event: Event) -> float | None:
        """Seconds left after a step or an epoch; None if unknown."""
        now = time.monotonic()
        self._total = event.get("total_steps", self._total)
        if self._begun is None:
            self._begun = now, event["step"]
        since, first = self._begun
        if event["step"] <= first or self._total <= event["step"]:
            return None
        return (now - since) / (event["step"] - first) * (self._total - event["step"])


def duration(seconds: float) -> str:
    """For example 45 s, 12 min or 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show(event: Event, write: Callable[[str], Any] | None = None) -> None:
    """Print an event: the memory account and the result on stdout, the rest on stderr."""
    text = describe(event)
    if not text:
        return
    if write is not None:
        write(text)
    else:
        target = sys.stdout if event["event"] in ("start", "done") else sys.stderr
        print(text, file=target, flush=True)


def describe(event: Event) -> str:
    """The text of an event, or "" if it has none."""
    kind = event["event"]
    left = f", {duration(event['left'])} left" if (event.get("left") or 0) >= 0.5 else ""
    if kind == "start":
        return "\n".join([*event["lines"], *_process_line(event["process_nbytes"])])
    if kind == "step":
        skipped = f", skipped: {event['reason']}" if event["skipped"] else ""
        return (
            f"step {event['step']}/{event['total_steps']}: loss {event['loss']:.4f}, "
            f"lr {event['lr']:.3g}{skipped}{left}"
        )
    if kind == "epoch":
        took = f", {event['seconds']:.1f} s" if event["seconds"] >= 0.05 else ""
        return (
            f"epoch {event['epoch']}: loss {event['loss']:.4f}{took}, "
            f"{event['samples_per_second']:,.0f} samples/s{_skipped(event['skipped'])}{left}"
            f"{_curve(event)}"
        )
    if kind == "eval":
        accuracy = f", accuracy {100 * event['accuracy']:.2f} %" if "accuracy" in event else ""
        known = ("event", "epoch", "loss", "samples", "accuracy")
        more = {k: v for k, v in event.items() if k not in known and isinstance(v, int | float)}
        others = "".join(f", {name} {value:.4g}" for name, value in more.items())
        return f"epoch {event['epoch']}: test loss {event['loss']:.4f}{accuracy}{others}"
    if kind == "resume":
        return f"resumed at step {event['step']} from {event['path']}"
    if kind == "stop":
        return f"stopped at step {event['step']}: {event['reason']}{_curve(event)}"
    if kind in ("data", "skip", "note"):
        return str(event["message"])
    if kind == "warning":
        return f"warning: {event['message']}"
    if kind == "done":
        return (
            f"trained {counted(event['step'], 'step')}; the run is in {event['out']} "
            f"(edgetrain export {quoted(str(event['out']))} -o trained.onnx)"
        )
    return ""


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """Draw numbers as block characters; a blank for a non-finite one."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        _BLOCKS[round((value - low) * scale)] if math.isfinite(value) else " " for value in values
    )


def _curve(event: Event) -> str:
    """The loss curve of the whole run, at its end."""
    drawn = sparkline(event.get("curve", ()))
    return f"; loss of the run {drawn}" if drawn and can_show(drawn) else ""


def can_show(text: str) -> bool:
    """Whether standard error has an encoding for it."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _skipped(count: int) -> str:
    return f", {count} steps skipped" if count > 1 else ", 1 step skipped" if count else ""


def _process_line(nbytes: int | None) -> list[str]:
    if nbytes is None:
        return []
    return [f"plus the process: {format_bytes(nbytes)} (Python, numpy, compiled kernels)"]


def notebook() -> Callable[..., Any] | None:
    """The display function of a notebook (Jupyter, Colab); None outside of one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return cast(Callable[..., Any], display)


def _bar(console: Any, **more: Any) -> tuple[Any, Progress]:
    """Rich's progress bar for steps, and the function that advances it."""
    from rich import progress as shown

    bar = shown.Progress(
        shown.TextColumn("step"),
        shown.MofNCompleteColumn(),
        shown.BarColumn(),
        shown.TimeRemainingColumn(),
        shown.TextColumn("{task.fields[note]}"),
        console=console,
        **more,
    )
    task = bar.add_task("train", total=None, note="")

    def move(event: Event) -> None:
        note = f"loss {event['loss']:.4f}  lr {event['lr']:.3g}"
        total = event["total_steps"] or None
        bar.update(task, completed=event["step"], total=total, note=note)

    return bar, move


@contextmanager
def _rich() -> Iterator[Progress]:
    """A progress bar for steps, with lines for other events above it."""
    from rich.console import Console

    console = Console(file=cast(IO[str], Moving(sys.stderr)), highlight=False)
    bar, move = _bar(console, transient=True)

    def progress(event: Event) -> None:
        if event["event"] == "step":
            move(event)
        elif event["event"] == "start":
            show(event)
        else:
            show(event, lambda text: console.print(printable(text, "\n"), markup=False))

    with bar:
        yield progress


@contextmanager
def _in_cell(display: Callable[..., Any]) -> Iterator[Progress]:
    """Rich's progress bar below a notebook cell, and lines of text.

    The bar is redrawn under one display id, so no widgets are needed.
    """
    from rich.console import Console

    bar, move = _bar(Console(force_jupyter=False), auto_refresh=False)
    shown: dict[str, Any] = {"bar": None, "at": 0.0}

    def draw() -> None:
        table = bar.make_tasks_table(bar.tasks)
        if shown["bar"] is None:
            shown["bar"] = display(table, display_id=True)
        else:
            shown["bar"].update(table)
        shown["at"] = time.monotonic()

    def progress(event: Event) -> None:
        if event["event"] == "step":
            move(event)
            if time.monotonic() - shown["at"] >= _CELL_SECONDS:
                draw()
        else:
            show(event, lambda text: print(printable(text, "\n"), flush=True))

    try:
        yield progress
    finally:
        if shown["bar"] is not None:
            draw()
