"""Hostile data in users' formats: folders of pictures and sounds, text labels, sample weights.

`write_hostile(folder, seed)` depends on the seed only, as in data_files.
"""

import io
import os
import random
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.data import writers as w
from tests.data.test_class_files import write_wav

from .data_files import SHAPE, N, _harm_bytes, _harm_csv, _harm_zip

WORDS = ["cat", "dog", "eel", "fox"]
_NAMES: list[bytes] = [
    b"new\nline", b"esc\x1b[2Jape", b"\xff\xfe", b"\xed\xa0\x80", "\u2028".encode(), b" ", b"..a",
    "\U0001f600 é".encode(), b"train", b"test", b"x" * 230, b"a\tb", b"\x7f", b".hidden", b"-rf",
]  # fmt: skip
_LABELS = [
    "", "\n", "a\nb", "\x00", "\ud800", "x" * 300, "é\u200d", "\x1b[31m", "7", "nan", "\u2029", " ",
]  # fmt: skip
_WEIGHTS = [np.nan, np.inf, -1.0, 0.0, 3e38, 1e-45, -0.0]
_OPTIONS: list[list[str]] = [
    [], [], ["--augment", "flip,crop=2,noise=0.1"], ["--augment", "crop=2147483647"],
    ["--balance-classes"], ["--validation", "0.3"], ["--augment", "noise=1e30"],
]  # fmt: skip


def _folders(folder: Path, write: Callable[[Path, int], None], suffix: str) -> None:
    for k, word in enumerate(WORDS):
        (folder / word).mkdir(parents=True)
        for number in range(2):
            write(folder / word / f"{number}{suffix}", 2 * k + number)


def _pictures(folder: Path, rng: random.Random) -> str:
    suffix = rng.choice([".png", ".jpg", ".png", ".bmp", ".gif", ".tif", ".webp", ".ppm"])

    def write(path: Path, k: int) -> None:
        side = rng.choice([(1, 1), (64, 64), (9, 7), (1, 300)])
        mode = "RGB" if suffix == ".jpg" else rng.choice(["RGB", "L", "RGB", "1"])
        Image.effect_noise(side, 80).convert(mode).save(path)

    _folders(folder, write, suffix)
    return rng.choice(["dir", "images"])


def _sounds(folder: Path, rng: random.Random) -> str:
    def write(path: Path, k: int) -> None:
        noise = np.random.default_rng(k).uniform(-1, 1, (rng.choice([1, 40, 400]), 1 + k % 2))
        write_wav(path, noise, width=1 + k % 4)

    _folders(folder, write, ".wav")
    return rng.choice(["dir", "sounds"])


def _words_csv(folder: Path, rng: random.Random) -> str:
    x, y = w.samples(N, SHAPE, seed=rng.randrange(99))
    w.write_csv(folder / "a.csv", x.reshape(N, -1), [WORDS[k % 4] for k in y])
    return "csv"


def _words_npz(folder: Path, rng: random.Random) -> str:
    x, y = w.samples(N, SHAPE, seed=rng.randrange(99))
    arrays = {"x": x, "y": np.array(WORDS)[y % 4]}
    if rng.random() < 0.4:
        arrays |= {"w": np.linspace(0, 1, N).astype(rng.choice([np.float32, np.float64]))}
    if rng.random() < 0.5:
        arrays = {f"{k}_{s}": v for k, v in arrays.items() for s in ("train", "test")}
    np.savez(folder / "a.npz", **arrays)
    return "npz"


KINDS = [_pictures, _sounds, _pictures, _sounds, _words_csv, _words_npz]


