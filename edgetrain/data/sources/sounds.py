"""`sounds:DIR`: wav files with 8 to 32-bit integers or floats, one folder per class.

The model's input shape decides what it gets. [time] or [1, time]: the samples, -1 to 1, channels
averaged. [mels, frames] or [1, mels, frames]: log-mel features, that is power spectra of 25 ms Hann
windows every 10 ms (the FFT has the next power of two), summed with `mels` triangular filters from
20 Hz to half the sampling rate on the scale 2595 log10(1 + f / 700), then the natural logarithm of
at least 1e-6. Shorter sounds are padded with silence, of longer ones the middle is used; only that
part is read. Without a model, samples have the first file's length. All files must have the same
sampling rate. Features are computed once per process, by one thread, and cached in a file of at
most 256 MiB (files/kept.py).
"""

import math
from functools import lru_cache
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError

from ..files.wav import WavHead, wav_head, wav_samples
from ..source import Options
from .class_files import ClassFiles, Shape, open_classes
from .row_source import Splits

SUFFIXES = (".wav", ".wave")
_WINDOW, _HOP, _LOWEST, _FLOOR = 0.025, 0.010, 20.0, 1e-6
_CHUNK_VALUES = 2**21  # in the windows that are transformed together


class Sounds(ClassFiles):
    """Sounds, read on demand."""

    way = "log-mel features for two axes, samples for one; shorter sounds are padded with silence"

    def __init__(
        self, name: str, paths: list[Path], labels: list[int], names: list[str], split: str
    ) -> None:
        first = wav_head(paths[0])
        super().__init__(name, paths, labels, names, split, (1, first.count))
        self.rate = first.rate

    def fits(self, shape: Shape) -> bool:
        return 1 <= len(_wide(shape)) <= 2

    def slow(self, shape: Shape) -> bool:
        return len(_wide(shape)) == 2

    def look(self, path: Path) -> WavHead:
        head = wav_head(path)
        if head.rate != self.rate:
            raise DataError(
                f"{path}: {head.rate} samples per second; expected {self.rate} as in "
                f"{self.paths[0]}. Convert it."
            )
        return head

    def load(self, path: Path, shape: Shape) -> np.ndarray:
        head, wide = self.look(path), _wide(shape)
        if len(wide) < 2:
            return _middle(path, head, math.prod(shape)).reshape(shape)
        if head.rate <= 2 * _LOWEST:
            raise DataError(
                f"{path}: {head.rate} samples per second; log-mel features need more than "
                f"{2 * _LOWEST:g}. Use a model that takes raw samples."
            )
        samples = _middle(path, head, _spanned(head.rate, wide[1]))
        return log_mel(samples, head.rate, *wide).reshape(shape)


def open_sounds(where: str, options: Options) -> Splits:
    """Open DIR/<class>/*.wav, or the same in DIR/train and DIR/test.

    Raises:
      DataError: no classes or sounds.
    """
    return open_classes(where, SUFFIXES, Sounds)


def _wide(shape: Shape) -> Shape:
    """The shape without a leading axis of size 1."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def _middle(path: Path, head: WavHead, count: int) -> np.ndarray:
    """Like `fitted`, reading only the samples needed."""
    start = max(0, (head.count - count) // 2)
    return fitted(wav_samples(path, head, start, min(head.count, count)), count)


def fitted(samples: np.ndarray, count: int) -> np.ndarray:
    """Exactly `count` samples: pad shorter sounds with silence, take the middle of longer ones."""
    start = max(0, (len(samples) - count) // 2)
    part = samples[start : start + count]
    return np.pad(part, (0, count - len(part)))


def _lengths(rate: int) -> tuple[int, int]:
    """Samples per window, and between windows."""
    return max(2, round(rate * _WINDOW)), max(1, round(rate * _HOP))


def _spanned(rate: int, frames: int) -> int:
    """Samples covered by this many windows."""
    window, hop = _lengths(rate)
    return window + (frames - 1) * hop


def log_mel(samples: np.ndarray, rate: int, mels: int, frames: int) -> np.ndarray:
    """Log-mel features, float32 [mels, frames]; see the top of this file.

    Args:
      samples: float32, -1 to 1.
      rate: samples per second, above 40.
    """
    window, hop = _lengths(rate)
    size = 1 << (window - 1).bit_length()
    samples = fitted(samples, _spanned(rate, frames))
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    triangles, out = _triangles(rate, size, mels), np.empty((mels, frames), np.float32)
    step = max(1, _CHUNK_VALUES // size)
    for first in range(0, frames, step):
        starts = np.arange(first, min(frames, first + step))[:, None] * hop
        with np.errstate(all="ignore"):  # non-finite values are refused later
            pieces = samples[starts + np.arange(window)].astype(np.float64) * hann
            # Not `@`: BLAS threads would wait for each other longer than this takes.
            powers = np.abs(np.fft.rfft(pieces, size)) ** 2
            sums = np.einsum("fk,km->fm", powers, triangles)
            out[:, first : first + step] = np.log(np.maximum(sums, _FLOOR)).T
    return out


@lru_cache(maxsize=4)
def _triangles(rate: int, size: int, mels: int) -> np.ndarray:
    """Weights of the FFT frequencies in each mel band, [size / 2 + 1, mels]."""
    low, high = (2595.0 * math.log10(1.0 + f / 700.0) for f in (_LOWEST, rate / 2.0))
    edges = 700.0 * (10.0 ** (np.linspace(low, high, mels + 2) / 2595.0) - 1.0)
    frequencies = np.arange(size // 2 + 1)[:, None] * rate / size
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling))
