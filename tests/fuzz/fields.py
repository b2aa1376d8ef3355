"""Mutants of containers: changed JSON, tensors or headers, with all checksums repaired."""

import copy
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.program.container import read_container, write_container

_RAW = "@raw@"  # prefix of text that is written verbatim, without quotes
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 64, 0.5, -0.5, -0.0, 1e308, 5e-324, 2**31, 2**53 + 1,
    2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, "", "x", "1", "ctl", "f16", "f99",
    "\ud800", "\x00", "\n", "../x", "a" * 5000, [], {}, [[]], [1], [None], {"name": "sgd"},
    *(_RAW + text for text in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400")),
    _RAW + "9" * 5000, _RAW + "[" * 300 + "]" * 300, _RAW + "[" * 100_000,
    _RAW + '{"lr": 1, "lr": 2}',
]  # fmt: skip


def _places(value: Any, place: tuple = ()) -> list[tuple]:
    found = [place] if place else []
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return found
    for key, item in items:
        found += _places(item, (*place, key))
    return found


def _holder(fields: Any, place: tuple) -> Any:
    for key in place[:-1]:
        fields = fields[key]
    return fields


def _neighbour(value: Any, draw: random.Random) -> Any:
    """Return a value of the same kind, slightly or extremely different."""
    if isinstance(value, bool) or value is None:
        return draw.choice([not value, 1, "true"])
    if isinstance(value, int | float):
        scale = draw.choice([-1, 0, 2, 0.5, 1e6, 1e200])
        return draw.choice([value + 1, value - 1, value * scale, -value, value + 0.5, value + 64])
    if isinstance(value, str):
        return draw.choice([value[:-1], value + "x", value.upper(), value * 2])
    if isinstance(value, list):
        return draw.choice([value[:-1], value[1:], value[::-1], value * 2, [value], value[:1]])
    return draw.choice([{}, list(value), {**value, "more": 1}, {k: None for k in value}])


def mutate_fields(fields: Any, draw: random.Random) -> str:
    """Return the JSON text of `fields` with one to three changes."""
    fields = copy.deepcopy(fields)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        places = _places(fields)
        if not places:
            break
        # choose a depth first: otherwise most changes would hit a few long lists
        depth = draw.choice(sorted({len(place) for place in places}))
        place = draw.choice([place for place in places if len(place) == depth])
        holder, key = _holder(fields, place), place[-1]
        what = draw.randrange(10)
        if what < 4:
            holder[key] = draw.choice(STRANGE)
        elif what < 7:
            holder[key] = _neighbour(holder[key], draw)
        elif what == 7:
            del holder[key]
        elif what == 8:
            other = draw.choice(places)
            holder[key] = copy.deepcopy(_holder(fields, other)[other[-1]])
        elif isinstance(holder, dict):
            holder[draw.choice(["more", "name", "", "\ud800"])] = holder[key]
    text = json.dumps(fields)
    for value in STRANGE:
        if isinstance(value, str) and value.startswith(_RAW):
            text = text.replace(json.dumps(value), value.removeprefix(_RAW))
    return text


def mutate_tensors(tensors: dict[str, np.ndarray], draw: random.Random) -> dict[str, np.ndarray]:
    """Remove, rename or reshape one tensor, or change its dtype or its numbers."""
    out = dict(tensors)
    name = draw.choice(sorted(out))
    array = np.array(out.pop(name))
    what = draw.randrange(6)
    if what == 0:
        return out
    if what == 1:
        return {**out, name + draw.choice(["x", ".momentum", "\x00"]): array}
    if what == 2:
        flat = array.reshape(-1)
        return {**out, name: draw.choice([flat[:-1], flat[None], np.concatenate([flat, flat])])}
    if what == 3:
        with np.errstate(all="ignore"):
            return {**out, name: array.astype(draw.choice(["f8", "f4", "f2", "i4", "i8", "u1"]))}
    if array.size:
        flat = array.reshape(-1)
        where = draw.randrange(flat.size)
        odd: list[Any] = [0, 1, 255, -1, 2**31 - 1, 2**62]
        odd += [np.nan, np.inf, -np.inf, 1e38] if array.dtype.kind == "f" else []
        with np.errstate(all="ignore"):
            flat[where : where + draw.choice([1, flat.size])] = np.array(draw.choice(odd)).astype(
                array.dtype
            )
    return {**out, name: array}


def mutate_header(data: bytes, draw: random.Random) -> bytes:
    """Change some bytes of the file's header, then repair length and checksum."""
    length = int.from_bytes(data[:8], "little")
    header, rest = bytearray(data[8 : 8 + length]), data[8 + length :]
    start = header.index(b'"kind"')
    for _ in range(draw.choice([1, 1, 2, 4])):
        at = draw.randrange(start, len(header))
        piece = draw.choice(
            [b"", b"\xff", b"\xc3", b"0", b"9", b"-", b'"', b"}", b",", b"\\", b" "]
        )
        header[at : at + draw.choice([0, 1, 1, 3])] = piece
    return sealed(bytes(header), rest)


def sealed(header: bytes, rest: bytes) -> bytes:
    """Return a container with this header, with length and checksum set."""
    size = 8 + len(header) + len(rest)
    at = header.index(b'"nbytes":"') + 10
    header = header[:at] + b"%020d" % size + header[at + 20 :]
    header = header[:27] + b"0" * 64 + header[91:]
    start = len(header).to_bytes(8, "little")
    digest = hashlib.sha256(start + header + rest).hexdigest().encode()
    return start + header[:27] + digest + header[91:] + rest


def write_mutant(
    path: Path, source: Path, kind: str, version: int, key: str, draw: random.Random,
    tensors_of: Callable[[str], bool] = lambda name: True,
) -> None:  # fmt: skip
    """Write one mutant of the container `source` to `path`.

    Args:
      key: name of the JSON text among the container's texts.
      tensors_of: whether the tensor with this name may be changed.
    """
    tensors, texts = read_container(source, kind=kind, versions=range(version, version + 1))
    what = draw.random()
    if what < 0.15:
        path.write_bytes(mutate_header(source.read_bytes(), draw))
        return
    if what < 0.3 and any(map(tensors_of, tensors)):
        chosen = {name: array for name, array in tensors.items() if tensors_of(name)}
        kept = {name: array for name, array in tensors.items() if name not in chosen}
        tensors = {**kept, **mutate_tensors(chosen, draw)}
    else:
        texts[key] = mutate_fields(json.loads(texts[key]), draw)
    if draw.random() < 0.02:
        texts["more"] = "1"
    write_container(path, tensors, texts, kind=kind, version=version)