def write_hostile(folder: Path, seed: int) -> tuple[str, list[str]]:
    """Write valid data, then damage one of its files or folders.

    Returns:
      The data specification, and options for `train`.
    """
    rng = random.Random(seed)
    make = KINDS[seed % len(KINDS)]
    kind = make(folder, rng)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = files[0] if rng.random() < 0.4 else rng.choice(files)
    if kind == "csv":
        rng.choice([_harm_csv, _harm_words, _harm_words, _harm_bytes])(path, rng)
    elif kind == "npz":
        rng.choice([_harm_zip, _harm_arrays, _harm_arrays, _harm_bytes])(path, rng)
    else:
        knowing = _harm_picture if make is _pictures else _harm_wav
        rng.choices([_harm_bytes, knowing, _harm_place], [3, 6, 3])[0](path, rng)
    where = folder if kind not in ("csv", "npz") else folder / f"a.{kind}"
    return f"{kind}:{where}", rng.choice(_OPTIONS)


def _harm_place(path: Path, rng: random.Random) -> None:
    """Replace, rename, remove or lock a file or its folder."""
    place, kind = path.parent, rng.randrange(9)
    if kind in (0, 1):
        name = os.fsencode(place.parent) + b"/" + rng.choice(_NAMES)
        os.rename(os.fsencode(place), name)
    elif kind == 2:
        for one in place.iterdir():
            one.unlink()
    elif kind == 3:
        (place.parent / "link").symlink_to(rng.choice(["/", "..", "link", "/dev", "/proc/self"]))
    elif kind == 4:
        place.chmod(0)
    else:
        path.unlink()
        if kind == 5:
            os.mkfifo(path)
        elif kind == 6:
            path.symlink_to(rng.choice(["/dev/zero", "/dev/random", "/nowhere", path.name, "/"]))
        elif kind == 7:
            here = os.getcwd()
            os.chdir(place)  # socket paths must be short
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
            os.chdir(here)
        else:
            path.mkdir()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, depth: int, colour: int, pixels: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = _chunk(b"IHDR", head) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _progressive(scans: int) -> bytes:
    """Return a jpeg that repeats its last scan."""
    out = io.BytesIO()
    Image.new("RGB", (4000, 4000)).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    at = data.rfind(b"\xff\xda")
    return data[:at] + data[at:-2] * scans + data[-2:]


def _harm_picture(path: Path, rng: random.Random) -> None:
    zeros = zlib.compress(bytes(2**20))
    makes: list[Callable[[], bytes]] = [
        lambda: _png(30_000, 30_000, 8, 2, zlib.compress(bytes(2**26))),
        lambda: _png(5_700, 5_700, 8, 2, zlib.compress(bytes(5_700 * 17_101), 1)),
        lambda: _png(2**31 - 1, 2**31 - 1, 8, 2, zeros),
        lambda: _png(2**25, 1, 8, 0, zlib.compress(bytes(2**25 + 1), 1)),
        lambda: _png(1, 2**20, 1, 0, zeros),
        lambda: _png(0, 0, 8, 2, zeros),
        lambda: _png(4, 4, 16, 0, zlib.compress(rng.randbytes(36))),
        lambda: _png(4, 4, rng.choice([3, 8, 16]), rng.randrange(8), zeros),
        lambda: path.read_bytes()[: rng.randrange(1, path.stat().st_size)],
        lambda: b"",
        lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) print\n",
        lambda: b"P3 9 9 255 " + b"1 " * rng.choice([5, 243]),
        lambda: b"P5 99999 99999 255 " + bytes(9),
        lambda: b"Pf 4 4 -1.0\n" + rng.randbytes(64),
        lambda: (
            b"BM" + struct.pack("<IIIIiiHHIIiiII", 99, 0, 54, 40, 2**30, -(2**30), 1, 24, *[0] * 6)
        ),
        lambda: _progressive(rng.choice([3, 400])),
        lambda: _tiff(rng),
    ]
    path.write_bytes(rng.choice(makes)())


