"""Wording of counts and lists in messages."""

import os
from collections.abc import Sequence

_SHOWN = 10


def counted(n: int, noun: str) -> str:
    """ "1 sample", "2 samples", "2 classes"."""
    ending = "" if n == 1 else "es" if noun.endswith("s") else "s"
    return f"{n} {noun}{ending}"


def quoted(path: str) -> str:
    """A path as one word of a shell command, printable in every locale.

    A name whose bytes are no text, or that has control characters, is written as $'...' with octal
    escapes: bash, zsh and POSIX shells since 2024 read its bytes from that.
    """
    if path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
        return path
    if not path.isprintable():
        known = "".join(map(chr, {*range(32, 127)} - {*b"'\\"}))
        codes = os.fsencode(path)
        return "".join(["$'", *(chr(c) if chr(c) in known else f"\\{c:03o}" for c in codes), "'"])
    import shlex  # 44 KB on a device, only for names that need it

    return shlex.quote(path)


def listed(names: Sequence[str], most: int = _SHOWN, width: int = 200) -> str:
    """ "a, b, c and 4 more": at most `most` names and about `width` characters.

    Names are not cut, except a single name that is longer than `width`.
    """
    shown: list[str] = []
    for name in names[:most]:
        if shown and len(", ".join([*shown, name])) > width:
            break
        shown.append(name[:width])
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
