"""Names in a bundle's C code: valid prefixes, and macro names of values.

Everything a bundle declares starts with its prefix. Macros of values start with NAME_PARAM_, and
nothing else does, so a parameter's name can't redefine anything. A prefix is refused if a name of
the bundle would be a word of C or C++, a name of the C library or POSIX, or used in main.c.
"""

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from ..errors import UsageError
from ..optim import SCHEDULES
from .functions import FUNCTIONS, LENGTH, LOSSES, PASS, THREADS

TEMPLATES = Path(__file__).with_name("templates")
PARAMETER = "PARAM"
_PREFIX = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MOST = 31  # letters
_OWN = "net"  # the default, also a variable in main.c, which does no harm
_MAKE = {"makefile", "gnumakefile", "all"}  # files that make reads, and a common goal
_COMMENT = re.compile(r"/\*.*?\*/|\"[^\"\n]*\"|^\s*#\s*include.*?$", re.S | re.M)


def check_name(name: str) -> None:
    """Check that files can have this name.

    Raises:
      UsageError: it has other characters, or is too long.
    """
    fits = _PREFIX.fullmatch(name) and len(name) <= _MOST
    if not fits:
        raise UsageError(
            f"name {name[:80]!r}: expected a letter and at most {_MOST - 1} more lower-case "
            "letters, digits and single underscores, such as digits. Choose one with --name (in "
            "Python name)."
        )


def check_prefix(name: str) -> None:
    """Check that C and C++ can compile a bundle with this prefix, and make can build it.

    Raises:
      UsageError: it is not a valid C prefix, or a name is already used.
    """
    check_name(name)
    if name.endswith("_t"):
        raise UsageError(
            f"name {name!r}: POSIX reserves names in _t. Choose another with --name (in Python "
            "name)."
        )
    lower, upper = declared()
    ends = {PARAMETER.lower(), *_ambiguous(lower), *_ambiguous(upper)}
    end = next((end for end in sorted(ends) if f"_{end}_" in f"{name}_"), "")
    if end:
        raise UsageError(
            f"name {name!r}: its C names could clash with those of a bundle named "
            f"{name.partition(f'_{end}')[0]!r}. Choose a name without _{end} with --name "
            "(in Python name)."
        )
    written = {name, *(f"{name}_{word}" for word in lower)}
    written |= {f"{name.upper()}_{word}" for word in upper}
    taken = sorted(written & reserved())
    if taken:
        raise UsageError(
            f"name {name!r}: {taken[0]!r} is already used in C, C++, their libraries, main.c or "
            "the Makefile. Choose another with --name (in Python name)."
        )


def _ambiguous(words: Iterable[str]) -> set[str]:
    """Every w such that both x and w_x are names of a bundle."""
    known = set(words)
    pairs = ((word[: m.start()], word[m.end() :]) for word in known for m in re.finditer("_", word))
    return {head.lower() for head, tail in pairs if tail in known}


@functools.cache
def declared() -> tuple[frozenset[str], frozenset[str]]:
    """Names that can follow a prefix and _ in a bundle: of functions and types, and of macros."""
    text = "".join(_code(path) for path in TEMPLATES.glob("*.[ch]"))
    functions = {function.name for function in (*FUNCTIONS, THREADS, LOSSES, PASS, LENGTH)}
    lower = functions | {"init", "open", "read", "run", "yield", "work"}
    lower |= set(re.findall(r"\$\{net\}_([a-z]\w*)", text))
    upper = {"FROZEN", "OUTPUT", "BROKEN", "VALUES", "X", "TARGETS", "LOSSES", PARAMETER}
    upper |= {name.upper() for name in SCHEDULES}
    return frozenset(lower), frozenset(upper | set(re.findall(r"\$\{NET\}_([A-Z]\w*)", text)))


@functools.cache
def reserved() -> frozenset[str]:
    """Names a bundle must not declare, from reserved.txt and the templates.

    reserved.txt: words of C23 and C++20, names in glibc's and newlib's headers of ISO C and POSIX,
    and names of these headers.
    """
    result = set((TEMPLATES / "reserved.txt").read_text().split()) | _MAKE
    result |= set(re.findall(r"(?m)^([a-z]+):", (TEMPLATES / "Makefile").read_text()))
    for path in TEMPLATES.glob("*.[ch]"):
        result |= set(re.findall(r"(?<![\w$}{])[a-z]\w*", _code(path)))
    for function in (*FUNCTIONS, THREADS, LOSSES, PASS, LENGTH):
        result |= {word for _, word in function.parameters}
    return frozenset(result - {_OWN})


def _code(path: Path) -> str:
    return _COMMENT.sub(" ", path.read_text())


def value_names(name: str, values: Iterable[str]) -> list[str]:
    """A distinct macro for each of these names."""
    out: dict[str, None] = {}
    for value in values:
        plain = re.sub(r"[^0-9a-zA-Z]+", "_", value).upper().strip("_")
        chosen = first = "_".join(part for part in (name.upper(), PARAMETER, plain) if part)
        k = 2
        while chosen in out:
            chosen, k = f"{first}_{k}", k + 1
        out[chosen] = None
    return list(out)
