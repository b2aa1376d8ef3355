"""`sounds:DIR`: wav files, one folder per class, read by Python's own library.

What the model takes says what a sound becomes. A model of [time] or [1, time] gets the samples,
-1 to 1, of the first channels' mean; one of [mels, frames] or [1, mels, frames] gets log-mel
features: power spectra of windows of 25 ms (Hann) every 10 ms, a discrete Fourier transform of
the next power of two, `mels` triangles between 20 Hz and half the rate on the scale
2595 log10(1 + f / 700), and the natural logarithm of their sums, of 1e-6 at least. Sounds that are
shorter are followed by silence, longer ones are cut in the middle. Without a model samples are
those of the first file's length. All files have one rate.
"""

import math
import wave
from functools import lru_cache
from pathlib import Path

import numpy as np

from edgetrain.errors import DataError

from .arrays import Splits
from .class_files import ClassFiles, Shape, open_classes
from .source import Options

SUFFIXES = (".wav", ".wave")
_MOST_SAMPLES = 2**26
_WINDOW, _HOP, _LOWEST, _FLOOR = 0.025, 0.010, 20.0, 1e-6


class Sounds(ClassFiles):
    """Sounds, read when their samples are asked for."""

    way = "log-mel features of two axes, samples of one; silence behind shorter sounds"

    def __init__(
        self, name: str, paths: list[Path], labels: list[int], names: list[str], split: str
    ) -> None:
        found, self.rate = read_wav(paths[0])
        super().__init__(name, paths, labels, names, split, (1, len(found)))

    def fits(self, shape: Shape) -> bool:
        return 1 <= len(_wide(shape)) <= 2

    def load(self, path: Path, shape: Shape) -> np.ndarray:
        samples, rate = read_wav(path)
        if rate != self.rate:
            raise DataError(
                f"{path}: {rate} samples a second; expected {self.rate} as in {self.paths[0]}. "
                "Convert it."
            )
        wide = _wide(shape)
        if len(wide) < 2:
            return fitted(samples, math.prod(shape)).reshape(shape)
        return log_mel(samples, rate, *wide).reshape(shape)


def open_sounds(where: str, options: Options) -> Splits:
    """DIR/<class>/*.wav, or the same below DIR/train and DIR/test.

    Raises:
      DataError: no classes or sounds.
    """
    return open_classes(where, SUFFIXES, Sounds)


def _wide(shape: Shape) -> Shape:
    """Without a first axis of one channel."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def read_wav(path: Path) -> tuple[np.ndarray, int]:
    """The mean of a file's channels, float32 from -1 to 1, and its samples a second.

    Raises:
      DataError: it cannot be read, or holds no whole numbers of 8 to 32 bits.
    """
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            if file.getnframes() > _MOST_SAMPLES:
                raise DataError(
                    f"{path}: {file.getnframes()} samples; expected at most {_MOST_SAMPLES}. Cut "
                    "it."
                )
            raw = file.readframes(file.getnframes())
    except (wave.Error, EOFError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise DataError(
            f"{path}: not a wav file of whole numbers ({reason}). Convert it to PCM."
        ) from None
    whole = raw[: len(raw) // (width * channels) * width * channels]
    if not whole:
        raise DataError(f"{path}: has no samples. Record it again, or remove it.")
    if width == 1:
        values = np.frombuffer(whole, np.uint8).astype(np.float32) / 128.0 - 1.0
    elif width == 3:
        triples = np.frombuffer(whole, np.uint8).reshape(-1, 3)
        wide = np.zeros((len(triples), 4), np.uint8)
        wide[:, 1:] = triples
        values = wide.reshape(-1).view("<i4").astype(np.float32) / np.float32(2.0**31)
    else:
        values = np.frombuffer(whole, f"<i{width}").astype(np.float32)
        values /= np.float32(2.0 ** (8 * width - 1))
    return values.reshape(-1, channels).mean(axis=1, dtype=np.float32), rate


def fitted(samples: np.ndarray, count: int) -> np.ndarray:
    """So many samples: silence behind shorter ones, the middle of longer ones."""
    start = max(0, (len(samples) - count) // 2)
    part = samples[start : start + count]
    return np.pad(part, (0, count - len(part)))


def log_mel(samples: np.ndarray, rate: int, mels: int, frames: int) -> np.ndarray:
    """Log-mel features, float32 [mels, frames]; see the head of this file.

    Args:
      samples: float32, -1 to 1.
    """
    window, hop = max(2, round(rate * _WINDOW)), max(1, round(rate * _HOP))
    size = 1 << (window - 1).bit_length()
    samples = fitted(samples, window + (frames - 1) * hop)
    starts = np.arange(frames)[:, None] * hop
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    pieces = samples[starts + np.arange(window)].astype(np.float64) * hann
    power = np.abs(np.fft.rfft(pieces, size)) ** 2
    sums = power @ _triangles(rate, size, mels)
    return np.log(np.maximum(sums, _FLOOR)).T.astype(np.float32)


@lru_cache(maxsize=4)
def _triangles(rate: int, size: int, mels: int) -> np.ndarray:
    """Weights of the frequencies of a transform in each mel band, [size / 2 + 1, mels]."""
    low, high = (2595.0 * math.log10(1.0 + f / 700.0) for f in (_LOWEST, rate / 2.0))
    edges = 700.0 * (10.0 ** (np.linspace(low, high, mels + 2) / 2595.0) - 1.0)
    frequencies = np.arange(size // 2 + 1)[:, None] * rate / size
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling))
