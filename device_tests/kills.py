"""Runs that are killed again and again (SIGKILL), and end with the bits of one that never was.

python -m device_tests.kills [--runs 40] [--kills 25] [--seed 0] [--out docs/kills.md]

A run is the command `train --resume` in a process of its own, forked from one that has loaded the
kernels, so that a start takes milliseconds. It saves every third minibatch and keeps two
checkpoints; kills fall at random moments, most of them where a checkpoint is due.
"""

import argparse
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import edgetrain as et
from edgetrain.cli import main as edgetrain
from edgetrain.runtime.run.checkpoint import latest, step_files
from edgetrain.runtime.session import Session
from tests.digits_runs import digits_program

KINDS = {
    "fp32, SGD with momentum": {},
    "fp16, loss scaling": {"precision": "fp16"},
    "sparse (density 0.4), rewiring": {"density": 0.4},
    "Adam": {"optimizer": et.Adam(lr=0.005)},
}
SAVE_STEPS, MOST_STEPS = 3, 24  # minibatches between checkpoints; until a kill, at most
SAVING_SECONDS, STARTING_SECONDS = 0.012, 0.15  # a kill falls within, after a save or start is due
HEAD = ("run", "runs", "kills", "no checkpoint yet", "amid writing", "amid rotation",
        "lock taken over", "same bits", "litter")  # fmt: skip


@dataclass
class Tally:
    """What happened to the runs of one kind; `moments`: what was on disk after each kill."""

    runs: int = 0
    kills: int = 0
    same: int = 0
    litter: int = 0
    moments: Counter = field(default_factory=Counter)


class Run:
    """The command in a forked child; its events are read from a pipe."""

    def __init__(self, edge: Path, out: Path, steps: int) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            _become(edge, out, steps, writer)
        os.close(writer)
        self._reader = reader
        self.taken_over = False

    def events(self) -> Iterator[dict]:
        """As they come; ends with the process."""
        rest = b""
        while select.select([self._reader], [], [], 60)[0]:
            found = os.read(self._reader, 65536)
            if not found:
                return
            *lines, rest = (rest + found).split(b"\n")
            for line in lines:
                event = json.loads(line)
                self.taken_over |= "taken over" in event.get("message", "")
                yield event
        raise AssertionError("no event for a minute")

    def end(self, kill: bool) -> int:
        """Kill it, or let it end; its exit status."""
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        for _ in self.events():
            pass
        os.close(self._reader)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _become(edge: Path, out: Path, steps: int, writer: int) -> None:
    """In the child: the command, to its end."""
    status = 1
    try:
        os.dup2(writer, 1)
        sys.stdout = os.fdopen(1, "w", buffering=1)
        status = edgetrain([
            "train", str(edge), "--data", "digits", "--no-eval", "--steps", str(steps),
            "--save-steps", str(SAVE_STEPS), "--lr-schedule", "cosine", "--out", str(out),
            "--resume", str(out), "--json",
        ])  # fmt: skip
        sys.stdout.flush()
    finally:
        os._exit(status)


def kill_somewhere(run: Run, draw: random.Random, first: bool) -> None:
    """Wait for a random moment, then kill.

    Args:
      first: there is no checkpoint yet; most of these kills fall while the first one is written.
    """
    kind = draw.random()
    if kind < 0.2 and not (first and kind < 0.1):
        time.sleep(draw.uniform(0, STARTING_SECONDS))
    else:
        wanted = SAVE_STEPS if first else draw.randint(1, MOST_STEPS)
        seen, due = 0, kind < 0.8
        for event in run.events():
            seen += event["event"] == "step"
            if seen >= wanted and (not due or event.get("step", 1) % SAVE_STEPS == 0):
                break
        time.sleep(draw.uniform(0, SAVING_SECONDS / 3 if first else SAVING_SECONDS))
    assert run.end(kill=True) == -signal.SIGKILL


def note_moment(out: Path, moments: Counter) -> None:
    """What a kill left in the directory."""
    names = os.listdir(out) if out.is_dir() else []
    moments["no checkpoint yet"] += not step_files(out)
    moments["amid writing"] += any(name.endswith(".tmp") for name in names)
    moments["amid rotation"] += len(step_files(out)) > 2


