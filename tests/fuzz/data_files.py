"""Hostile data files of every format: valid files, damaged at random or in format-specific ways.

`write_hostile(folder, seed)` depends on the seed only; it returns the data specification.
"""

import gzip
import io
import os
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.data import writers as w

N, SHAPE = 40, (4, 4)
_STRANGE = [
    0,
    1,
    2,
    127,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**63,
    2**64 - 1,
]
_DESCR = [
    "<f4",
    ">f8",
    "<f2",
    "|u1",
    "|b1",
    "<i8",
    "<c8",
    "|O",
    "<U5",
    "<M8[s]",
    "V0",
    "<f16",
    "??",
]
_SHAPES = [
    "()", "(0,)", "(40,)", "(40, 4, 4)", "(40, 16)", "(4, 40, 4)", "(1, 640)", "(640,)", "(-40, 4)",
    "(40, 4, 4, 0)", "(40, 1099511627776)", "(True, 4)", "(40.0,)", "[40]", "(" * 500, "40",
    "(4294967296, 4294967296)", "(40,) + (4, 4)", "(40, " + "1, " * 60 + "16)", "None",
]  # fmt: skip
_CELLS = [
    "", "nan", "-inf", "1e400", "1e-400", "0x10", "1_000", "10", "-1", "0.5", "2147483648",
    "9" * 400, "\x00", '"1"', "é", "1 2", "+", "e", "1;2", "'1'", "\ufeff1", "١",
]  # fmt: skip