def _tiff(rng: random.Random) -> bytes:
    """Return a TIFF in a mode other than 8-bit grey or RGB."""
    out = io.BytesIO()
    mode = rng.choice(["F", "I", "I;16", "CMYK", "LAB"])
    kinds = {"F": np.float32, "I": np.int32, "I;16": np.uint16}
    if mode in kinds:
        low = rng.choice([0, -5])
        values = np.full((4, 4), max(low, 0) if mode == "I;16" else low).astype(kinds[mode])
        Image.fromarray(values).save(out, "TIFF")
    else:
        Image.new(mode, (4, 4)).save(out, "TIFF")
    return out.getvalue()


def _wav(fields: dict[str, int], data: bytes, before: bytes = b"", claimed: int = -1) -> bytes:
    """Return a WAV file with these fields, valid or not."""
    usual = {"kind": 1, "channels": 1, "rate": 8000, "bits": 16} | fields
    form = struct.pack(
        "<HHIIHH", usual["kind"], usual["channels"], usual["rate"], 0, 0, usual["bits"]
    )
    size = len(data) if claimed < 0 else claimed
    parts = before + b"fmt " + struct.pack("<I", len(form)) + form
    parts += b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", 2**32 - 1) + b"WAVE" + parts


def _harm_wav(path: Path, rng: random.Random) -> None:
    floats = np.array([rng.choice([0.5, np.nan, np.inf, 3e38])] * 60, "<f4").tobytes()
    data = rng.randbytes(rng.choice([0, 1, 240]))
    field, values = rng.choice([
        ("rate", [0, 1, 40, 41, 2**20, 2**31, 2**32 - 1]),
        ("channels", [0, 1, 3, 1024, 65535]),
        ("bits", [0, 1, 7, 8, 12, 24, 33, 64, 65535]),
        ("kind", [0, 2, 6, 7, 0x55, 0xFFFE, 0xFFFF]),
    ])  # fmt: skip
    makes: list[Callable[[], bytes]] = [
        lambda: _wav({field: rng.choice(values)}, data),
        lambda: _wav({field: rng.choice(values)}, data),
        lambda: _wav({field: rng.choice(values)}, data, claimed=rng.choice([2**31, 2**32 - 1])),
        lambda: _wav({"kind": 3, "bits": rng.choice([16, 32, 64])}, floats),
        lambda: _wav({"bits": 24}, data),
        lambda: _wav({}, data, b"JUNK\0\0\0\0" * rng.choice([3, 200_000])),
        lambda: _wav({}, data, b"JUNK" + struct.pack("<I", rng.choice([7, 2**31, 2**32 - 1]))),
        lambda: path.read_bytes()[: rng.randrange(1, 60)],
        lambda: b"RIFF\0\0\0\0WAVE" + b"data\4\0\0\0\0\0\0\0",
        lambda: b"",
    ]
    path.write_bytes(rng.choice(makes)())
    if rng.random() < 0.1:
        os.truncate(path, rng.choice([2**31, 2**36]))  # sparse, takes no space


def _harm_words(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines()
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(lines))
        label = rng.choice(_LABELS).encode("utf-8", "surrogatepass")
        others = [b"caf\xe9", b"\xff", b"b" * 10**6, label, label]
        lines[at] = lines[at].rpartition(b",")[0] + b"," + rng.choice(others)
    path.write_bytes(b"\n".join(lines))


def _harm_arrays(path: Path, rng: random.Random) -> None:
    with np.load(path) as found:
        arrays = dict(found)
    key = rng.choice(sorted(arrays))
    if key[0] == "y":
        words = arrays[key].astype("<U300")
        words[rng.randrange(N)] = rng.choice(_LABELS)
        if rng.random() < 0.3:  # not a Unicode character
            words.view(np.uint32).reshape(N, -1)[rng.randrange(N), 0] = rng.choice([2**31, 0xD800])
        arrays[key] = words
    elif key[0] == "w":
        arrays[key][rng.randrange(N)] = rng.choice(_WEIGHTS)
        if rng.random() < 0.3:
            arrays[key] = np.ones((N, rng.choice([1, 2])))
    else:
        arrays[rng.choice(["w", "y", "w_test"])] = arrays.pop(key)
    np.savez(path, **arrays)
