"""Place the buffers of a file with the planner's allocator.

usage: python -m benchmarks.place FILE.csv [--capacity N | --minimize] [--seconds S]
           --out SOLUTION.csv

FILE.csv has the columns id, lower, upper, size: a buffer is live on steps [lower, upper). The
solution adds `offset`. Without --capacity, `NAME.<bytes>.csv` names the capacity, else the height
is made as small as can be found.
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from edgetrain.compiler.arena import Buffer, peak_live, place, validate
from edgetrain.errors import EdgetrainError

# Millions of search steps in a second of a slow core.
EFFORT_PER_SECOND = 500


def load_buffers(path: str | Path) -> list[Buffer]:
    """Read the buffers of a file, in order."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [Buffer(*(int(row[key]) for key in ("id", "lower", "upper", "size"))) for row in rows]


def capacity_of(path: Path) -> int | None:
    """Return the capacity in a file name such as `A.1048576.csv`."""
    middle = path.name.split(".")[-2:-1]
    return int(middle[0]) if middle and middle[0].isdigit() and path.name.count(".") > 1 else None


def save(path: Path, buffers: Sequence[Buffer], offsets: Sequence[int]) -> None:
    """Write the input's columns and the offsets."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "lower", "upper", "size", "offset"])
        for b, at in zip(buffers, offsets, strict=True):
            writer.writerow([b.id, b.start, b.stop, b.nbytes, at])


def main(arguments: Sequence[str] | None = None) -> int:
    """Place one file; exit status 3 if the capacity is not reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.place", description=__doc__)
    parser.add_argument("file", type=Path)
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument("--capacity", type=int, metavar="BYTES")
    goal.add_argument("--minimize", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0, help="effort, not a clock")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    buffers = load_buffers(options.file)
    capacity = None if options.minimize else options.capacity or capacity_of(options.file)
    effort = max(1, int(options.seconds * EFFORT_PER_SECOND))
    try:
        offsets, height = place(buffers, capacity=capacity, align=1, effort=effort)
        validate(buffers, offsets)
    except EdgetrainError as error:
        print(f"{options.file.name}: {error}", file=sys.stderr)
        return error.exit_status
    save(options.out, buffers, offsets)
    found = {"height": height, "lower_bound": peak_live(buffers), "capacity": capacity}
    print(json.dumps(found))
    return 0 if capacity is None or height <= capacity else 3


if __name__ == "__main__":
    sys.exit(main())
