"""Mutants of Programs, their checksums repaired: each is refused, or runs one step like any other.

    python -m tests.fuzz.programs --mutants 20000 --seed 0

prints, for each net, how many mutants were tried, the share that ran, and what went wrong.
"""

import argparse
import contextlib
import copy
import functools
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.errors import ProgramError
from edgetrain.program import KIND, TAPES, VERSION
from edgetrain.program.container import read_container, write_container
from edgetrain.runtime.loading.program import load_program
from edgetrain.runtime.session import Session
from tests.twins import train_step

from . import children
from .nets import ALL, compiled

_HUGE = (0, -1, 1, 2, 63, 64, 1000, 1_000_000, 2**31, 2**40, 2**62, -(2**63))
_ODD = (None, True, "", "ctl", [], {}, 1.5, float("nan"), float("inf"), "f16", [1], "index")
_ROLES = ("parameter", "buffer", "constant", "index", "accumulator", "state", "control", "staged")
_STORAGES = ("f32", "f16", "i32", "i64", "u16", "u8", "f64")


@dataclass
class Sound:
    """A Program in the form its container stores."""

    tensors: dict[str, np.ndarray]
    fields: dict[str, Any]

    @classmethod
    def of(cls, path: Path) -> "Sound":
        versions = range(VERSION, VERSION + 1)
        tensors, meta = read_container(path, kind=KIND, versions=versions, error=ProgramError)
        return cls({k: np.array(v) for k, v in tensors.items()}, json.loads(meta["program"]))

    def save(self, path: Path) -> None:
        meta = {"program": json.dumps(self.fields)}
        write_container(path, self.tensors, meta, kind=KIND, version=VERSION)


def _word(word: int, words: np.ndarray, draw: random.Random) -> int:
    """Return another value for a tape word."""
    value = draw.choice([
        word ^ (1 << draw.randrange(63)), word ^ (1 << draw.randrange(12)), word + 1, word - 1,
        word + 64, word - 64, 2 * word, word // 2, 0, -1, draw.choice(_HUGE), draw.randrange(1000),
        int(words[draw.randrange(len(words))]),
    ])  # fmt: skip
    return max(-(2**63), min(2**63 - 1, value))


def _a_set(sound: Sound, draw: random.Random) -> tuple[dict[str, Any], str]:
    """Return the fields of a random set of tapes, and the prefix of its tensor names."""
    sets = [sound.fields, *sound.fields.get("sets", ())]
    number = draw.randrange(len(sets))
    return sets[number], f"set.{number}." if number else ""


def _tape(sound: Sound, draw: random.Random) -> None:
    prefix = _a_set(sound, draw)[1]
    tapes = [sound.tensors[f"{prefix}tape.{tape}"] for tape in TAPES]
    words = draw.choice([tape for tape in tapes if tape.size])
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        where = draw.randrange(len(words))
        words[where] = _word(int(words[where]), words, draw)


