"""`cifar10:DIR`: the binary version of CIFAR-10, DIR or DIR/cifar-10-batches-bin.

Inputs (3, 32, 32), 0..255 scaled to 0..1 and normalised per channel. Training pads by 4 black
pixels, crops 32 x 32 at random and flips half of the images; each choice depends only on (seed,
epoch, index).

Source: A. Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html (binary version).
"""

from functools import partial
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError

from ..files.reading import directory, file_size
from ..order.hashing import key_of, random_bits
from ..rows import FileRows, JoinedRows
from ..source import Options, Scale
from .row_source import RowsSource, Splits

_FILES = {"train": [f"data_batch_{k}.bin" for k in range(1, 6)], "test": ["test_batch.bin"]}
_MEAN = np.array([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
_STD = np.array([0.2470, 0.2435, 0.2616]).reshape(3, 1, 1)
_SIDE, _PAD = 32, 4
_RECORD_NBYTES = 1 + 3 * _SIDE * _SIDE
_PURPOSE = 0x63726F70  # makes these bits independent of the order


class Cifar10(RowsSource):
    """Records of one label byte and 3072 pixel bytes."""

    def __init__(self, folder: Path, split: str, augment: bool) -> None:
        records = JoinedRows([_records(folder / name) for name in _FILES[split]])
        scale = {"x": Scale.normalised(_MEAN, _STD, 255.0)}
        super().__init__(
            f"cifar10:{folder}",
            {"x": records, "y": records},
            split=split,
            classes=10,
            limits={"y": 10},
            scale=scale,
            shapes={"x": (3, _SIDE, _SIDE), "y": ()},
        )
        self._records, self._augment = records, augment

    def read(
        self, names: tuple[str, ...], indices: np.ndarray, key: tuple[int, int], train: bool
    ) -> dict[str, np.ndarray]:
        records = self._records.take(indices)
        images = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
        if train and self._augment and "x" in names:
            images = crop_and_flip(images, random_bits(key_of(*key, _PURPOSE), indices), _PAD)
        result = {"x": images, "y": records[:, 0]}
        return {name: result[name] for name in names}


def open_cifar10(where: str, options: Options) -> Splits:
    """Open data_batch_1.bin .. data_batch_5.bin and test_batch.bin.

    Raises:
      DataError: a file is missing, empty or not a whole number of records.
    """
    folder = directory(where, "a directory with data_batch_1.bin .. 5 and test_batch.bin")
    inner = folder / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else folder
    return {split: partial(Cifar10, folder, split, options.augment is True) for split in _FILES}


def crop_and_flip(images: np.ndarray, bits: np.ndarray, pad: int) -> np.ndarray:
    """Shift each image by -pad..pad in both directions, filling with zeros; mirror half of them.

    Args:
      images: [k, channels, height, width].
      bits: u64 [k], random.
    """
    k, channels, height, width = images.shape
    room = np.zeros((k, channels, height + 2 * pad, width + 2 * pad), images.dtype)
    room[:, :, pad : pad + height, pad : pad + width] = images
    places = 2 * pad + 1
    tops, lefts = (bits >> np.uint64(8)) % places, (bits >> np.uint64(32)) % places
    out = np.empty_like(images)
    for row, (bit, top, left) in enumerate(
        zip((bits & np.uint64(1)).tolist(), tops.tolist(), lefts.tolist(), strict=True)
    ):
        window = room[row, :, top : top + height, left : left + width]
        out[row] = window[:, :, ::-1] if bit else window
    return out


def _records(path: Path) -> FileRows:
    size = file_size(path, "a CIFAR-10 batch in the binary version")
    if not size or size % _RECORD_NBYTES:
        raise DataError(
            f"{path}: {size} bytes; expected a multiple of {_RECORD_NBYTES} above 0. "
            "Download the binary version again."
        )
    return FileRows(path, 0, np.dtype(np.uint8), (size // _RECORD_NBYTES, _RECORD_NBYTES))
