"""Each kernel family at the zoo's hot shapes: the fraction of what this machine allows, and torch.

    python -m benchmarks.kernels [--avx2] [--most N] [--rounds N] [--write] [NET ...]

How close are kernels to the limit of the machine? Shapes come from compiled Programs
(kernel_cases.py). The limit is the longer of two times: multiply-adds at the measured float32
peak, and bytes at the measured bandwidth of a buffer of that size. The memory's bandwidth (64 MB)
is given as well, because in a real step most operands come from memory. Our kernels and torch's
run in turn, many times, and the shortest time counts, so other work on the machine does not
affect the ratio. torch uses the instructions that our kernels use: for AVX2 it runs in a process
of its own whose libraries are limited to AVX2.
"""

import argparse
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

from edgetrain.formats import FORMATS
from edgetrain.kernels import registry, targets
from edgetrain.kernels.cache import jit

from . import marks
from .kernel_cases import CONVOLUTION, NETS, PASSES, RECURRENT, Call, calls, product_of
from .kernel_peers import peers
from .machine import SIZES, bandwidth, least, multiply_adds

FOLLOWS = ("kernels",)  # of marks.SOURCES
DOCUMENT = Path(__file__).parent.parent / "docs" / "kernels.md"
COUNTED = "## NEON"  # from there on: benchmarks/neon.py
SECONDS = 0.4  # for an instruction
EACH = 2  # instructions of every family of a net
NORMS = ("bn_", "layer_norm", "rms_norm", "group_norm", "lrn", "softmax")
UPDATES = ("sgd", "adam", "grad_", "stat_", "lion", "rmsprop", "adagrad", "adafactor")
AVX2 = {  # what limits torch's libraries to AVX2; they read it once, when they are loaded
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
_SHAPE = (
    "z1",
    "z2",
    "m",
    "n",
    "k2",
    "k",
    "c",
    "h",
    "wd",
    "kh",
    "kw",
    "oh",
    "sh",
    "g",
    "d",
    "t",
    "b",
)


class Row(NamedTuple):
    """The measurements of one instruction."""

    call: Call
    family: str
    variant: str
    seconds: float
    limit: float
    binds: str
    torch: float | None

    @property
    def fraction(self) -> float:
        return self.limit / self.seconds

    @property
    def of_memory(self) -> float:
        """Bytes per second, relative to a pass over memory."""
        return self.call.nbytes / bandwidth(SIZES[-1]) / self.seconds


def family(name: str) -> str:
    """The family under which a kernel is listed."""
    direct = product_of(name)
    root = direct.removesuffix("_dx").removesuffix("_dw")
    if root in CONVOLUTION:
        return (
            ("sparse " if root == "conv_csr" else "")
            + "convolution, "
            + PASSES[direct[len(root) :]]
        )
    if name == "gemm":
        return "gemm"
    if name.removesuffix("_bwd") in RECURRENT or name.startswith("recurrent"):
        return "recurrence"
    if name.startswith(NORMS):
        return "norms"
    return "update" if name.startswith(UPDATES) else "elementwise and moves"


def shape(call: Call) -> str:
    """The integers that describe its size."""
    found = {name: call.values[name] for name in _SHAPE if name in call.values}
    if call.name == "gemm":
        batch = f"{found['z1'] * found['z2']} x " if found["z1"] * found["z2"] > 1 else ""
        return f"{batch}{found['m']} x {found['n']} x {found['k2'] * found['k']}"
    if "kh" in found and "oh" in found:
        size = f"{found['n']} x {found['c']} x {found['h']} x {found['wd']}"
        groups = f", {found['g']} groups" if found.get("g", 1) > 1 else ""
        channels = f" to {found['k']}" if "k" in found else ""
        return f"{size}{channels}, {found['kh']} x {found['kw']} / {found['sh']}{groups}"
    return ", ".join(f"{name} {value}" for name, value in found.items()) or f"{call.nbytes} bytes"


def _elements(call: Call) -> int:
    kernel = registry.variants(call.name)[0]
    kinds = {o.name: call.storages.get(o.storage, o.storage) for o in kernel.spec.operands}
    return max((FORMATS[kinds[n]].count(a.nbytes) for n, a in call.contents.items()), default=1)


def measure(call: Call, target: jit.Target, rounds: int) -> Row:
    """Time our kernel and torch's alternately."""
    run, variant, _kept = call.prepared(target)
    others = peers(call.name, call.values, _elements(call))
    seconds, *theirs = least([run, *others], rounds, SECONDS)
    limit, binds = call.limit(target)
    best = min(theirs, default=None)
    return Row(call, family(call.name), variant, seconds, limit, binds, best)


def rows(nets: Iterable[str], target: jit.Target, most: int, rounds: int) -> list[Row]:
    """Measure hot instructions of the nets, and print each."""
    found = []
    for net in nets:
        for call in calls(net, most, family, EACH):
            found.append(measure(call, target, rounds))
            print(line(found[-1]), flush=True)
    return found


def line(row: Row) -> str:
    """A row of the long table."""
    kinds = "/".join(dict.fromkeys(row.call.storages.values()))
    theirs = f"{row.torch * 1e6:.1f} | {row.torch / row.seconds:.2f}" if row.torch else "- | -"
    return (
        f"| {row.call.net} | {row.call.name}.{row.variant} {kinds} | {shape(row.call)} | "
        f"{row.call.count} | {row.seconds * 1e6:.1f} | {row.binds} | {100 * row.fraction:.0f} % | "
        f"{theirs} |"
    )


def summary(found: Sequence[Row]) -> list[str]:
    """Rows by family: medians over hot instructions, and the fraction over all their time."""
    by_family: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        density = ", " + row.call.net.split(", ")[1] if row.family.startswith("sparse") else ""
        by_family[row.family + density].append(row)
    out = []
    for name, some in sorted(by_family.items()):
        fractions = [row.fraction for row in some]
        spent = sum(row.seconds * row.call.count for row in some)
        whole = sum(row.limit * row.call.count for row in some) / spent
        ratios = [row.torch / row.seconds for row in some if row.torch]
        beside = f"{statistics.median(ratios):.2f}" if ratios else "-"
        passes = [100 * row.of_memory for row in some if row.binds == "bytes"]
        of_memory = f"{statistics.median(passes):.0f} %" if passes else "-"
        out.append(
            f"| {name} | {len(some)} | {100 * statistics.median(fractions):.0f} % | "
            f"{100 * min(fractions):.0f} % | {100 * whole:.0f} % | {of_memory} | {beside} |"
        )
    return out


_SUMMARY = [
    "| family | instructions | fraction of the limit, median | least | of all their time | "
    "of the memory's bandwidth, median | torch's time over ours, median |",
    "|---|---|---|---|---|---|---|",
]
_LONG = [
    "| net | kernel | shape | in a step | ours, us | binds | of the limit | torch, us | ratio |",
    "|---|---|---|---|---|---|---|---|---|",
]


def section(name: str | None, nets: Iterable[str], most: int, rounds: int) -> list[str]:
    """Measure one target and return its section of the document.

    Args:
      name: of a target; None for this processor.
      most: different instructions of a net.
      rounds: most runs of an instruction.
    """
    torch.set_num_threads(1)
    target = targets.get(name).processor if name else jit.host()
    title = f"AVX2 (target {name}, run here)" if name else f"This processor ({target.lanes} lanes)"
    print("\n".join(["", title, "", *_LONG]), flush=True)
    found = rows(nets, target, most, rounds)
    families = [*_SUMMARY, *summary(found)]
    print("\n".join(["", *families]), flush=True)
    kilobytes = (32, 1024, 16384, 65536)
    rates = ", ".join(f"{size} kB {bandwidth(size * 1024) / 1e9:.0f}" for size in kilobytes)
    return [
        f"## {title}",
        "",
        f"Peak: {multiply_adds(target) / 1e9:.1f} billion multiply-adds a second; bandwidth by the "
        f"bytes of a pass, GB/s: {rates}.",
        "",
        *families,
        "",
        "<details><summary>Every instruction</summary>",
        "",
        *_LONG,
        *map(line, found),
        "",
        "</details>",
        "",
    ]


def avx2_process() -> ProcessPoolExecutor:
    """Start a process whose torch is limited to AVX2; this one has loaded its libraries."""
    os.environ.update(AVX2)
    return ProcessPoolExecutor(1, get_context("spawn"))


def document(lines: Iterable[str], mark: marks.Mark) -> str:
    """The text of docs/kernels.md: these sections, then what benchmarks/neon.py wrote."""
    opening = [
        "# Kernels and the machine's limit",
        "",
        "Made by `make bench-kernels` on one thread.",
        "",
        mark.line(),
        "",
        __doc__.split("\n\n")[2],
        "",
    ]
    _, title, counted = DOCUMENT.read_text().partition(COUNTED)
    return "\n".join([*opening, *lines]) + "\n" + title + counted


def main() -> None:
    """Print the tables; with --write, also write the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET", help=", ".join(NETS))
    parser.add_argument("--most", type=int, default=16, help="different instructions of a net")
    parser.add_argument("--rounds", type=int, default=2000, help="most runs of an instruction")
    parser.add_argument("--avx2", action="store_true", help="also the code for x86-64-v3")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    args = parser.parse_args()
    unknown = [name for name in args.nets if name not in NETS]
    if unknown:
        parser.error(f"unknown net {unknown[0]!r}; expected of: {', '.join(NETS)}")
    others = marks.OtherWork()
    nets = args.nets or list(NETS)
    lines = section(None, nets, args.most, args.rounds)
    if args.avx2:
        with avx2_process() as limited:
            work = limited.submit(section, "x86-64-v3", nets, args.most, args.rounds)
            lines += work.result()
    if args.write:
        DOCUMENT.write_text(document(lines, marks.now(FOLLOWS, others)))


if __name__ == "__main__":
    main()
