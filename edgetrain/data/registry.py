"""The list of data sources, and the one way to open any of them."""

from collections.abc import Callable, Mapping

import numpy as np

from edgetrain.errors import UsageError
from edgetrain.needs import check_needs

from .arrays import Splits, array_splits
from .cifar10 import open_cifar10
from .csv_file import open_csv
from .digits import open_digits
from .files import unreadable
from .folders import open_folders
from .mnist import open_mnist
from .npy import open_npy
from .npz import open_npz
from .source import Options, Source, Subset

# name of the source -> (what follows the colon, options) -> the splits it has
OPENERS: dict[str, Callable[[str, Options], Splits]] = {
    "digits": open_digits,
    "mnist": open_mnist,
    "cifar10": open_cifar10,
    "npz": open_npz,
    "npy": open_npy,
    "csv": open_csv,
    "dir": open_folders,
}


def open_data(
    spec: str | Source | tuple[np.ndarray, np.ndarray] | Mapping[str, np.ndarray],
    *,
    split: str = "train",
    test_fraction: float = 0.2,
    label: str | None = None,
    augment: bool = True,
    allow_nonfinite: bool = False,
) -> Source:
    """Open one split of a data set; samples are read when they are asked for.

    Args:
      spec: `digits`, `mnist:DIR`, `cifar10:DIR`, `npz:FILE`, `npy:DIR`, `npy:X.npy,Y.npy`,
        `csv:FILE`, `dir:DIR`; or (x, y); or arrays by name, as in an npz; or a Source.
      split: "train" or "test"; data without a test split is divided by a fixed shuffled order.
      test_fraction, label, augment, allow_nonfinite: as in `Options`.
    Raises:
      UsageError: no such kind of source, or split.
      DataError: what is there cannot be used.
    """
    if split not in ("train", "test"):
        raise UsageError(f"split {split!r}: expected 'train' or 'test'.")
    check_label(spec, label)
    if isinstance(spec, Source):
        return spec.for_split(split)
    options = Options(test_fraction, label, augment, allow_nonfinite)
    if not isinstance(spec, str):
        return _open(array_splits(spec), split, options)
    try:
        return _open(_splits_of_text(spec, options), split, options)
    except OSError as error:
        raise unreadable(spec, error) from error


def check_label(spec: object, label: str | None) -> None:
    """Only the columns of csv have names.

    Raises:
      UsageError: another kind of data with a label.
    """
    check_needs(["label"], {"label": label, "data": spec})


def _splits_of_text(spec: str, options: Options) -> Splits:
    name, _, where = spec.partition(":")
    if name not in OPENERS:
        raise UsageError(
            f"data {spec[:80]!r}: no source of this name; expected one of {', '.join(OPENERS)}, "
            "followed by a colon and a path, such as 'npz:train.npz'."
        )
    if not where and name != "digits":
        raise UsageError(f"data {spec!r}: expected a path, such as '{name}:PATH'.")
    return OPENERS[name](where, options)


def _open(splits: Splits, split: str, options: Options) -> Source:
    if "test" in splits:
        source = splits[split]()
    else:
        source = Subset(splits["train"](), split, options.test_fraction)
    source.allow_nonfinite = options.allow_nonfinite
    source.reopen = lambda other: _open(splits, other, options)
    return source
