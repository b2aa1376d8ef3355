"""wav files, untrusted: what their heads say, held against the bytes that are there.

Of Python's own library only `struct` is used: its `wave` knows no floats, and reads the length
that a head claims before it looks at what the file has.

Source: Microsoft 1991, Multimedia Programming Interface and Data Specifications 1.0 (RIFF).
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from edgetrain.errors import DataError
from edgetrain.units.files import open_regular

from .reading import file_size

_MOST_PARTS = 4096  # of a file; programs that record write less than ten
_MOST_SAMPLES, _MOST_CHANNELS, _MOST_RATE = 2**26, 1024, 2**20
_CHUNK_VALUES = 2**18
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_NAMES = {2: "ADPCM", 6: "A-law", 7: "mu-law", 0x55: "MP3"}


@dataclass(frozen=True)
class WavHead:
    """What a file holds.

    Attributes:
      rate: samples a second.
      floats: numbers are floats, else whole.
      width: bytes of a number.
      start: bytes before the first.
      count: samples, each of `channels` numbers; those that the file has, whatever it claims.
    """

    rate: int
    channels: int
    floats: bool
    width: int
    start: int
    count: int


def wav_head(path: Path) -> WavHead:
    """The head of a file.

    Raises:
      DataError: no wav file of whole numbers of 8 to 32 bits or floats of 32 or 64, or no
        samples.
    """
    nbytes = file_size(path, "a wav file")
    with open_regular(path) as file:
        first = file.read(12)
        if first[:4] != b"RIFF" or first[8:] != b"WAVE":
            raise _strange(path, "it does not begin with RIFF and WAVE")
        form, start, length = _parts(path, file, nbytes)
    channels, rate, floats, width = _form(path, form)
    count = min(length, nbytes - start) // (width * channels)
    if not count:
        raise DataError(f"{path}: has no samples. Record it again, or remove it.")
    if count > _MOST_SAMPLES:
        raise DataError(f"{path}: {count} samples; expected at most {_MOST_SAMPLES}. Cut it.")
    return WavHead(rate, channels, floats, width, start, count)


def _parts(path: Path, file: IO[bytes], nbytes: int) -> tuple[bytes, int, int]:
    """The format part; where the data begins, and how many bytes it claims."""
    form, at = b"", 12
    for _ in range(_MOST_PARTS):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:
            break
        kind, size = head[:4], int.from_bytes(head[4:], "little")
        if kind == b"data" and form:
            return form, at + 8, size
        if kind == b"fmt ":
            form = file.read(min(size, 40))
        at += 8 + size + size % 2
        if at > nbytes:
            break
    raise _strange(path, "it has no samples" if form else "it does not say how samples are stored")


def _form(path: Path, form: bytes) -> tuple[int, int, bool, int]:
    """(channels, rate, floats, width) of a format part."""
    if len(form) < 16:
        raise _strange(path, "its head is cut short")
    kind, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if kind == _EXTENSIBLE and len(form) >= 26:
        kind = int.from_bytes(form[24:26], "little")
    width = -(-bits // 8)
    if kind not in (_PCM, _FLOAT):
        raise _strange(path, f"its numbers are {_NAMES.get(kind, f'of kind {kind}')}")
    if width not in ((4, 8) if kind == _FLOAT else (1, 2, 3, 4)):
        raise _strange(path, f"its {'floats' if kind == _FLOAT else 'numbers'} have {bits} bits")
    if not 1 <= channels <= _MOST_CHANNELS or not 1 <= rate <= _MOST_RATE:
        raise DataError(
            f"{path}: {channels} channels, {rate} samples a second; expected 1 to "
            f"{_MOST_CHANNELS} and 1 to {_MOST_RATE}. Convert it."
        )
    # Numbers of 24 bits may lie in 4 bytes each, at their upper end.
    if frame == 4 * channels and width == 3:
        width = 4
    if frame not in (0, width * channels):
        raise _strange(path, f"{channels} numbers of {bits} bits take {frame} bytes")
    return channels, rate, kind == _FLOAT, width


def wav_samples(path: Path, head: WavHead, start: int = 0, count: int | None = None) -> np.ndarray:
    """The mean of the channels of some of the samples, float32, -1 to 1 where numbers are whole.

    Args:
      start: of the first; count: how many, None for all behind it.
    Raises:
      DataError: the file was changed.
    """
    out = np.empty(head.count - start if count is None else count, np.float32)
    frame, step = head.width * head.channels, max(1, _CHUNK_VALUES // head.channels)
    with open_regular(path) as file:
        file.seek(head.start + start * frame)
        for at in range(0, len(out), step):
            part = out[at : at + step]
            raw = file.read(len(part) * frame)
            if len(raw) != len(part) * frame:
                raise DataError(f"{path}: was changed since it was opened. Start again.")
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
                values = _decoded(raw, head).reshape(-1, head.channels)
                part[...] = values.mean(axis=1, dtype=np.float32)
    return out


def _decoded(raw: bytes, head: WavHead) -> np.ndarray:
    """Numbers as float32."""
    if head.floats:
        return np.frombuffer(raw, f"<f{head.width}").astype(np.float32)
    if head.width == 1:
        return np.frombuffer(raw, np.uint8).astype(np.float32) / 128.0 - 1.0
    if head.width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        return wide.reshape(-1).view("<i4").astype(np.float32) / np.float32(2.0**31)
    values = np.frombuffer(raw, f"<i{head.width}").astype(np.float32)
    return values / np.float32(2.0 ** (8 * head.width - 1))


def _strange(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path}: not a wav file of whole numbers or floats ({reason}). Convert it to PCM."
    )
