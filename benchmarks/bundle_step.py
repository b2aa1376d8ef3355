"""Seconds of a step in C by those in Python, the two in turn: a bundle beside the same Program.

    python -m benchmarks.bundle_step [NET ...] [--threads N ...] [--rounds N]

The bundle is a separate process built with gcc. It reads a line per step and generates its samples
within the step. Python reuses the samples of its first minibatch, which it generates beforehand.
"""

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.optim import Schedule
from edgetrain.program import Program
from edgetrain.runtime.samples.check import made_up_filler
from edgetrain.runtime.session import Session

from .nets import wrn28_2

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits" / "model.onnx"
SGD = et.SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
WARM = 2  # steps that are not counted
NETS: dict[str, tuple[Callable, dict]] = {
    "digits": (lambda: et.load_onnx(DIGITS), {"minibatch": 32}),
    "WRN-28-2 in 6.7 MB": (
        wrn28_2,
        {"minibatch": 100, "microbatch": 10, "budget": "6.7MB", "density": 0.3},
    ),
    "WRN-28-2 in 12.2 MB": (wrn28_2, {"minibatch": 100, "microbatch": 10, "budget": "12.2MB"}),
}


def in_c(program: Program, folder: Path, target: str | None = None) -> subprocess.Popen:
    """Start the bundle; per line of input it runs a step and prints "SECONDS PROCESSOR_SECONDS"."""
    bundle(program, folder, name="net", target=target)
    shutil.copy(folder / "main.c", folder / "shipped.c")
    driver = Path(__file__).with_suffix(".c").read_text().replace('"main.c"', '"shipped.c"')
    (folder / "main.c").write_text(driver)
    options = ["CC=gcc", "CFLAGS=-O2 -std=gnu99", "LDFLAGS="]
    subprocess.run(["make", "-s", "-C", str(folder), *options], check=True)
    pipe = subprocess.PIPE
    return subprocess.Popen([folder / "net"], stdin=pipe, stdout=pipe, text=True, bufsize=1)


def in_python(program: Program) -> Callable[[], tuple[float, float]]:
    """Return a function that runs a step in this process: (seconds, CPU seconds)."""
    session = Session(program)
    session.set_schedule(Schedule(), 1000)
    made_up, microbatches = made_up_filler(session), program.minibatch // program.microbatch
    filled = 0

    def fill(indices) -> None:
        nonlocal filled
        filled += 1
        if filled <= microbatches:
            made_up(indices)

    def step() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        session.minibatch(4 * program.minibatch, fill)
        return time.perf_counter() - wall, time.process_time() - cpu

    return step


def compared(program: Program, rounds: int) -> list[tuple[float, float]]:
    """Return the medians as (C, Python): wall seconds first, then CPU seconds."""
    with tempfile.TemporaryDirectory() as folder, in_c(program, Path(folder)) as child:
        assert child.stdin is not None and child.stdout is not None
        ours, theirs = in_python(program), []
        for _ in range(WARM + rounds):
            child.stdin.write("\n")
            seconds, of_processors = map(float, child.stdout.readline().split())
            theirs.append(((seconds, of_processors), ours()))
        child.stdin.close()
    kept = theirs[WARM:]
    return [
        (statistics.median(c[k] for c, _ in kept), statistics.median(p[k] for _, p in kept))
        for k in range(2)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("nets", nargs="*", metavar="NET", help=", ".join(NETS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if wrong := set(given.nets) - set(NETS):
        parser.error(f"no net {', '.join(sorted(wrong))}; expected {', '.join(NETS)}.")
    print("| net | threads | C, ms | Python, ms | ratio | ratio of processor time |", flush=True)
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for name in given.nets or NETS:
        build, options = NETS[name]
        model = build()
        for threads in given.threads:
            program = et.compile(
                model, optimizer=SGD, precision="fp16", threads=threads, verbose=False, **options
            )
            (c, python), (cpu, cpu_python) = compared(program, given.rounds)
            print(
                f"| {name} | {threads} | {1e3 * c:.2f} | {1e3 * python:.2f} | {c / python:.2f} "
                f"| {cpu / cpu_python:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