def _npz(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    np.savez(folder / "a.npz", x=x, y=y)
    return f"npz:{folder}/a.npz"


def _npz_compressed(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    np.savez_compressed(folder / "a.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    return f"npz:{folder}/a.npz"


def _npy(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    np.save(folder / "x.npy", np.asfortranarray(x) if y[0] % 2 else x)
    np.save(folder / "y.npy", y)
    return f"npy:{folder}"


def _csv(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    w.write_csv(folder / "a.csv", x.reshape(N, -1), y, header=bool(y[0] % 2))
    return f"csv:{folder}/a.csv"


def _folders(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    w.write_folders(folder, x, y)
    return f"dir:{folder}"


def _mnist(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    w.write_mnist(folder, n=N, shape=SHAPE)
    return f"mnist:{folder}"


def _mnist_gz(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    w.write_mnist(folder, n=N, shape=SHAPE, gz=True)
    return f"mnist:{folder}"


def _cifar10(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    w.write_cifar10(folder)
    return f"cifar10:{folder}"


FORMATS = [_npz, _npz_compressed, _npy, _csv, _folders, _mnist, _mnist_gz, _cifar10]


def write_hostile(folder: Path, seed: int) -> str:
    """Write valid data, then damage one of its files once or several times."""
    rng = random.Random(seed)
    x, y = w.samples(N, SHAPE, seed=seed)
    spec = FORMATS[seed % len(FORMATS)](folder, x, np.roll(y, seed))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = rng.choice(files)
    fitting = {".npz": _harm_zip, ".npy": _harm_npy, ".csv": _harm_csv, ".gz": _harm_gz}
    knowing = fitting.get(path.suffix, _harm_idx)
    harm = rng.choices([_harm_bytes, knowing, _harm_place], [4, 5, 2])[0]
    harm(path, rng)
    return spec


def _harm_bytes(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 6)):
        if not data:
            break
        at = min(rng.randrange(len(data)), rng.choice([16, 200, 2**20]))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            form = rng.choice(["<H", "<I", "<Q", ">I"])
            value = struct.pack(form, rng.choice(_STRANGE) % 2 ** (8 * struct.calcsize(form)))
            data[at : at + len(value)] = value
        elif kind == 2:
            del data[at : at + rng.randrange(1, 400)]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 40))
        else:
            data[at:at] = data[at : at + rng.randrange(1, 400)]
    path.write_bytes(data)


def _harm_place(path: Path, rng: random.Random) -> None:
    """Replace the file with something else of the same name, or remove it."""
    data = path.read_bytes()
    path.unlink()
    kind = rng.randrange(7)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/nowhere", path.name, "/"]))
    elif kind == 3:
        path.write_bytes(b"")
    elif kind == 4:
        path.write_bytes(data)
        os.truncate(path, rng.choice([2**31, 2**36, 2**40]))
    elif kind == 5:
        path.write_bytes(bytes(len(data)))
    # else: leave it removed


def _npy_bytes(rng: random.Random) -> bytes:
    """Return an array file whose header may be wrong."""
    descr, shape = rng.choice(_DESCR), rng.choice(_SHAPES)
    order = rng.choice(["True", "False", "1", "None"])
    head = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    version = rng.choice([1, 1, 1, 2, 3, 9])
    size = struct.pack("<H" if version == 1 else "<I", len(head))
    data = rng.randbytes(rng.choice([0, 39, 40, 640, 1280, 2560, 5120]))
    return b"\x93NUMPY" + bytes([version, 0]) + size + head + data


def _harm_npy(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.5:
        path.write_bytes(_npy_bytes(rng))
    elif rng.random() < 0.5:
        _sparse_npy(path, rng)
    else:
        kind = rng.choice([np.float32, np.int64, np.uint8, np.float16, np.bool_])
        shape = rng.choice([(N, 4, 4), (N, 16), (4, 4, N), (N,), (N, 1), (16,), (4, 4)])
        values = np.array([rng.choice([0.0, 9.0, 10.0, np.nan, np.inf, 3e38, -1.0])])
        with np.errstate(all="ignore"):
            np.save(path, np.broadcast_to(values, shape).astype(kind))


def _sparse_npy(path: Path, rng: random.Random) -> None:
    """Write a sparse file of the size its header claims: many samples, or large ones."""
    n, item = rng.choice([(N, 2**32), (2**38, 1), (2**34, 16)])
    descr, order = rng.choice(["|u1", "|i1"]), rng.choice([True, False])
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": descr, "fortran_order": order, "shape": (n, item)}
    )
    path.write_bytes(buffer.getvalue())
    os.truncate(path, len(buffer.getvalue()) + n * item)


def _harm_zip(path: Path, rng: random.Random) -> None:
    """Rewrite the archive with valid checksums."""
    with zipfile.ZipFile(path) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    method, kind, at = rng.choice(methods), rng.randrange(7), rng.randrange(len(members))
    if kind == 0:
        members[at] = (members[at][0], _npy_bytes(rng))
    elif kind == 1:
        names = [
            "x.npy",
            "../../x.npy",
            "/x.npy",
            "x\n.npy",
            "é.npy",
            ".npy",
            "y.npy",
            "x_test.npy",
        ]
        members[at] = (rng.choice(names), members[at][1])
    elif kind == 2:
        members += [(f"x{k}.npy", members[0][1]) for k in range(rng.choice([1, 300, 6000]))]
    elif kind == 3:
        head = b"\x93NUMPY\x01\x00" + struct.pack("<H", 70)
        text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (40, 1000000), }"
        members[at] = (members[at][0], head + text.ljust(69) + b"\n" + bytes(40_000_000))
    elif kind == 4:
        del members[at]
    elif kind == 5:
        members[at] = (members[at][0], members[at][1][: rng.randrange(len(members[at][1]))])
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", method) as archive:
        warnings.simplefilter("ignore")  # for duplicate member names
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    if kind == 6:
        data = bytearray(path.read_bytes())
        at = data.rfind(b"PK\x01\x02")
        place = at + rng.choice(
            [8, 10, 16, 20, 24, 28, 42]
        )  # flags, method, checksum, sizes, offset
        data[place : place + 2] = struct.pack("<H", rng.choice(_STRANGE) % 2**16)
        path.write_bytes(data)


def _harm_csv(path: Path, rng: random.Random) -> None:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    for _ in range(rng.randrange(1, 4)):
        line = rng.choice(lines)
        kind = rng.randrange(4)
        if kind == 0:
            line[rng.randrange(len(line))] = rng.choice(_CELLS)
        elif kind == 1:
            line[-1] = rng.choice(_CELLS)
        elif kind == 2:
            line *= rng.choice([0, 2, 40_000])
        else:
            lines.append([rng.choice(_CELLS)] * rng.choice([1, 17]))
        lines = [line or [""] for line in lines]
    text = rng.choice(["\n", "\r\n", "\n\n", "\r"]).join(",".join(line) for line in lines)
    path.write_bytes(text.encode(rng.choice(["utf-8", "utf-16", "utf-8-sig"])))


def _idx_bytes(rng: random.Random) -> bytes:
    dims = rng.choice([1, 3, 3, 3, 0, 8, 255])
    sizes = [rng.choice([N, 4, 4, 0, 1, 2**32 - 1]) for _ in range(min(dims, 8))]
    head = bytes([0, 0, rng.choice([8, 8, 8, 9, 11, 13, 14, 7]), dims])
    body = rng.randbytes(rng.choice([0, N, 16 * N, 16 * N + 1]))
    return head + struct.pack(f">{len(sizes)}I", *sizes) + body


def _harm_idx(path: Path, rng: random.Random) -> None:
    """Damage an idx file or CIFAR-10's records."""
    if path.suffix == ".bin":
        data = bytearray(path.read_bytes())
        data[rng.randrange(4) * 3073] = rng.choice([9, 10, 255])
        path.write_bytes(data * rng.choice([1, 1, 3]) + bytes(rng.choice([0, 0, 1])))
    else:
        path.write_bytes(_idx_bytes(rng))


def _harm_gz(path: Path, rng: random.Random) -> None:
    whole = gzip.decompress(path.read_bytes())
    kinds: list[Callable[[], bytes]] = [
        lambda: gzip.compress(_idx_bytes(rng)),
        lambda: gzip.compress(whole) + gzip.compress(whole),
        lambda: gzip.compress(whole + bytes(2**26)),
        lambda: gzip.compress(whole[:4] + b"\xff" * 4 + whole[8:] + bytes(2**26)),
        lambda: gzip.compress(whole)[: rng.randrange(60)],
        lambda: gzip.compress(whole) + b"tail",
        lambda: whole,
    ]
    path.write_bytes(rng.choice(kinds)())
