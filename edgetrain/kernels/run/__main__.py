"""python -m edgetrain.kernels.run NAME: run a kernel in plain Python on a generated call."""

import argparse
import runpy
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EdgetrainError, UsageError
from ...formats import FORMATS, decoded
from .. import registry
from ..registry import Kernel
from . import calls
from .execution import difference, first_difference, interpret, run_compiled

if TYPE_CHECKING:
    import pdb

SHOWN = 8  # numbers printed per operand
MOST_THREADS = 64  # limit of a Program


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m edgetrain.kernels.run",
        description="Run a kernel in plain Python on a small call made from its declaration: its "
        "lines can be stepped through, and every access is checked.",
    )
    parser.add_argument("name", help="kernel, or kernel.variant")
    parser.add_argument("--seed", type=int, default=0, help="another call for each (default: 0)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an integer or a storage variable of the call, such as n=8 or S=f16",
    )
    parser.add_argument(
        "--threads",
        type=_threads,
        metavar="N",
        help=f"1 to {MOST_THREADS}, one after the other (default: 1, or the saved call's)",
    )
    parser.add_argument("--compare", action="store_true", help="also run the compiled kernel")
    parser.add_argument(
        "--against",
        metavar="VARIANT",
        help="run another variant on the same call, and show the first element that differs with "
        "the lines that wrote it",
    )
    parser.add_argument(
        "--call", metavar="FILE", help="a call that was saved, such as by a failing kernel test"
    )
    parser.add_argument(
        "--break", dest="stop", nargs="?", type=int, const=0, metavar="LINE",
        help="stop in the debugger at a line of the kernel's file (default: its first line)",
    )  # fmt: skip
    parser.add_argument("--file", help="Python file that registers the kernel")
    return parser


def _threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 1 to {MOST_THREADS}")
    return int(text)


def _chosen(text: str) -> Kernel:
    name, _, variant = text.partition(".")
    variants = registry.variants(name)
    result = [kernel for kernel in variants if kernel.variant == variant or not variant]
    if not result:
        known = ", ".join(kernel.label for kernel in variants)
        raise UsageError(f"kernel {name!r}: no variant {variant!r}; available: {known}.")
    return result[-1] if not variant else result[0]


def _fixed(settings: Sequence[str]) -> dict[str, int | str]:
    out: dict[str, int | str] = {}
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign:
            raise UsageError(f"--set {setting}: expected NAME=VALUE, such as n=8 or S=f16.")
        out[name] = int(value) if value.lstrip("-").isdigit() else value
    return out


def _debugger(kernel: Kernel, storages, line: int) -> "pdb.Pdb":
    """A debugger that stops at a line of the kernel's file; 0: at the kernel's first line."""
    import pdb

    code = kernel.function(storages).__code__
    lines = [number for _, _, number in code.co_lines() if number]
    debugger = pdb.Pdb()
    debugger.rcLines.append("continue")  # from the start to the line
    error = debugger.set_break(code.co_filename, line or min(lines[1:] or lines))
    if error:
        raise UsageError(f"--break {line}: {error}")
    return debugger


def _shown(call: calls.Call, places, label: str = "") -> None:
    """Print the first numbers of each written operand."""
    for operand in call.kernel.spec.operands:
        if operand.mode in "wm" and operand.name in places:
            format = FORMATS[call.storages.get(operand.storage, operand.storage)]
            values = decoded(places[operand.name].view(format.dtype))
            first = " ".join(f"{value:.7g}" for value in values[:SHOWN])
            dots = " ..." * (values.size > SHOWN)
            print(f"{label}{operand.name}[{values.size}] = {first}{dots}")


def _describe(call: calls.Call) -> None:
    kernel = call.kernel
    settings = [f"{name}={value}" for name, value in call.storages.items()]
    numbers = (o.name for o in kernel.spec.operands if o.mode in "if")
    settings += [f"{name}={call.values[name]}" for name in numbers]
    print(f"kernel {kernel.label}: {' '.join(settings)}")


def _run(options: argparse.Namespace) -> int:
    if options.against is not None and (options.compare or options.stop is not None):
        raise UsageError("--against cannot be combined with --compare or --break.")
    if options.call and options.set:
        raise UsageError("--call has all integers and storages: leave out --set.")
    if options.file:
        runpy.run_path(options.file)
    kernel = _chosen(options.name)
    other = _other(kernel, options.against) if options.against is not None else None
    if options.call:
        call = calls.load(options.call, kernel)
    else:
        call = calls.made(kernel, options.seed, _fixed(options.set), other)
    threads = options.threads or call.threads
    if other is not None:
        return _against(call, other, threads)
    places, expected = call.copied(), call.copied()
    about = (kernel, call.storages, places, call.values, threads, call.lanes)
    if options.stop is None:
        interpret(*about)
    else:
        _debugger(kernel, call.storages, options.stop).runcall(interpret, *about)
    _describe(call)
    _shown(call, places)
    if not options.compare:
        return 0
    run_compiled(kernel, call.storages, expected, call.values, threads, call.lanes)
    wrong = difference(kernel, call.storages, places, expected)
    print(wrong or "compiled: the same bits")
    return int(bool(wrong))


def _other(kernel: Kernel, variant: str) -> Kernel:
    """The variant to compare a kernel with."""
    others = [known for known in registry.variants(kernel.name) if known is not kernel]
    for known in others:
        if variant in (known.variant, known.label):
            return known
    named = ", ".join(known.variant for known in others) or "none"
    raise UsageError(f"--against {variant}: kernel {kernel.label} has other variants: {named}.")


def _against(call: calls.Call, other: Kernel, threads: int) -> int:
    """Run two variants on one call, and print their first difference.

    They run compiled, which is fast and has the same bits. Only if they differ are they run in
    plain Python too, to find the lines that wrote the element.
    """
    variants = [(call.kernel, call.lanes), (other, calls.lanes_of(other))]
    results = []
    _describe(call)
    for kernel, lanes in variants:
        try:
            kernel.spec.extents(call.values, call.storages, threads, lanes)
        except EdgetrainError as error:
            raise UsageError(f"kernel {kernel.label} does not accept this call: {error}") from error
        places = call.copied()
        run_compiled(kernel, call.storages, places, call.values, threads, lanes)
        results.append(places)
    width = max(len(kernel.label) for kernel, _ in variants)
    for (kernel, _), places in zip(variants, results, strict=True):
        _shown(call, places, f"{kernel.label:{width}}  ")
    result = first_difference(call.kernel, call.storages, *results)
    if result is None:
        print(f"{other.label}: the same bits")
        return 0
    print(f"{result.operand}[{result.element}] differs:")
    for (kernel, lanes), value in zip(variants, result.values, strict=True):
        lines: dict[str, np.ndarray] = {}
        interpret(kernel, call.storages, call.copied(), call.values, threads, lanes, lines)
        line = lines[result.operand][result.offset] or "nothing wrote it"
        print(f"{kernel.label:{width}}  {value!r}, {line}")
    most = "" if result.most is None else f", by at most {result.most:.3g}"
    print(f"{result.wrong} of {result.size} elements differ{most}")
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns: 0; 1 if the compiled kernel or the other variant differs; else an error's status."""
    options = _parser().parse_args(arguments)
    try:
        with np.errstate(all="ignore"):
            return _run(options)
    except EdgetrainError as error:
        print(f"edgetrain: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
