"""Files that many tests read, written once in a run of tests, by whichever worker comes first."""

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = "EDGETRAIN_TESTS_KEPT"  # set in tests/conftest.py, for all workers


@functools.cache
def _own_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory()


def kept(name: str, write: Callable[[Path], object]) -> Path:
    """The file `name`; `write` makes it if no worker has."""
    folder = Path(os.environ.get(FOLDER) or _own_folder().name)
    path, unfinished = folder / name, folder / f"{os.getpid()}-{name}"
    if not path.exists():
        write(unfinished)
        unfinished.replace(path)
    return path
