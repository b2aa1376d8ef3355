"""The command line: parse, call, print. docs/commands.md lists commands and exit statuses.

parser/arguments.py has the parser, parser/choices.py turns command-line options into compiler
options. commands/ has their functions; a module is imported when its command is run.
"""

import contextlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence

from ..errors import EdgetrainError, Interrupted
from ..screen.streams import lost, sturdy
from ..screen.waiting import waited
from ..units.packages import explained
from .device.limited import address_limit, needed, no_memory
from .parser.namespace import Namespace

_FAILED = 1
# Slow commands, which report their progress.
_SLOW = ("plan", "advise", "compile", "bundle", "eval", "parity", "warm", "migrate")


def main(argv: Sequence[str] | None = None, loaded: Callable[[], None] | None = None) -> int:
    """Run one command.

    Args:
      argv: arguments without the program name; None: those of the process.
      loaded: called once the command's modules are loaded.
    Returns:
      The exit status: 0 success, 1 the run or comparison failed, 2 wrong usage, 3 does not fit the
      budget, 4 bad input file, 130 interrupted (129 hang-up, 143 terminated). Errors are one line
      on stderr.
    """
    argv = sys.argv[1:] if argv is None else argv
    from .parser.lean_imports import import_pathlib

    import_pathlib()
    with sturdy(next((word for word in argv if not word.startswith("-")), "")):
        return _main(argv, loaded or _nothing)


def _nothing() -> None:
    pass


def _main(argv: Sequence[str], loaded: Callable[[], None] = _nothing) -> int:
    from .parser.arguments import parse

    arguments = parse(argv)
    if isinstance(arguments, int):
        return _shown(arguments)
    limit = address_limit()
    if limit is None:
        return _quietly(arguments, loaded)
    needs = needed(arguments.command, str(getattr(arguments, "model", None) or ""))
    if limit < needs:
        return _say(arguments, no_memory(limit, needs))
    from .device.supervised import supervised

    return supervised(
        lambda: _quietly(arguments, loaded), lambda: _say(arguments, no_memory(limit))
    )


def _quietly(arguments: Namespace, loaded: Callable[[], None]) -> int:
    with warnings.catch_warnings():
        if not arguments.debug:
            warnings.simplefilter("ignore")
        return _guarded(arguments, loaded)


def _guarded(arguments: Namespace, loaded: Callable[[], None]) -> int:
    """Run the command; print any exception as one line."""
    try:
        status = _run(arguments, loaded)
        # A run is stored in its directory; the result of other commands is their output.
        return status if arguments.command == "train" else _shown(status)
    except EdgetrainError as error:
        _say(arguments, f"error: {error}")
        return error.exit_status
    except Interrupted as error:
        return _say(arguments, str(error), error.exit_status)
    except KeyboardInterrupt as error:
        signum = getattr(error, "signum", signal.SIGINT)
        return _say(arguments, str(error) or "interrupted", 128 + signum)
    except MemoryError:
        return _say(arguments, no_memory(address_limit()))
    except ModuleNotFoundError as error:
        return _missing(arguments, error)
    except Exception as error:
        limit = address_limit()
        if limit is not None and isinstance(error, ImportError | OSError | RuntimeError):
            return _say(arguments, no_memory(limit))
        return _bug(arguments, error)


def _shown(status: int) -> int:
    """The exit status; not 0 if the output was lost."""
    sys.stdout.flush()
    return status or (_FAILED if lost(sys.stdout) else 0)


def _missing(arguments: Namespace, error: ModuleNotFoundError) -> int:
    try:
        known = explained(error)
    except ModuleNotFoundError:
        return _bug(arguments, error)
    return _say(arguments, f"error: {known}", known.exit_status)


def _bug(arguments: Namespace, error: Exception) -> int:
    import traceback

    where = traceback.extract_tb(error.__traceback__)[-1]
    return _say(
        arguments,
        f"unexpected {type(error).__name__}: {error} ({os.path.basename(where.filename)}:"
        f"{where.lineno}). This is a bug: please report it with the command; --debug shows "
        "the traceback.",
    )


def _run(arguments: Namespace, loaded: Callable[[], None]) -> int:
    with (
        waited(f"{arguments.command}: loading")
        if arguments.command in _SLOW
        else contextlib.nullcontext()
    ):
        module = importlib.import_module(f".commands.{arguments.module}", __name__)
        loaded()
        return getattr(module, arguments.function)(arguments)


def _say(arguments: Namespace, message: str, status: int = _FAILED) -> int:
    """Print one line on stderr, with --debug a traceback first; returns `status`."""
    if arguments.debug:
        import traceback

        traceback.print_exc()
    print(f"edgetrain {arguments.command}: {' '.join(message.split())}", file=sys.stderr)
    return status
