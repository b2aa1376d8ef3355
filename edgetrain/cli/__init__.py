"""The command line: parse, call, print. The README lists commands and exit statuses.

parser/arguments.py has the parser, parser/choices.py turns options into compiler options; a
command lives in commands/plan.py, commands/train.py, commands/inspection.py or commands/doctor.py
and is imported when it is asked for.
"""

import contextlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence

from ..errors import EdgetrainError, Interrupted
from ..screen.streams import lost, sturdy
from ..screen.waiting import waited
from ..units.packages import explained
from .device.limited import address_limit, needed, no_memory, supervised
from .parser.namespace import Namespace

_FAILED = 1
# These say what they do meanwhile.
_SLOW = ("plan", "advise", "compile", "bundle", "eval", "parity", "warm", "migrate")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      argv: without the program's name; None takes the process' own.
    Returns:
      The exit status: 0 done, 1 the run or comparison failed, 2 usage, 3 does not fit the budget,
      4 bad input file, 130 interrupted (129 hung up, 143 terminated). Errors are one line on
      stderr.
    """
    argv = sys.argv[1:] if argv is None else argv
    with sturdy(next((word for word in argv if not word.startswith("-")), "")):
        return _main(argv)


def _main(argv: Sequence[str]) -> int:
    from .parser.lean_imports import load_later

    load_later()
    from .parser.arguments import parse

    arguments = parse(argv)
    if isinstance(arguments, int):
        return _shown(arguments)
    limit = address_limit()
    if limit is None:
        return _quietly(arguments)
    needs = needed(arguments.command, str(getattr(arguments, "model", None) or ""))
    if limit < needs:
        return _say(arguments, no_memory(limit, needs))
    return supervised(lambda: _quietly(arguments), lambda: _say(arguments, no_memory(limit)))


def _quietly(arguments: Namespace) -> int:
    with warnings.catch_warnings():
        if not arguments.debug:
            warnings.simplefilter("ignore")
        return _guarded(arguments)


def _guarded(arguments: Namespace) -> int:
    """The command's exit status, every exception turned into a line."""
    try:
        status = _run(arguments)
        # A run is in its directory; what other commands find out is in what they print.
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
    """An exit status, which is no success where what was printed is lost."""
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
        "the way there.",
    )


def _run(arguments: Namespace) -> int:
    with (
        waited(f"{arguments.command}: loading")
        if arguments.command in _SLOW
        else contextlib.nullcontext()
    ):
        module = importlib.import_module(f".commands.{arguments.module}", __name__)
        return getattr(module, arguments.function)(arguments)


def _say(arguments: Namespace, message: str, status: int = _FAILED) -> int:
    """One line on stderr, the traceback before it with --debug; returns `status`."""
    if arguments.debug:
        import traceback

        traceback.print_exc()
    print(f"edgetrain {arguments.command}: {' '.join(message.split())}", file=sys.stderr)
    return status
