"""The exceptions of edgetrain and their exit statuses.

A message names the object, what was found, what was expected and what to do. Any other exception
that escapes is a bug in edgetrain.
"""

import contextlib
import re
import sys

_LONG_WORD, _LONG_LINE = 600, 1900  # characters; texts from files may have any length


def printable(text: str, kept: str = "") -> str:
    """Escape characters that a terminal, a page or a C comment would interpret.

    Control and direction characters become escapes such as `\\x1b` and `\\u202e`: names come from
    files that anybody can write.

    Args:
      kept: characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def one_line(text: str) -> str:
    """The message as one printable line of at most 2,000 characters."""
    if not text.isprintable():
        text = printable(re.sub(r"\s*\n\s*", " ", text))
    if len(text) > _LONG_WORD:
        text = re.sub(rf"(\S{{{_LONG_WORD - 50}}})\S{{50,}}", r"\1...", text)
    if len(text) > _LONG_LINE:
        text = f"{text[: _LONG_LINE - 300]} ... {text[-250:]}"
    return text


def warn(text: str) -> None:
    """Print a warning to standard error; it is lost if standard error is closed or broken."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"edgetrain: warning: {one_line(text)}", file=sys.stderr, flush=True)


class EdgetrainError(Exception):
    """Base class of all edgetrain errors.

    Args:
      message: shortened to one line of at most 2,000 characters.
    Attributes:
      exit_status: exit status of the command line.
    """

    exit_status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class UsageError(EdgetrainError):
    """An argument or option is wrong, or two of them contradict each other."""

    exit_status = 2


class BudgetError(EdgetrainError):
    """Training does not fit the budget.

    Attributes:
      min_budget_nbytes: arena bytes of the smallest plan.
    """

    exit_status = 3

    def __init__(self, message: str, min_budget_nbytes: int = 0) -> None:
        super().__init__(message)
        self.min_budget_nbytes = min_budget_nbytes


class InputFileError(EdgetrainError):
    """An input file cannot be used."""

    exit_status = 4


class ModelError(InputFileError):
    """The ONNX model is malformed or cannot be trained."""


class UnsupportedOpError(ModelError):
    """The model uses unsupported ops; the message lists all of them.

    Attributes:
      ops: ONNX names of the unsupported ops.
    """

    def __init__(self, message: str, ops: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ops = ops


class DataError(InputFileError):
    """A data file, or a sample in it, is malformed."""


class CheckpointError(InputFileError):
    """A checkpoint is damaged or belongs to another run."""


class ProgramError(InputFileError):
    """A Program file is damaged, of another version, or accesses memory outside its arena."""


class OutdatedError(ProgramError):
    """The Program is intact, but written by a version of edgetrain that this one cannot run.

    Attributes:
      what: the message without the advice.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what} Compile the model again, or convert a run with 'edgetrain migrate DIR'."
        )

    def of_run(self, directory: object) -> ProgramError:
        """The same error, with the command that converts the run."""
        import shlex  # only needed to migrate a run

        command = f"edgetrain migrate {shlex.quote(str(directory))}"
        return ProgramError(f"{directory}: {self.what} Convert the run: {command}")


class RunError(EdgetrainError):
    """Training cannot continue (too many non-finite steps, disk full). The last state is kept."""


class NotInstalledError(RunError):
    """A required package is not installed."""

    exit_status = 2


class ParityError(EdgetrainError):
    """The comparison with the reference failed."""


class Interrupted(Exception):  # noqa: N818 - not an error: what was finished is on disk
    """Ctrl-C, SIGTERM or SIGHUP. The state is on disk if the run has a directory.

    Attributes:
      signum: the first signal.
      exit_status: 128 + signum: 130, 143 or 129.
    """

    def __init__(self, message: str, signum: int = 2) -> None:
        super().__init__(message)
        self.signum, self.exit_status = signum, 128 + signum
