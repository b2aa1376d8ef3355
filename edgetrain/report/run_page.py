"""The page about a run, updated while the run continues."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..history import CONFUSION, HISTORY_FILE, History
from ..program import Program
from ..units import format_bytes
from .charts import Series, line_chart, matrix_chart, share_chart
from .page import Page
from .plan_page import account_section, arena_section, recomputed
from .tape_scene import program_arena

_MOST_CLASSES = 200
_MOST_FACTS = 12  # most numbers of the last evaluation
_SHARE_OF_TIME = 0.05  # of the run's time, for writing its page
# (name of a layer, nonzeros, elements)
Nonzeros = Callable[[], Sequence[tuple[str, int, int]]]
Labels = Callable[[], Sequence[str] | None]
_DUE = ("save", "epoch", "eval")


class RunReport:
    """Called with a Trainer's events (`on_event`); keeps a page about the run up to date.

    The page and the history are written completely or not at all: at each checkpoint and epoch, if
    that takes little of the run's time, and by `close`.

    Args:
      path: the page to write, .html.
      program: the Program being trained.
      folder: the run's directory; each checkpoint saves the history there.
      title: title of the page (the model's name).
    Attributes:
      history: history of the run; a resumed one continues the history in its directory.
    Raises:
      RunError: the history's name in `folder` is a link, or not a regular file.
    """

    def __init__(
        self,
        path: str | Path,
        program: Program,
        folder: str | Path | None = None,
        title: str | None = None,
    ) -> None:
        self.path, self._program = Path(path), program
        self._title = title or program.model_name
        self._kept = None if folder is None else Path(folder) / HISTORY_FILE
        if self._kept is not None:
            History.read(self._kept)  # fail now rather than during the run
        self._history = History()
        self._shared: Callable[[], History] | None = None
        self._nonzeros: Nonzeros = list
        self._labels: Labels = lambda: None
        self._state = "running"
        self._begun, self._spent = time.monotonic(), 0.0

    @property
    def history(self) -> History:
        """The data the page is made from."""
        return self._history if self._shared is None else self._shared()

    def watch(
        self, nonzeros: Nonzeros, labels: Labels, history: Callable[[], History] | None = None
    ) -> None:
        """Also show these, as they are when the page is written.

        Args:
          nonzeros: nonzeros of the sparse layers.
          labels: class names.
          history: the Trainer's history; None: events are recorded here.
        """
        self._nonzeros, self._labels, self._shared = nonzeros, labels, history

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Record an event."""
        kind = event["event"]
        if self._shared is None:
            if kind == "resume" and not self._history.last:
                self._history = History.read(Path(event["path"]).parent / HISTORY_FILE)
            self._history.add(event)
        if kind == "done":
            self._state = "done"
        if kind == "save" and self._kept is not None:
            self.history.write(self._kept)
        if kind == "start" or (kind in _DUE and self._affordable()):
            self.write()

    def close(self, failed: str = "") -> None:
        """Write the final page, however the run ended."""
        if failed:
            self._state = failed
        self.write()

    def _affordable(self) -> bool:
        passed = time.monotonic() - self._begun
        return self._spent <= _SHARE_OF_TIME * passed

    def write(self) -> None:
        """Write the page.

        Raises:
          RunError: it cannot be written.
        """
        start = time.monotonic()
        layers, labels = self._nonzeros(), self._labels()
        page = run_page(self._title, self._program, self.history, self._state, layers, labels)
        page.write(self.path)
        self._spent += time.monotonic() - start


def run_page(
    title: str,
    program: Program,
    history: History,
    state: str,
    layers: Sequence[tuple[str, int, int]] = (),
    labels: Sequence[str] | None = None,
) -> Page:
    """The page of `train --report`.

    Args:
      state: running, done, or why it ended.
      layers: (name, nonzeros, elements) of sparse weights.
      labels: names of the classes.
    """
    page = Page(title, f"A training run of edgetrain: {state}.")
    page.facts(_facts(program, history))
    _curves(page, program, history)
    for name, found in history.confusions.items():
        _confusion(page, name, found, labels)
    if layers:
        page.heading("Sparsity by layer", "Current fraction of nonzeros of each sparse weight.")
        rows = [(n, nnz / max(1, size), f"{nnz:,} of {size:,}") for n, nnz, size in layers[:200]]
        page.chart(lambda width: share_chart(rows, width))
    arena_section(page, program_arena(program, title))
    account_section(page, program.account)
    _settings(page, program)
    if history.notes:
        page.heading("Messages")
        page.table(("step", ""), [(f"{s:,}", words) for s, words in history.notes], "rl")
    return page


def _facts(program: Program, history: History) -> list[tuple[str, str]]:
    skipped = sum(v for v in history.steps["skipped"] if v == v)
    rows = [("arena", format_bytes(program.arena_nbytes)), ("steps", f"{history.last:,}")]
    rows.append(recomputed(program.account))
    if skipped:
        rows.append(("skipped steps", f"{skipped:,.0f}"))
    trained = [epoch for epoch in history.epochs if epoch.get("loss") is not None]
    if trained:
        rows.append(("training loss", f"{trained[-1]['loss']:.4g}"))
    tested = [epoch["evaluation"] for epoch in history.epochs if epoch.get("evaluation")]
    for name, value in list(tested[-1].items())[:_MOST_FACTS] if tested else ():
        rows.append((f"evaluation {name}", "none" if value is None else f"{value:.4g}"))
    return rows


def _by_output(program: Program, names: Sequence[str]) -> dict[str, list[str]]:
    """Names of results, grouped by the output that they start with; "" for a single loss."""
    outputs = [str(name) for name in program.output_names if "losses" in program.recipe]
    result: dict[str, list[str]] = {}
    for name in names:
        mine = [output for output in outputs if name.startswith(f"{output}_")]
        result.setdefault(max(mine, key=len, default=""), []).append(name)
    return result


def _curves(page: Page, program: Program, history: History) -> None:
    steps = history.steps
    if not steps["step"]:
        page.text("No steps recorded yet.")
        return
    last = history.last
    tested = [e for e in history.epochs if e.get("evaluation")]
    names = list(dict.fromkeys(name for e in tested for name in e["evaluation"]))

    def evaluated(name: str, label: str) -> Series:
        mine = [e for e in tested if e["evaluation"].get(name) is not None]
        return Series(label, [e["step"] for e in mine], [e["evaluation"][name] for e in mine])

    loss = [Series("training loss", steps["step"], steps["loss"])]
    if "loss" in names:
        loss.append(evaluated("loss", "evaluation loss"))
    page.heading("Loss", "Over steps; in long runs, points are means over several steps.")
    by_output = _by_output(program, [name for name in names if name != "loss"])
    of_losses = [
        n for output, own in by_output.items() if output for n in own if n.endswith("_loss")
    ]
    loss += [evaluated(name, name) for name in of_losses]
    _lines(page, "loss", loss, last, tall=240)
    for output, own in by_output.items():
        shares = [evaluated(name, name) for name in own if name not in of_losses]
        if shares:
            title = f"Metrics of {output}" if output else "Metrics"
            page.heading(title, "From the evaluation after each epoch.")
            name = f"metrics.{output}" if output else "metrics"
            _lines(page, name, shares[:6], last, tall=200)
    page.heading("Learning rate, gradient norm, loss scale")
    _lines(page, "lr", [Series("learning rate", steps["step"], steps["lr"])], last, tall=110)
    norm = Series("gradient norm", steps["step"], steps["grad_norm"])
    _lines(page, "norm", [norm], last, tall=110, log=True)
    if len(set(steps["loss_scale"])) > 1:
        scale = Series("loss scale", steps["step"], steps["loss_scale"])
        _lines(page, "scale", [scale], last, tall=110, log=True)
    if any(steps["skipped"]):
        total, running = 0.0, []
        for count in steps["skipped"]:
            total += count
            running.append(total)
        page.heading("Skipped steps", "Number of steps so far without a weight update.")
        _lines(page, "skipped", [Series("skipped steps", steps["step"], running)], last, tall=110)


def _lines(
    page: Page, name: str, series: Sequence[Series], last: int, *, tall: int, log: bool = False
) -> None:
    page.chart(lambda width: line_chart(series, name, width, log=log, tall=tall, last=last))
    rows = [{"name": s.name, "x": list(s.x), "y": [_short(y) for y in s.y]} for s in series]
    page.data(name, rows)


def _short(value: float) -> float:
    """Round to six significant digits, enough for a page."""
    return float(f"{value:.6g}")


def _confusion(
    page: Page, name: str, found: Mapping[str, Any], labels: Sequence[str] | None
) -> None:
    counts = found["counts"]
    n = len(counts)
    output = name.removesuffix(CONFUSION).rstrip("_")
    title = f"Confusion of {output}" if output else "Confusion"
    page.heading(title, f"From the evaluation after epoch {found['epoch']}.")
    if not 0 < n <= _MOST_CLASSES:
        page.text(f"{n:,} classes are too many to draw.")
        return
    names = list(labels) if labels is not None and len(labels) == n else [str(k) for k in range(n)]
    page.chart(lambda width: matrix_chart(counts, names, width))


def _settings(page: Page, program: Program) -> None:
    recipe = program.recipe
    page.heading("Settings")
    rows = []
    losses = [(f"loss of {output}", own) for output, own in recipe.get("losses", [])]
    losses = losses or [("loss", recipe["loss"])]
    for name, parts in (("optimizer", recipe["optimizer"]), *losses):
        words = ", ".join(f"{k} {v}" for k, v in parts.items() if k != "name")
        rows.append(
            (name, f"{parts.get('name', '')} ({words})" if words else str(parts.get("name")))
        )
    for name in ("precision", "density", "seed", "target"):
        rows.append((name, str(recipe.get(name))))
    rows += [("minibatch", f"{program.minibatch:,}"), ("microbatch", f"{program.microbatch:,}")]
    page.table(("", ""), rows, "ll")
