"""The kinds of data for `--data`, as a table; it doesn't import numpy, because parsers list it."""

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of data.

    Attributes:
      file: module in sources/ with a function `open_...` of this name; imported when data is
        opened.
      path: what follows the colon, FILE or DIR; "": nothing.
      suffixes: suffixes of files that are probably of this kind.
      published: a published dataset.
    """

    file: str
    path: str
    suffixes: tuple[str, ...] = ()
    published: bool = False


KINDS: dict[str, Kind] = {
    "digits": Kind("digits", ""),
    "mnist": Kind("mnist", "DIR", published=True),
    "cifar10": Kind("cifar10", "DIR", published=True),
    "npz": Kind("npz", "FILE", (".npz",)),
    "npy": Kind("npy", "DIR"),
    "csv": Kind("csv_file", "FILE", (".csv", ".tsv")),
    "dir": Kind("folders", "DIR"),
    "images": Kind("pictures", "DIR"),
    "sounds": Kind("sounds", "DIR"),
}


def forms() -> str:
    """All forms of `--data`, such as "digits, npz:FILE": files, directories, published datasets."""
    rows = sorted(KINDS.items(), key=lambda row: (row[1].published, row[1].path == "DIR"))
    return ", ".join(f"{name}:{kind.path}" if kind.path else name for name, kind in rows)
