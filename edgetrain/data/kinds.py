"""The kinds of data that `--data` takes, a row each; no arrays, for a parser lists them."""

from typing import NamedTuple


class Kind(NamedTuple):
    """A source of data.

    Attributes:
      file: in sources/, with a function `open_...` of its name; imported when the data is opened.
      path: what follows the colon, FILE or DIR; "": nothing.
      suffixes: of files that are probably of this kind.
      published: a dataset that others publish.
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
    """What may be given, such as "digits, npz:FILE": files, directories, published datasets."""
    rows = sorted(KINDS.items(), key=lambda row: (row[1].published, row[1].path == "DIR"))
    return ", ".join(f"{name}:{kind.path}" if kind.path else name for name, kind in rows)
