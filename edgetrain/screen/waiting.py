"""Shows waiting users the current task, with or without a terminal.

Lines go to standard error. A fast command prints none, and EDGETRAIN_PROGRESS=0 silences all.
"""

import os
import sys
import time
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Iterator
from contextlib import contextmanager

from ..units.phases import current, phase

FIRST, NEXT, SILENT = 0.4, 1.0, 2.5  # seconds: before the first line, between others, at most


@contextmanager
def waited(text: str, told: bool | None = None) -> Iterator[None]:
    """Within the context, print this text and the phases inside it.

    Args:
      told: whether to print; None: yes, unless EDGETRAIN_PROGRESS is 0.
    """
    told = os.environ.get("EDGETRAIN_PROGRESS") != "0" if told is None else told
    going_on, telling = allocate_lock(), allocate_lock()
    going_on.acquire()
    with phase(text):
        if told:
            telling.acquire()
            try:
                start_new_thread(_teller, (going_on, telling))
            except RuntimeError:  # no memory for a thread
                telling.release()
        try:
            yield
        finally:
            going_on.release()
            telling.acquire()


def _teller(going_on: LockType, telling: LockType) -> None:
    try:
        _tell(going_on)
    finally:
        telling.release()


def _tell(going_on: LockType) -> None:
    start = time.monotonic()
    told, said = start + FIRST - SILENT, ""
    while not going_on.acquire(timeout=0.1):
        now, text = time.monotonic(), current()
        if text is None or now - told < (SILENT if text == said or not said else NEXT):
            continue
        told, said = now, text
        print(f"{now - start:4.0f} s  {text}", file=sys.stderr, flush=True)
