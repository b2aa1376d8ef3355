"""The declaration of a kernel's operands in one line: names, modes, storages, extents.

    "x:r:S[n*c] y:w:S[n*c] key? scale:f n c ws:t[c*4]"

`name:mode:storage[elements]` is a reference: mode `r` is read, `w` is written completely, `m` is
read and written. `name?:...` may be absent (the kernel gets address 0). The storage is `f32`,
`f16`, `i32`, ... or a variable (a capital letter) that the call's operands bind. `name:t[bytes]` is
scratch for each thread, `name:f` a float32, a bare name a size, and `name=KIND` or
`name=LEAST..MOST` any other integer (ranges.py). `name[6]` is a group of six integers: operands
`name0 ... name5`, but one field of the record that the kernel gets. Extents are expressions of the
integers, groups, `nthreads` and `lanes`; `check` expressions must hold. Together they bound the
memory that a loaded tape may touch. `work` bounds its time: the iterations of the innermost loop,
if they exceed the number of elements touched. The plain variant's `work` holds for all variants.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import OutdatedError
from ...formats import FORMATS
from .expression import Expression, Later, later
from .ranges import Range, range_of, refusal

ALIGN = 64
_NAME = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r"(\w+)(\?)?(?::([rwmtf]))?(?::(\w+))?(?:\[(.*)\])?(?:=([\w.-]+))?")


class Operand(NamedTuple):
    """One operand. `mode` is r, w, m, t, f or i; `extent` counts elements (bytes per thread for t);
    `range` is set for integers."""

    name: str
    mode: str
    storage: str = ""
    optional: bool = False
    extent: Later | None = None
    range: Range | None = None

    @property
    def is_reference(self) -> bool:
        return self.mode in "rwm"


def _split(text: str) -> list[str]:
    """Split at spaces outside brackets."""
    out, depth, word = [], 0, ""
    for char in text + " ":
        depth += (char == "[") - (char == "]")
        if char.isspace() and depth == 0:
            if word:
                out.append(word)
            word = ""
        else:
            word += char
    return out


@functools.cache
def _read(word: str) -> tuple[tuple[Operand, ...], tuple[str, int], str]:
    """Parse one word: its operands (several for a group), its field, and its name if it states no
    range. Cached, so kernels share the results."""
    match = _TOKEN.fullmatch(word)
    if match is None:
        raise ValueError(f"bad operand {word!r} in a kernel declaration")
    name, optional, mode, storage, extent, kind = match.groups()
    if mode and kind:
        raise ValueError(f"operand {word!r} in a kernel declaration: only integers have a kind")
    if not mode:
        allowed, count = range_of(name, kind or ""), int(extent or 0)
        names = [f"{name}{k}" for k in range(count)] or [name]
        bare = "" if kind else name
        return tuple(Operand(item, "i", range=allowed) for item in names), (name, count), bare
    code = later(extent) if extent else None
    return (Operand(name, mode, storage or "", bool(optional), code),), (name, 0), ""


@functools.cache
def _checks(text: str) -> tuple[Expression, ...]:
    return tuple(later(part) for part in text.split(";") if part.strip())


def refuse_unmeasured(text: str, check: str, work: str) -> None:
    """Refuse an integer that states no range and occurs in no expression: its range was forgotten.

    Raises:
      ValueError: no extent, check or work uses it.
    """
    words = [_read(word) for word in _split(text)]
    extents = [o.extent.text for read, _, _ in words for o in read if o.extent is not None]
    used = set(_NAME.findall(";".join([*extents, check, work])))
    for _, _, bare in words:
        if bare and bare not in used:
            raise refusal(bare, "its name is in no extent, check or work")


@dataclass(frozen=True)
class Spec:
    """Operands of a kernel in the order of a tape's words.

    Attributes:
      fields: of the record that the kernel takes after (thread, nthreads): name, and the number of
        operands of a group; 0 if it is not a group.
    """

    operands: tuple[Operand, ...]
    fields: tuple[tuple[str, int], ...]
    checks: tuple[Expression, ...] = ()
    variables: tuple[str, ...] = field(default=())
    loops: Expression | None = None

    @classmethod
    def parse(cls, text: str, check: str = "", work: str = "") -> "Spec":
        words = [_read(word) for word in _split(text)]
        operands = [operand for read, _, _ in words for operand in read]
        fields = [field for _, field, _ in words]
        variables = dict.fromkeys(o.storage for o in operands if o.storage.isupper())
        checks = _checks(check)
        loops = later(work) if work else None
        return cls(tuple(operands), tuple(fields), checks, tuple(variables), loops)

    @functools.cached_property
    def arguments(self) -> frozenset[str]:
        """Operands that a call may name."""
        return frozenset(o.name for o in self.operands if o.mode != "t")

    @functools.cached_property
    def needed(self) -> frozenset[str]:
        """Operands that a call must name."""
        return self.arguments & {o.name for o in self.operands if not o.optional}

    @property
    def interface(self) -> list[tuple[str, str, str, bool]]:
        """What a caller sees. All variants of a kernel share it; each has its own scratch."""
        return [(o.name, o.mode, o.storage, o.optional) for o in self.operands if o.mode != "t"]

    @property
    def kinds(self) -> str:
        """Letters for `jit.objects_for`."""
        return "".join("r" if o.is_reference else o.mode for o in self.operands)

    @property
    def words(self) -> int:
        """Number of int64 words that the operands take in a tape."""
        return sum(2 if o.mode == "t" else 1 for o in self.operands)

    def flat(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """`args` by operand, with each group split into its integers."""
        out = dict(args)
        for name, count in self.fields:
            if count and name in out:
                numbers = zip(range(count), out.pop(name), strict=True)
                out |= {f"{name}{k}": int(number) for k, number in numbers}
        return out

    def names(self, values: Mapping[str, int], nthreads: int, lanes: int) -> dict[str, Any]:
        """The names that an extent expression may use, with their values."""
        integers = {o.name: values[o.name] for o in self.operands if o.mode == "i"}
        groups = {g: tuple(integers[f"{g}{k}"] for k in range(n)) for g, n in self.fields if n}
        return {**integers, **groups, "nthreads": nthreads, "lanes": lanes}

    def _hold(self, values: Mapping[str, int]) -> None:
        """Check that every integer is in its range and every required reference is present."""
        for name, mode, _, optional, _, allowed in self.operands:
            if allowed is not None:
                if not allowed.least <= values[name] <= allowed.most:
                    raise OutdatedError(
                        f"instruction: integer {name} is {values[name]}; expected "
                        f"{allowed.least} to {allowed.most}."
                    )
            elif mode in "rwm" and not optional and values[name] < 0:
                raise OutdatedError(f"instruction: operand {name} is missing.")

    def scratch_nbytes(self, values: Mapping[str, int], nthreads: int, lanes: int) -> int:
        """Scratch bytes for one thread, a multiple of 64; 0 if the kernel needs none."""
        names = self.names(values, nthreads, lanes)
        total = 0
        for operand in self.operands:
            if operand.mode == "t" and operand.extent is not None:
                total += -(-int(operand.extent(names)) // ALIGN) * ALIGN
        return total

    def extents(
        self, values: Mapping[str, int], storages: Mapping[str, str], nthreads: int, lanes: int
    ) -> dict[str, int]:
        """Bytes that each present reference touches, from its offset on.

        Raises:
          ProgramError: an integer is out of its range, a reference is missing, a check fails, or an
            expression is undefined.
        """
        self._hold(values)
        names = self.names(values, nthreads, lanes)
        try:
            if any(not check(names) for check in self.checks):
                raise OutdatedError(f"instruction: integers {names} contradict each other.")
            return {
                o.name: FORMATS[storages.get(o.storage, o.storage)].nbytes(int(o.extent(names)))
                for o in self.operands
                if o.is_reference and o.extent is not None and values[o.name] >= 0
            }
        except ArithmeticError as error:
            raise OutdatedError(f"instruction: integers {names}: {error}.") from error

    def turns(self, values: Mapping[str, int], nthreads: int, lanes: int) -> int:
        """Iterations of the innermost loop if they are more than the elements touched, else 0."""
        names = self.names(values, nthreads, lanes)
        return int(self.loops(names)) if self.loops is not None else 0
