"""argparse without what it loads besides: on a device that is a megabyte."""

import argparse
import contextlib
import os
from collections.abc import Iterator


def width() -> int:
    """Columns of help; argparse would ask shutil, which loads three compression libraries."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        columns = 80
    return columns - 2


def formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's own, told its width."""
    return argparse.HelpFormatter(prog, width=width())


@contextlib.contextmanager
def plain_words() -> Iterator[None]:
    """Without translations, which argparse looks for in half a megabyte of names of locales."""
    translate = vars(argparse).get("_")
    vars(argparse)["_"] = str
    try:
        yield
    finally:
        vars(argparse)["_"] = translate
