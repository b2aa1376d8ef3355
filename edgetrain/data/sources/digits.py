"""`digits`: 1797 handwritten digits, 8 x 8 pixels of 17 grey levels, part of the package.

1437 training and 360 test samples, stratified by class; the split never changes. Inputs (1, 8, 8),
0..16 scaled to 0..1, then normalised with the training pixels' mean 0.3049 and standard deviation
0.3759. A model with 64 inputs gets the pixels row by row.

Source: E. Alpaydin and C. Kaynak 1998, Optical Recognition of Handwritten Digits, UCI Machine
Learning Repository, https://doi.org/10.24432/C50P49 (CC BY 4.0); here its test part, as
distributed with scikit-learn. tools/make_digits.py writes the file.
"""

from pathlib import Path

import numpy as np

from edgetrain.errors import UsageError

from ..rows import FileRows
from ..source import Options, Scale
from .row_source import RowsSource, Splits

_FILE = Path(__file__).with_name("digits.bin")  # for each split: pixels, then classes
_SAMPLES, _PIXELS = {"train": 1437, "test": 360}, 64
_MEAN, _STD = 0.3049, 0.3759


def open_digits(where: str, options: Options) -> Splits:
    """Open the included digits.

    Raises:
      UsageError: `where` is not empty.
    """
    if where:
        raise UsageError(f"data 'digits:{where}': 'digits' takes no path. Write 'digits'.")

    def opened(split: str) -> RowsSource:
        count = _SAMPLES[split]
        first = 0 if split == "train" else _SAMPLES["train"] * (_PIXELS + 1)
        classes, kind = first + count * _PIXELS, np.dtype(np.uint8)
        rows = {
            "x": FileRows(_FILE, first, kind, (count, 1, 8, 8)),
            "y": FileRows(_FILE, classes, kind, (count,)),
        }
        scale = {"x": Scale.normalised(_MEAN, _STD, 16.0)}
        return RowsSource(
            "digits", rows, split=split, classes=10, scale=scale, limits={"y": 10}, flat=("x",)
        )

    return {"train": lambda: opened("train"), "test": lambda: opened("test")}