def _leaves(node: Any, out: list) -> list:
    """Collect (container, key) of everything in a JSON value."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(items):
        out.append((node, key))
        if isinstance(value, dict | list):
            _leaves(value, out)
    return out


def _leaf(sound: Sound, draw: random.Random) -> None:
    parent, key = draw.choice(_leaves(sound.fields, []))
    value = parent[key]
    how = draw.random()
    if how < 0.1:
        del parent[key]
    elif isinstance(value, bool) or not isinstance(value, int | float) or how < 0.2:
        parent[key] = draw.choice([*_ODD, *_HUGE, value])
    else:
        parent[key] = draw.choice([*_HUGE, value + 1, value - 1, 2 * value, -value, value + 64])


def _slot(sound: Sound, draw: random.Random) -> None:
    fields = _a_set(sound, draw)[0]
    groups = [fields["persistent"], *fields["inputs"].values(), *fields["outputs"].values()]
    groups.append(list(fields["targets"].values()))
    slots = draw.choice([group for group in groups if group])
    slot, other = draw.choice(slots), draw.choice(fields["persistent"])
    what = draw.choice(("offset", "offset", "shape", "role", "dtype", "name"))
    if what == "offset":
        step = 64 * draw.choice((1, -1, 4, 1000))
        slot["offset"] = draw.choice([slot["offset"] + step, other["offset"], 0, 2**40])
    elif what == "shape" and slot["shape"]:
        slot["shape"][draw.randrange(len(slot["shape"]))] = draw.choice((*_HUGE, 3, 5))
    elif what == "role":
        slot["role"] = draw.choice(_ROLES)
    elif what == "dtype":
        slot["dtype"] = draw.choice(_STORAGES)
    else:
        slot[what] = other[what]


def _initial(sound: Sound, draw: random.Random) -> None:
    name = draw.choice([n for n in sound.tensors if n.startswith("init.") or ".init." in n])
    raw = np.array(sound.tensors[name])
    flat = raw.reshape(-1).view(np.uint8)
    for _ in range(draw.choice((1, 1, 8, 200))):
        if flat.size:
            flat[draw.randrange(flat.size)] = draw.choice((0, 127, 128, 255, draw.randrange(256)))
    sound.tensors[name] = raw


def _kernel(sound: Sound, draw: random.Random) -> None:
    table = _a_set(sound, draw)[0]["kernels"]
    row = draw.choice(table)
    what = draw.randrange(5)
    if what == 0 and row[2]:
        row[2][draw.randrange(len(row[2]))] = draw.choice(_STORAGES)
    elif what == 1:
        row[1] = draw.choice(("plain", "fast", "wide", "narrow", "pairs", "tiles16", "depthwise"))
    elif what == 2:
        table.append(copy.deepcopy(row))
    elif what == 3:
        row[:] = copy.deepcopy(draw.choice(table))
    else:
        draw.shuffle(table)


def _sets(sound: Sound, draw: random.Random) -> None:
    """Duplicate or reorder sets of tapes, or swap fields or tapes between them. A Program with
    one set gets another change."""
    sets = sound.fields.get("sets")
    if not sets:
        return draw.choice((_tape, _leaf, _slot))(sound, draw)
    one, other = draw.choice([sound.fields, *sets]), draw.choice(sets)
    what = draw.randrange(4)
    if what == 0:
        sets.append(copy.deepcopy(one))
    elif what == 1:
        draw.shuffle(sets)
    elif what == 2:
        name = draw.choice(sorted(other))
        one[name], other[name] = other[name], one.get(name)
    else:
        tape = draw.choice(TAPES)
        a, b = f"tape.{tape}", f"set.{draw.randint(1, len(sets))}.tape.{tape}"
        sound.tensors[a], sound.tensors[b] = sound.tensors[b], sound.tensors[a]
    return None


_CHANGES = (*[_tape] * 3, *[_leaf] * 2, _slot, *[_initial] * 4, _kernel, _sets)


def mutant(sound: Sound, draw: random.Random) -> Sound:
    """Return a copy with one change, rarely more."""
    out = copy.deepcopy(sound)
    draw.choice(_CHANGES)(out, draw)
    for _ in range(draw.choice((0, 0, 0, 0, 1, 2))):
        # An earlier change may have damaged what this one expects.
        with contextlib.suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
            draw.choice(_CHANGES)(out, draw)
    return out


def step(path: Path) -> str:
    """Load a Program and run one step of each kind with each of its sets, on one thread."""
    program = load_program(path)
    sets = [program.chosen(dims=one.dims, budget=one.arena_nbytes) for one in program.sets]
    session = Session(program, 1, sets=sets)
    for one in sets:
        session.change(one)
        _steps(session)
    session.close()
    return "ran"


def _steps(session: Session) -> None:
    program, rng = session.program, np.random.default_rng(0)
    limits = program.limits

    def filled(tape: str) -> bool:
        slots = [(slot, slot.name) for slot in program.inputs[tape]]
        for slot, name in [*slots, (program.targets[tape], "loss.target")]:
            view = session.arena.view(slot)
            whole = view.dtype.kind in "iu"
            high = max(1, limits.get(name, 2))
            numbers = rng.integers(0, high, view.shape) if whole else rng.normal(size=view.shape)
            view[...] = numbers
        return True

    count = program.minibatch // program.microbatch
    train_step(session, 1, 0.01, 1.0, (filled("micro") for _ in range(count)))
    if len(program.tapes["rewire"]):
        session.rewire()
        train_step(session, 2, 0.01, 1.0, (filled("micro") for _ in range(count)))
    session.evaluate(program.microbatch, lambda _: filled("eval"))
    if not session.arena.slack_is_clean():
        raise AssertionError("bytes before the arena were written")


_ROW = "{:24} {:>7} {:>7} {:>7} {:>6} {:>8} {:>6}"


@dataclass
class Tally:
    """Results of a net's mutants."""

    tried: int = 0
    refused: int = 0
    ran: int = 0
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add the results of another net; `slowest` is the maximum."""
        self.tried, self.refused = self.tried + other.tried, self.refused + other.refused
        self.ran, self.slowest = self.ran + other.ran, max(self.slowest, other.slowest)
        self.faults += other.faults

    def row(self, name: str) -> str:
        share, slowest = self.ran / max(1, self.tried), f"{self.slowest:.2f} s"
        counts = f"{self.tried:,}", f"{self.refused:,}", f"{self.ran:,}", f"{share:.0%}"
        return _ROW.format(name, *counts, slowest, len(self.faults))


def fuzz(mutants: int, seed: int, nets: Sequence[str] = ALL) -> Iterator[tuple[str, Tally]]:
    """Try `mutants` mutants, spread evenly over the nets."""
    with tempfile.TemporaryDirectory() as folder:
        for name in nets:
            honest, path, tally = Path(folder, f"{name}.edge"), Path(folder, "mutant.edge"), Tally()
            compiled(name).save(honest)
            step(honest)  # children inherit the loaded kernels
            sound = Sound.of(honest)
            for number in range(-(-mutants // len(nets))):
                draw = random.Random(f"{seed} {name} {number}")
                try:
                    mutant(sound, draw).save(path)
                except (ValueError, OverflowError, RecursionError):
                    continue  # not representable in a container
                ended = children.run(functools.partial(step, path))
                tally.tried += 1
                tally.ran += ended.how == "returned"
                tally.refused += ended.how == "refused"
                tally.slowest = max(tally.slowest, ended.cpu_seconds)
                wrong = children.fault(ended)
                if wrong:
                    tally.faults.append(f"{name} {seed} {number}: {wrong}")
            yield name, tally


def main() -> int:
    """Run the command line; return 1 if a mutant went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets", nargs="+", choices=ALL, default=ALL)
    arguments = parser.parse_args()
    total = Tally()
    print(_ROW.format("net", "tried", "refused", "ran", "share", "slowest", "wrong"))
    for name, found in fuzz(arguments.mutants, arguments.seed, arguments.nets):
        total.add(found)
        print(found.row(name), *found.faults, sep="\n", flush=True)
    print(total.row("all"))
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
