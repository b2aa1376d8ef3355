"""Runs in every mode that are ended again and again, and reach the bits of one that never was.

python -m device_tests.kills [--runs 60] [--kills 10] [--seed 0] [--modes NAME ...]
                             [--out docs/kills.md]

A run is `train --resume`, or a Trainer, in a process forked from one that has already loaded the
kernels, so it starts within milliseconds. It keeps two checkpoints. It is ended at random moments,
most of them when a checkpoint is due: by SIGKILL, by one or two Ctrl-C, by SIGTERM or SIGHUP, or by
an exception in its data. The modes are in `kill_modes.py`.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import edgetrain as et
from benchmarks import marks
from edgetrain.history import HISTORY_FILE
from edgetrain.runtime.run.checkpoint import latest, step_files
from edgetrain.runtime.session import Session
from edgetrain.screen.curve import CURVE_FILE

from .kill_modes import MODES, RAISED, SAVE_STEPS, Attempt, Digits, Small, become

MOST_STEPS = 24  # minibatches before a run is ended, at most
SAVING_SECONDS, STARTING_SECONDS = 0.012, 0.15  # kills come this soon after a save or start
KILLED = 0.7  # share of SIGKILL among signals
ASKING = (signal.SIGINT,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,), (signal.SIGHUP,)
MOMENTS = ("killed", "asked", "raised", "no checkpoint yet", "amid writing", "amid rotation",
           "lock taken over")  # fmt: skip
COUNTED = "runs", "ends", "same", "litter"


@dataclass
class Tally:
    """Results of a mode's runs; `moments`: how they ended, and what was on disk then."""

    runs: int = 0
    ends: int = 0
    same: int = 0
    litter: int = 0
    moments: Counter = field(default_factory=Counter)


@dataclass(frozen=True)
class End:
    """Result of a run: everything that must equal an uninterrupted run's.

    Attributes:
      tensors: bytes of weights, optimizer state, statistics and patterns.
      meta: counters, position in the data, sums of losses, state of callbacks.
      files: bytes of files beside the checkpoints: best weights, the record of skipped steps.
      losses: by step number.
    """

    tensors: dict[str, bytes]
    meta: dict[str, Any]
    files: dict[str, bytes]
    losses: dict[int, str]


class Run:
    """A mode in a forked child; its events are read from a pipe.

    Attributes:
      losses: of the steps so far, by number, as text (so that NaN equals itself).
    """

    def __init__(self, mode: Digits | Small, attempt: Attempt) -> None:
        reader, writer = os.pipe()
        held = {*ASKING[0], *ASKING[2], *ASKING[3]}
        signal.pthread_sigmask(signal.SIG_BLOCK, held)  # until the child can be ended
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(reader)
                become(mode, attempt, writer, held)
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
        os.close(writer)
        self._reader = reader
        self.taken_over = False
        self.losses: dict[int, str] = {}

    def events(self) -> Iterator[dict]:
        """Yield events as they arrive, until the process ends."""
        rest = b""
        while select.select([self._reader], [], [], 60)[0]:
            found = os.read(self._reader, 65536)
            if not found:
                return
            *lines, rest = (rest + found).split(b"\n")
            for line in lines:
                event = json.loads(line)
                self.taken_over |= "removed a stale lock" in event.get("message", "")
                if event["event"] == "step":
                    self.losses[event["step"]] = str(event["loss"])
                yield event
        raise AssertionError("no event for a minute")

    def end(self, signals: Sequence[int] = ()) -> int:
        """Send the process signals, wait until it ends, and return its exit status."""
        for number, signum in enumerate(signals):
            if number:
                time.sleep(SAVING_SECONDS / 4)
            os.kill(self.pid, signum)
        for _ in self.events():
            pass
        os.close(self._reader)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def await_moment(run: Run, draw: random.Random, first: bool) -> None:
    """Wait for a random moment.

    Args:
      first: there is no checkpoint yet; most moments fall while the first one is written.
    """
    kind = draw.random()
    if kind < 0.2 and not (first and kind < 0.1):
        time.sleep(draw.uniform(0, STARTING_SECONDS))
        return
    wanted = SAVE_STEPS if first else draw.randint(1, MOST_STEPS)
    seen, due = 0, kind < 0.8
    for event in run.events():
        seen += event["event"] == "step"
        if seen >= wanted and (not due or event.get("step", 1) % SAVE_STEPS == 0):
            break
    time.sleep(draw.uniform(0, SAVING_SECONDS / 3 if first else SAVING_SECONDS))


def ended_somewhere(run: Run, raises: bool, draw: random.Random, first: bool) -> str:
    """End a run; return how: "killed", "asked", "raised", or "" if it finished first."""
    if raises:
        status = run.end()
        assert status in (0, RAISED), f"exit status {status}, expected {RAISED}"
        return "raised" if status else ""
    kill = draw.random() < KILLED
    signals = (signal.SIGKILL,) if kill else draw.choice(ASKING)
    await_moment(run, draw, first)
    status = run.end(signals)
    expected = 0, -signals[0], 128 + signals[0]
    assert status in expected, f"exit status {status} after {signals}"
    if not status:
        return ""
    return "killed" if kill else "asked"


def note_moment(out: Path, moments: Counter) -> None:
    """Count the state in which an interrupted run left its directory."""
    names = os.listdir(out) if out.is_dir() else []
    moments["no checkpoint yet"] += not step_files(out)
    moments["amid writing"] += any(name.endswith(".tmp") for name in names)
    moments["amid rotation"] += len(step_files(out)) > 2


