"""python -m edgetrain.kernels.run NAME: a kernel in plain Python on a call made for it."""

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
from .execution import difference, interpret, run_compiled

if TYPE_CHECKING:
    import pdb

SHOWN = 8  # numbers of an operand
MOST_THREADS = 64  # of a Program


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m edgetrain.kernels.run",
        description="Run a kernel in plain Python on a small call made from its declaration: its "
        "lines can be stepped through, and every access is checked.",
    )
    parser.add_argument("name", help="kernel, or kernel.variant")
    parser.add_argument("--seed", type=int, default=0, help="another call for each (default: 0)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="an integer or a storage variable of the call, such as n=8 or S=f16",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=_threads, default=1, metavar="N",
        help=f"1 to {MOST_THREADS}, one after the other (default: 1)",
    )  # fmt: skip
    parser.add_argument("--compare", action="store_true", help="also run the compiled kernel")
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
    found = [kernel for kernel in variants if kernel.variant == variant or not variant]
    if not found:
        known = ", ".join(kernel.label for kernel in variants)
        raise UsageError(f"kernel {name!r}: no variant {variant!r}; available: {known}.")
    return found[-1] if not variant else found[0]


def _fixed(settings: Sequence[str]) -> dict[str, int | str]:
    out: dict[str, int | str] = {}
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign:
            raise UsageError(f"--set {setting}: expected NAME=VALUE, such as n=8 or S=f16.")
        out[name] = int(value) if value.lstrip("-").isdigit() else value
    return out


def _debugger(kernel: Kernel, storages, line: int) -> "pdb.Pdb":
    """A debugger that stops at a line of the kernel's file; 0: at the kernel's first one."""
    import pdb

    code = kernel.function(storages).__code__
    lines = [number for _, _, number in code.co_lines() if number]
    debugger = pdb.Pdb()
    debugger.rcLines.append("continue")  # from where it is started to the line
    error = debugger.set_break(code.co_filename, line or min(lines[1:] or lines))
    if error:
        raise UsageError(f"--break {line}: {error}")
    return debugger


def _shown(call: calls.Call, places) -> None:
    kernel = call.kernel
    settings = [f"{name}={value}" for name, value in call.storages.items()]
    numbers = (o.name for o in kernel.spec.operands if o.mode in "if")
    settings += [f"{name}={call.values[name]}" for name in numbers]
    print(f"kernel {kernel.label}: {' '.join(settings)}")
    for operand in kernel.spec.operands:
        if operand.mode in "wm" and operand.name in places:
            format = FORMATS[call.storages.get(operand.storage, operand.storage)]
            values = decoded(places[operand.name].view(format.dtype))
            first = " ".join(f"{value:.7g}" for value in values[:SHOWN])
            print(f"{operand.name}[{values.size}] = {first}{' ...' * (values.size > SHOWN)}")


def _run(options: argparse.Namespace) -> int:
    if options.file:
        runpy.run_path(options.file)
    kernel = _chosen(options.name)
    call = calls.made(kernel, options.seed, _fixed(options.set))
    places, expected = call.copied(), call.copied()
    about = (kernel, call.storages, places, call.values, options.threads, call.lanes)
    if options.stop is None:
        interpret(*about)
    else:
        _debugger(kernel, call.storages, options.stop).runcall(interpret, *about)
    _shown(call, places)
    if not options.compare:
        return 0
    run_compiled(kernel, call.storages, expected, call.values, options.threads, call.lanes)
    wrong = difference(kernel, call.storages, places, expected)
    print(wrong or "compiled: the same bits")
    return int(bool(wrong))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns: 0; 1 where the compiled kernel differs; else what an error is worth."""
    options = _parser().parse_args(arguments)
    try:
        with np.errstate(all="ignore"):
            return _run(options)
    except EdgetrainError as error:
        print(f"edgetrain: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
