"""Files that many tests read, written once per test run by the first worker that needs them."""

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
    """Path of the file `name`; `write` creates it if no worker has yet."""
    folder = Path(os.environ.get(FOLDER) or _own_folder().name)
    path, unfinished = folder / name, folder / f"{os.getpid()}-{name}"
    if not path.exists():
        write(unfinished)
        unfinished.replace(path)
    return path