def final(out: Path, losses: dict[int, str]) -> End:
    """Read the final state from a run's directory."""
    loaded = latest(out)
    assert loaded is not None and loaded.warning is None
    tensors = {name: array.tobytes() for name, array in loaded.tensors.items()}
    # The loss history contains times, and lacks what a killed process did not write.
    told = {out / HISTORY_FILE, out / CURVE_FILE}
    others = {*out.iterdir()} - {*step_files(out)} - told
    return End(tensors, loaded.meta, {path.name: path.read_bytes() for path in others}, losses)


def finished(mode: Digits | Small, attempt: Attempt, losses: dict[int, str]) -> End:
    """Let a run finish and return its result."""
    run = Run(mode, attempt)
    status = run.end()
    assert status == 0, f"exit status {status}"
    return final(attempt.out, losses | run.losses)


def killed_run(
    mode: Digits | Small, attempt: Attempt, expected: End, kills: int, seed: int, tally: Tally
) -> None:
    """Do one run, ended `kills` times, and add it to `tally`."""
    draw, out, losses, replayed = random.Random(seed), attempt.out, {}, True
    for _ in range(kills):
        raises = mode.raising and draw.random() < 0.5
        run = Run(mode, replace(attempt, raises=draw.randint(1, MOST_STEPS) if raises else None))
        how = ended_somewhere(run, raises, draw, first=not step_files(out))
        replayed &= all(losses.get(step, loss) == loss for step, loss in run.losses.items())
        losses |= run.losses
        if not how:
            break
        tally.ends += 1
        tally.moments[how] += 1
        tally.moments["lock taken over"] += run.taken_over
        note_moment(out, tally.moments)
    tally.runs += 1
    reached = finished(mode, attempt, losses)
    tally.same += replayed and _same(reached, expected)
    tally.litter += len(step_files(out)[:-2]) + len({*reached.files} - {*expected.files})


def _same(reached: End, expected: End) -> bool:
    """Whether two runs have the same result; prints the differences.

    If a step's event was lost with a killed process, only the sums cover its loss.
    """
    found = vars(reached) | {"losses": expected.losses | reached.losses}
    other = {name: value for name, value in vars(expected).items() if value != found[name]}
    for name, value in other.items():
        now = found[name]
        keys = sorted(k for k in {*value, *now} if value.get(k) != now.get(k))
        shown = (f"{k}: {now.get(k)!r:.160} for {value.get(k)!r:.160}" for k in keys[:8])
        print(f"{name} differ: {'; '.join(shown)}", flush=True)
    return not other


def steps_of(kills: int) -> int:
    """Minibatches of a run: more than it needs for that many kills."""
    return (kills + 1) * (MOST_STEPS + 2 * SAVE_STEPS)


def campaign(
    modes: Sequence[str], runs: int, kills: int, seed: int, folder: Path
) -> dict[str, Tally]:
    """Do runs of every mode in turn."""
    tallies = {name: Tally() for name in modes}
    attempts, expected = {}, {}
    for number in range(runs):
        name = modes[number % len(modes)]
        mode = MODES[name]
        if name not in attempts:
            edge = _compiled(mode, folder / f"{number}.edge")
            attempts[name] = Attempt(edge, folder / f"whole-{number}", steps_of(kills))
            expected[name] = finished(mode, attempts[name], {})
        attempt = replace(attempts[name], out=folder / f"run-{number}")
        killed_run(mode, attempt, expected[name], kills, seed + number, tallies[name])
        print(f"run {number + 1} of {runs}, {name}: {tallies[name]}", flush=True)
    return tallies


def _compiled(mode: Digits | Small, path: Path) -> Path:
    """Compile in a child, so this process stays without threads; load the kernels here."""
    child = os.fork()
    if child == 0:
        try:
            mode.compile(path)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    Session(et.load_program(path)).close()
    return path


def table(tallies: dict[str, Tally]) -> list[str]:
    """Markdown table: a row per mode, and the totals."""
    whole = Tally()
    for tally in tallies.values():
        for name in COUNTED:
            setattr(whole, name, getattr(whole, name) + getattr(tally, name))
        whole.moments += tally.moments
    head = "mode", "runs", "ends", *MOMENTS, "same bits", "litter"
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, tally in (*tallies.items(), ("all", whole)):
        moments = [tally.moments[moment] for moment in MOMENTS]
        same = f"{tally.same} of {tally.runs}"
        cells = (name, tally.runs, tally.ends, *moments, same, tally.litter)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def main() -> None:
    """Print and write the table; exit status 1 if a run differs or leaves files behind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", nargs="*", choices=[*MODES], metavar="NAME", default=[*MODES])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edgetrain-kills-") as folder:
        tallies = campaign(args.modes, args.runs, args.kills, args.seed, Path(folder))
    seconds = time.monotonic() - start
    lines = table(tallies)
    print("\n".join(lines))
    if args.out:
        text = [
            "# Killed runs", "",
            "Does a run survive being stopped at any moment? `python -m device_tests.kills "
            f"--out docs/kills.md` trains {steps_of(args.kills)} minibatches, keeps 2 checkpoints, "
            f"and ends each run {args.kills} times: by SIGKILL, Ctrl-C once or twice, SIGTERM, "
            "SIGHUP, or an exception in the data. The next columns count what an end left behind: "
            "no checkpoint yet, a half-written file, a checkpoint not yet deleted, a lock that the "
            'next start took over. "Same bits": weights, optimizer state, pattern, counters, the '
            "loss of every step, best weights and skipped steps equal those of an uninterrupted "
            "run. Litter: other files left in the run's directory.",
            "", *lines, "", f"Seed {args.seed}; {seconds:.0f} s.", "",
            marks.now(("kernels", "runtime")).line(),
        ]  # fmt: skip
        args.out.write_text("\n".join(text) + "\n")
    sys.exit(any(t.litter or t.same != t.runs for t in tallies.values()))


if __name__ == "__main__":
    main()
