"""Opens data of the kinds in kinds.py."""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from edgetrain.errors import UsageError
from edgetrain.units.hints import did_you_mean
from edgetrain.units.options import check_needs
from edgetrain.units.public import public

from .files.reading import unreadable
from .kinds import KINDS, forms
from .source import Options, Source
from .sources.row_source import SPLITS, Splits


def _opener(module: str) -> Callable[[str, Options], Splits]:
    """The `open_...` function of a file in sources/, imported when called."""

    def opened(where: str, options: Options) -> Splits:
        result = importlib.import_module(f".sources.{module}", __package__)
        opened: Splits = getattr(result, f"open_{module.removesuffix('_file')}")(where, options)
        return opened

    return opened


# name of the source -> function (what follows the colon, options) -> its splits
OPENERS = {name: _opener(kind.file) for name, kind in KINDS.items()}


@public
def open_data(
    spec: str | Source | tuple[np.ndarray, np.ndarray] | Mapping[str, np.ndarray],
    *,
    split: str = "train",
    test_fraction: float = 0.0,
    label: str | None = None,
    augment: bool | str = True,
    allow_nonfinite: bool = False,
    target: str | None = None,
) -> Source:
    """Open one split of a dataset; samples are read on demand.

    Args:
      spec: `digits`, `mnist:DIR`, `cifar10:DIR`, `npz:FILE`, `npy:DIR`, `npy:X.npy,Y.npy`,
        `csv:FILE`, `dir:DIR`, `images:DIR`, `sounds:DIR`; or (x, y); or arrays by name, as in
        an npz; or a Source.
      split: "train" or "test".
      test_fraction: if there is no test split, hold out this fraction; 0: none.
      label, augment, allow_nonfinite, target: as in `Options`.
    Raises:
      UsageError: no such kind of source, or split.
      DataError: the data cannot be used, or has no such split.
    """
    if split not in ("train", "test"):
        raise UsageError(f"split {split!r}: expected 'train' or 'test'.")
    check_label(spec, label)
    if isinstance(spec, Source):
        return spec.for_split(split)
    options = Options(test_fraction, label, augment, allow_nonfinite, target)
    return _opened(spec, options, lambda splits: _open(splits, split, options))


def open_evaluation(
    spec: Any, *, split: str = "test", label: str | None = None, target: str | None = None
) -> Source:
    """Open data for evaluation, without dropping samples.

    A Source is used as it is. Other data: `split` if it has a test split, or else all of it.

    Raises:
      UsageError, DataError: as in `open_data`.
    """
    if isinstance(spec, Source):
        return spec
    options = Options(label=label, target=target)
    return _opened(
        spec, options, lambda splits: _open(splits, split if "test" in splits else "train", options)
    )


def numbered_as(source: Source, names: Sequence[str] | None) -> Source:
    """A source with its classes numbered by `names`; unchanged if its classes have no names.

    Raises:
      DataError: a class is not one of them.
    """
    if names is None or source.labels is None or source.labels == tuple(names):
        return source
    from .sources.labels import Renumbered

    return Renumbered(source, names)


def _opened(spec: Any, options: Options, choose: Callable[[Splits], Source]) -> Source:
    if isinstance(spec, PathLike):
        raise UsageError(
            f"data {str(spec)[:80]!r}: a path; expected a string with its kind, such as 'npz:FILE'."
            f"{_guess(str(spec))}"
        )
    if not isinstance(spec, str):
        from .sources.arrays import array_splits

        return choose(array_splits(spec, options))
    try:
        return choose(_splits_of_text(spec, options))
    except OSError as error:
        raise unreadable(spec, error) from error


def check_label(spec: object, label: str | None) -> None:
    """Refuse a label for anything but csv.

    Raises:
      UsageError: other data with a label.
    """
    check_needs(["label"], {"label": label, "data": spec})


def _splits_of_text(spec: str, options: Options) -> Splits:
    name, _, where = spec.partition(":")
    if name not in OPENERS:
        raise UsageError(
            f"data {spec[:80]!r}: unknown kind of data; expected {forms()}, such as "
            f"'npz:train.npz'.{_guess(spec)}"
        )
    if not where and KINDS[name].path:
        raise UsageError(f"data {spec!r}: expected a path, such as '{name}:PATH'.")
    # The shell doesn't expand ~ after a colon.
    where = ",".join(map(os.path.expanduser, where.split(",")))
    return OPENERS[name](where, options)


def _guess(path: str) -> str:
    """A suggestion for a path without a kind, such as " Did you mean npz:FILE?"."""
    name, colon, rest = path.partition(":")
    if rest.startswith("//"):
        return " Download the data first: URLs are not supported."
    near = did_you_mean(name, OPENERS)
    if colon and near:
        return f"{near[:-1]}:{rest[:80]}?"
    where = rest or path
    suffix = os.path.splitext(where)[1].lower()
    kind = next((name for name, kind in KINDS.items() if suffix in kind.suffixes), None)
    if suffix in (".onnx", ".edge"):
        return " It is a model; name the data first, such as digits."
    kind = "dir" if os.path.isdir(where) else kind
    return f" Did you mean {kind}:{where[:80]}?" if kind else near


def _open(splits: Splits, split: str, options: Options) -> Source:
    whole = "test" not in splits
    source = splits["train" if whole else split]()
    if options.target is not None:
        from .augment import Mirrored

        source = Mirrored(source, options.target)
    if isinstance(options.augment, str):
        from .augment import Augmentation, Augmented

        source = Augmented(source, Augmentation.parse(options.augment))
    if whole and options.test_fraction != 0:
        from .order.holdout import Subset

        source = Subset(source, split, options.test_fraction)
        source.splits = SPLITS
    else:
        source.splits = tuple(splits)
    source.allow_nonfinite = options.allow_nonfinite
    source.reopen = lambda other: _open(splits, other, options)
    return source.for_split(split)