def final(out: Path, steps: int) -> tuple[dict, dict]:
    """The bytes of every tensor, and the counters."""
    loaded = latest(out)
    assert loaded is not None and loaded.meta["step"] == steps and loaded.warning is None
    return {name: array.tobytes() for name, array in loaded.tensors.items()}, loaded.meta


def finished(edge: Path, out: Path, steps: int) -> tuple[dict, dict]:
    """Let a run end, and read its end."""
    assert Run(edge, out, steps).end(kill=False) == 0
    return final(out, steps)


def killed_run(edge: Path, out: Path, expected: tuple, kills: int, seed: int, tally: Tally) -> None:
    """One run, killed `kills` times, into `tally`."""
    draw, steps = random.Random(seed), steps_of(kills)
    for _ in range(kills):
        run = Run(edge, out, steps)
        kill_somewhere(run, draw, first=not step_files(out))
        tally.kills += 1
        tally.moments["lock taken over"] += run.taken_over
        note_moment(out, tally.moments)
    tally.runs += 1
    tally.same += finished(edge, out, steps) == expected
    wanted = {"program.edge", *(path.name for path in step_files(out)[-2:])}
    tally.litter += len(set(os.listdir(out)) - wanted)


def steps_of(kills: int) -> int:
    """Minibatches of a run: more than it takes between so many kills."""
    return (kills + 1) * (MOST_STEPS + 2 * SAVE_STEPS)


def campaign(runs: int, kills: int, seed: int, folder: Path) -> dict[str, Tally]:
    """Runs of every kind in turn."""
    tallies = {kind: Tally() for kind in KINDS}
    edges, expected = {}, {}
    for number, (kind, options) in enumerate(KINDS.items()):
        edges[kind] = _compiled(options, folder / f"{number}.edge")
        expected[kind] = finished(edges[kind], folder / f"whole-{number}", steps_of(kills))
    for number in range(runs):
        kind = list(KINDS)[number % len(KINDS)]
        out = folder / f"run-{number}"
        killed_run(edges[kind], out, expected[kind], kills, seed + number, tallies[kind])
        print(f"run {number + 1} of {runs}, {kind}: {tallies[kind]}", flush=True)
    return tallies


def _compiled(options: dict, path: Path) -> Path:
    """Compiled in a child, so that this process stays without threads; its kernels loaded here."""
    child = os.fork()
    if child == 0:
        digits_program(**options).save(path)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    Session(et.load_program(path)).close()
    return path


def table(tallies: dict[str, Tally]) -> list[str]:
    """Markdown: a row for each kind, and their sum."""
    whole = Tally()
    rows = []
    for kind, tally in tallies.items():
        rows.append((kind, tally))
        for name in ("runs", "kills", "same", "litter"):
            setattr(whole, name, getattr(whole, name) + getattr(tally, name))
        whole.moments += tally.moments
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for kind, tally in (*rows, ("all", whole)):
        moments = [tally.moments[name] for name in HEAD[3:7]]
        same = f"{tally.same} of {tally.runs}"
        cells = (kind, tally.runs, tally.kills, *moments, same, tally.litter)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def main() -> None:
    """Print the table and write it; status 1 where a run departs or leaves something behind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edgetrain-kills-") as folder:
        tallies = campaign(args.runs, args.kills, args.seed, Path(folder))
    seconds = time.monotonic() - start
    lines = table(tallies)
    print("\n".join(lines))
    if args.out:
        text = [
            "# Killed runs", "",
            "Written by `python -m device_tests.kills --out docs/kills.md`: each run trains the "
            f"digits' model over {steps_of(args.kills)} minibatches, saves every {SAVE_STEPS}, "
            f"keeps 2 checkpoints, and is killed (SIGKILL) {args.kills} times. The columns after "
            "kills count what a kill left: no checkpoint yet, a file half written, a checkpoint "
            "not yet rotated away; and starts that took over the lock of the killed process. "
            "\"Same bits\": weights, optimizer state, pattern and counters at the end equal those "
            "of a run that nobody stopped. Litter: other files in the run's directory then.",
            "", *lines, "", f"Seed {args.seed}; {seconds:.0f} s.",
        ]  # fmt: skip
        args.out.write_text("\n".join(text) + "\n")
    sys.exit(any(t.litter or t.same != t.runs for t in tallies.values()))


if __name__ == "__main__":
    main()
