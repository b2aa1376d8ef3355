"""Every error that edgetrain raises on purpose, and the exit status of each.

A message names the object, what was found, what was expected and the next move. Anything
else that escapes is a bug of ours.
"""

import contextlib
import re
import sys

_LONG_WORD, _LONG_LINE = 600, 1900  # characters; what a file holds may have any number


def printable(text: str, kept: str = "") -> str:
    """A text that does nothing to what shows it: a terminal, a page, a comment in C.

    Controls, marks of direction and other characters that are not printable become escapes, such
    as `\\x1b` and `\\u202e`; names come from files that anybody may have written.

    Args:
      kept: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def one_line(text: str) -> str:
    """A message as one line of moderate length that does nothing to a terminal."""
    if not text.isprintable():
        text = printable(re.sub(r"\s*\n\s*", " ", text))
    if len(text) > _LONG_WORD:
        text = re.sub(rf"(\S{{{_LONG_WORD - 50}}})\S{{50,}}", r"\1...", text)
    if len(text) > _LONG_LINE:
        text = f"{text[: _LONG_LINE - 300]} ... {text[-250:]}"
    return text


def warn(text: str) -> None:
    """A line of warning on standard error; lost where that is closed, full or a broken pipe."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"edgetrain: warning: {one_line(text)}", file=sys.stderr, flush=True)


class EdgetrainError(Exception):
    """Base of all; `exit_status` is what the command line returns for it.

    Args:
      message: made one line of at most 2,000 characters.
    """

    exit_status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class UsageError(EdgetrainError):
    """An argument or option is wrong, or two of them contradict each other."""

    exit_status = 2


class BudgetError(EdgetrainError):
    """No plan of the frontier fits the budget.

    Attributes:
      min_budget_nbytes: arena bytes of the smallest plan.
    """

    exit_status = 3

    def __init__(self, message: str, min_budget_nbytes: int = 0) -> None:
        super().__init__(message)
        self.min_budget_nbytes = min_budget_nbytes


class InputFileError(EdgetrainError):
    """A file that was handed in cannot be used as it is."""

    exit_status = 4


class ModelError(InputFileError):
    """The ONNX model is malformed, too large to be true, or not trainable here."""


class UnsupportedOpError(ModelError):
    """The model uses ops that edgetrain does not have; all of them are listed.

    Attributes:
      ops: their ONNX names, where the model has them.
    """

    def __init__(self, message: str, ops: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ops = ops


class DataError(InputFileError):
    """A data file or a sample in it is malformed."""


class CheckpointError(InputFileError):
    """A checkpoint is damaged or belongs to another run."""


class ProgramError(InputFileError):
    """A Program file is damaged, of another version, or reaches outside its arena."""


class OutdatedError(ProgramError):
    """A Program that is whole, but that this build of edgetrain cannot run as it is.

    Attributes:
      what: the object, what was found and what was expected, without the next move.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what} Compile the model again; a run goes on after 'edgetrain migrate DIR'."
        )

    def of_run(self, directory: object) -> ProgramError:
        """The same of the Program in a run's directory."""
        import shlex  # only where a run has to be migrated

        command = f"edgetrain migrate {shlex.quote(str(directory))}"
        return ProgramError(f"{directory}: {self.what} Bring it along: {command}")


class RunError(EdgetrainError):
    """Training cannot go on (too many non-finite steps, disk full); the last state is kept."""


class NotInstalledError(RunError):
    """Something that a package would bring is not installed."""

    exit_status = 2


class ParityError(EdgetrainError):
    """The comparison with the reference failed."""


class Interrupted(Exception):  # noqa: N818 - not an error: what was finished is on disk
    """Ctrl-C, SIGTERM or SIGHUP; the state is on disk where a directory was given.

    Attributes:
      signum: of the first signal; exit_status: 128 + signum: 130, 143, 129.
    """

    def __init__(self, message: str, signum: int = 2) -> None:
        super().__init__(message)
        self.signum, self.exit_status = signum, 128 + signum
