"""argparse without the modules it imports, which take a megabyte on a device."""

import argparse
import contextlib
import os
from collections.abc import Iterator


def width() -> int:
    """Terminal width; argparse would import shutil, which loads three compression libraries."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        columns = 80
    return columns - 2


def formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's formatter with a fixed width."""
    return argparse.HelpFormatter(prog, width=width())


@contextlib.contextmanager
def plain_words() -> Iterator[None]:
    """Switch off argparse's translations, which load half a megabyte of locale names."""
    translate = vars(argparse).get("_")
    vars(argparse)["_"] = str
    try:
        yield
    finally:
        vars(argparse)["_"] = translate
