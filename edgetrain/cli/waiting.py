"""Lines for people who wait: what is being done, from the first second, with or without a terminal.

They go to standard error; a command that answers at once prints none, and EDGETRAIN_PROGRESS=0
silences all.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..units.stages import current, stage

FIRST, NEXT, SILENT = 0.4, 1.0, 2.5  # seconds: before the first line, between others, at most


@contextmanager
def waited(text: str) -> Iterator[None]:
    """Within the context this and the stages inside it are told."""
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(over,), daemon=True)
    with stage(text):
        if os.environ.get("EDGETRAIN_PROGRESS") != "0":
            with contextlib.suppress(RuntimeError):  # no memory for a thread
                teller.start()
        try:
            yield
        finally:
            over.set()
            if teller.ident is not None:
                teller.join()


def _tell(over: threading.Event) -> None:
    start = time.monotonic()
    told, said = start + FIRST - SILENT, ""
    while not over.wait(0.1):
        now, text = time.monotonic(), current()
        if text is None or now - told < (SILENT if text == said or not said else NEXT):
            continue
        told, said = now, text
        try:
            print(f"{now - start:4.0f} s  {text}", file=sys.stderr, flush=True)
        except (OSError, ValueError):  # a terminal that hung up
            return
