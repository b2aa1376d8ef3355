"""Reads untrusted wav files; headers are checked against the file's size.

Python's `wave` module is not used: it does not support floats, and trusts the length in the
header.

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

_MOST_PARTS = 4096  # per file; recording programs write fewer than ten
_MOST_SAMPLES, _MOST_CHANNELS, _MOST_RATE = 2**26, 1024, 2**20
_CHUNK_VALUES = 2**18
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_NAMES = {2: "ADPCM", 6: "A-law", 7: "mu-law", 0x55: "MP3"}


@dataclass(frozen=True)
class WavHead:
    """The header of a wav file.

    Attributes:
      rate: samples per second.
      floats: values are floats, otherwise integers.
      width: bytes per value.
      start: offset of the data in bytes.
      count: samples of `channels` values that are really in the file.
    """

    rate: int
    channels: int
    floats: bool
    width: int
    start: int
    count: int


def wav_head(path: Path) -> WavHead:
    """Read the header of a wav file.

    Raises:
      DataError: not a wav file of 8 to 32-bit integers or 32 or 64-bit floats, or no samples.
    """
    nbytes = file_size(path, "a wav file")
    with open_regular(path) as file:
        first = file.read(12)
        if first[:4] != b"RIFF" or first[8:] != b"WAVE":
            raise _strange(path, "it does not start with RIFF and WAVE")
        form, start, length = _parts(path, file, nbytes)
    channels, rate, floats, width = _form(path, form)
    count = min(length, nbytes - start) // (width * channels)
    if not count:
        raise DataError(f"{path}: contains no samples. Record it again, or remove it.")
    if count > _MOST_SAMPLES:
        raise DataError(f"{path}: {count} samples; expected at most {_MOST_SAMPLES}. Shorten it.")
    return WavHead(rate, channels, floats, width, start, count)


def _parts(path: Path, file: IO[bytes], nbytes: int) -> tuple[bytes, int, int]:
    """The format chunk, and offset and claimed size of the data."""
    form, offset = b"", 12
    for _ in range(_MOST_PARTS):
        file.seek(offset)
        head = file.read(8)
        if len(head) < 8:
            break
        kind, size = head[:4], int.from_bytes(head[4:], "little")
        if kind == b"data" and form:
            return form, offset + 8, size
        if kind == b"fmt ":
            form = file.read(min(size, 40))
        offset += 8 + size + size % 2
        if offset > nbytes:
            break
    raise _strange(path, "no samples" if form else "no format chunk")


def _form(path: Path, form: bytes) -> tuple[int, int, bool, int]:
    """(channels, rate, floats, width) of a format chunk."""
    if len(form) < 16:
        raise _strange(path, "its header is truncated")
    kind, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if kind == _EXTENSIBLE and len(form) >= 26:
        kind = int.from_bytes(form[24:26], "little")
    width = -(-bits // 8)
    if kind not in (_PCM, _FLOAT):
        raise _strange(path, f"its values are {_NAMES.get(kind, f'of format {kind}')}")
    if width not in ((4, 8) if kind == _FLOAT else (1, 2, 3, 4)):
        raise _strange(path, f"its {'floats' if kind == _FLOAT else 'integers'} have {bits} bits")
    if not 1 <= channels <= _MOST_CHANNELS or not 1 <= rate <= _MOST_RATE:
        raise DataError(
            f"{path}: {channels} channels, {rate} samples per second; expected 1 to "
            f"{_MOST_CHANNELS} and 1 to {_MOST_RATE}. Convert it."
        )
    # 24-bit numbers may be stored in the upper end of 4 bytes each.
    if frame == 4 * channels and width == 3:
        width = 4
    if frame not in (0, width * channels):
        raise _strange(path, f"{frame} bytes for {channels} values of {bits} bits")
    return channels, rate, kind == _FLOAT, width


def wav_samples(path: Path, head: WavHead, start: int = 0, count: int | None = None) -> np.ndarray:
    """Samples as float32, channels averaged; integers are scaled to -1 .. 1.

    Args:
      start: first sample.
      count: number of samples; None: all that follow.
    Raises:
      DataError: the file was changed.
    """
    out = np.empty(head.count - start if count is None else count, np.float32)
    frame, step = head.width * head.channels, max(1, _CHUNK_VALUES // head.channels)
    with open_regular(path) as file:
        file.seek(head.start + start * frame)
        for begin in range(0, len(out), step):
            part = out[begin : begin + step]
            raw = file.read(len(part) * frame)
            if len(raw) != len(part) * frame:
                raise DataError(f"{path}: changed since it was opened. Start again.")
            with np.errstate(over="ignore", invalid="ignore"):  # non-finite ones are refused later
                values = _decoded(raw, head).reshape(-1, head.channels)
                part[...] = values.mean(axis=1, dtype=np.float32)
    return out


def _decoded(raw: bytes, head: WavHead) -> np.ndarray:
    """Values as float32."""
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
    return DataError(f"{path}: not a PCM or float wav file ({reason}). Convert it to PCM.")
