"""Loads and stores of a vector's first lanes, for processors without masked instructions. They use
16-byte registers, and a call for a partial register.

LLVM would write a branch for each lane at each place. The input is the text of an optimised module,
in which masks are constants or have the form that `language/vector.py` writes; other masks are left
unchanged.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from .frames import MARK

PREFIX = "first."  # prefix of the functions' names
# Passes to run over the result.
PASSES = (
    "always_inliner",
    "instruction_combine",
    "simplify_cfg",
    "instruction_combine",
    "simplify_cfg",
)
_REGISTER = 16  # bytes
_NAME = r'%(?:"[^"]+"|[\w.$-]+)'
_WHERE = (
    rf"ptr (?:nonnull )?align \d+ (?P<at>{_NAME}|@[\w.$-]+), <\d+ x i1> (?P<mask>{_NAME}|<[^>]*>)"
)
_LOAD = re.compile(
    rf"^  (?P<out>{_NAME}) = (?:tail )?call <(?P<lanes>\d+) x (?P<kind>\w+)> "
    rf"@llvm\.masked\.load\.[\w.]+\({_WHERE}, <\d+ x \w+> (?P<rest>[^)]*)\)(?P<after>.*)$",
    re.M,
)
_STORE = re.compile(
    r"^  (?:tail )?call void @llvm\.masked\.store\.[\w.]+\("
    rf"<(?P<lanes>\d+) x (?P<kind>\w+)> (?P<value>.+), {_WHERE}\)(?P<after>.*)$",
    re.M,
)
_MASK = re.compile(
    rf"^  ({_NAME}) = icmp (?:sgt|samesign ugt) <(\d+) x i32> ({_NAME}), <([i\d, ]+)>$", re.M
)
_SPLAT = re.compile(
    rf"^  ({_NAME}) = shufflevector <\d+ x i32> ({_NAME}), <\d+ x i32> poison, "
    r"<\d+ x i32> zeroinitializer$",
    re.M,
)
_SCALAR = re.compile(
    rf"^  ({_NAME}) = insertelement <\d+ x i32> poison, i32 ({_NAME}), i64 0$", re.M
)
_NOTHING = re.compile(r"zeroinitializer|poison|<(?:\w+ (?:poison|0|0\.0+e\+00|0x[HR]0+)(?:, |>))+")
_NBYTES = {"i8": 1, "half": 2, "bfloat": 2, "i16": 2, "float": 4, "i32": 4, "double": 8, "i64": 8}


def without_masks(text: str) -> str:
    """The module's text without masked loads and stores of first lanes. It calls functions named
    `PREFIX...`, which are appended. Run PASSES over it."""
    used: set[tuple[str, int, str, bool]] = set()
    bodies = re.split(r"(?m)^(?=define )", text)
    made = "".join(_body(body, used) for body in bodies)
    texts: dict[str, str] = {}
    for what, lanes, kind, known in sorted(used):
        texts |= _functions(what, lanes, kind, known)
    return made + "".join(texts.values())


def _body(text: str, used: set[tuple[str, int, str, bool]]) -> str:
    """One function's text; the functions it calls are added to `used`."""
    counts = _counts(text)

    def replaced(match: re.Match) -> str:
        lanes, kind, mask = int(match["lanes"]), match["kind"], match["mask"]
        stores, known = match.re is _STORE, mask.startswith("<")
        count = _constant(mask, lanes) if known else counts.get(mask)
        is_full = lanes * _NBYTES.get(kind, 0) % _REGISTER == 0
        if count is None or not is_full or not (stores or _NOTHING.fullmatch(match["rest"])):
            return match[0]
        what = "store" if stores else "load"
        used.add((what, lanes, kind, known))
        given = f"@{_name(what, lanes, kind, known)}(ptr {match['at']}, i32 {count}"
        if stores:
            return f"  call void {given}, <{lanes} x {kind}> {match['value']})"
        return f"  {match['out']} = call <{lanes} x {kind}> {given})"

    return _STORE.sub(replaced, _LOAD.sub(replaced, text))


def _counts(body: str) -> Mapping[str, str]:
    """Mask -> number of lanes, for a function's masks of first lanes."""
    splats, scalars = dict(_SPLAT.findall(body)), dict(_SCALAR.findall(body))
    result = {}
    for mask, lanes, splat, numbers in _MASK.findall(body):
        count = scalars.get(splats.get(splat, ""))
        if count is not None and numbers == ", ".join(f"i32 {k}" for k in range(int(lanes))):
            result[mask] = count
    return result


def _constant(mask: str, lanes: int) -> str | None:
    """How many first lanes a constant mask selects; None for any other mask."""
    bits = re.findall(r"i1 (true|false)", mask)
    count = bits.count("true")
    return str(count) if bits == ["true"] * count + ["false"] * (lanes - count) else None


def _name(what: str, lanes: int, kind: str, known: bool) -> str:
    return f"{PREFIX}{what}.{lanes}.{kind}{'.known' if known else ''}"


class _Vector(NamedTuple):
    """Types of a masked instruction. Registers hold integers, since halves are not numbers here."""

    lanes: int
    kind: str

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 8 * _NBYTES[self.kind]

    @property
    def fit(self) -> int:
        """Lanes per register."""
        return 8 * _REGISTER // self.bits

    @property
    def type(self) -> str:
        """The instruction's own type."""
        return f"<{self.lanes} x {self.kind}>"

    @property
    def wide(self) -> str:
        """The instruction's type, with integer elements."""
        return f"<{self.lanes} x i{self.bits}>"

    @property
    def part(self) -> str:
        """Type of one register."""
        return f"<{self.fit} x i{self.bits}>"

    @property
    def parts(self) -> range:
        """The first lane of each of its registers."""
        return range(0, self.lanes, self.fit)


def _functions(what: str, lanes: int, kind: str, known: bool) -> dict[str, str]:
    """Name -> text, of the function that replaces a masked instruction and of the one that it
    calls. `known`: the number of lanes is a constant."""
    vector = _Vector(lanes, kind)
    name = _name(what, lanes, kind, known)
    part = f"{PREFIX}{what}.{vector.bits}{'.known' if known else ''}"
    marks = "alwaysinline" if known else _ONCE
    if what == "store":
        return {name: _store(vector, name, part), part: _few_stored(vector, part, marks)}
    return {name: _load(vector, name, part), part: _few_loaded(vector, part, marks)}


def _load(vector: _Vector, name: str, part: str) -> str:
    """Text of a load that reads nothing beyond the first lanes; the others are 0."""
    suffix, lines, before = (
        f"v{vector.lanes}i{vector.bits}.v{vector.fit}i{vector.bits}",
        [],
        "poison",
    )
    for lane in vector.parts:
        lines.append(f"""  %at.{lane} = getelementptr i{vector.bits}, ptr %at, i32 {lane}
  %count.{lane} = sub i32 %some, {lane}
  %part.{lane} = call {vector.part} @{part}(ptr %at.{lane}, i32 %count.{lane})
  %found.{lane} = call {vector.wide} @llvm.vector.insert.{suffix}({vector.wide} {before}, \
{vector.part} %part.{lane}, i64 {lane})""")
        before = f"%found.{lane}"
    made = "\n".join(lines)
    return f"""
define internal {vector.type} @{name}(ptr %at, i32 %count) alwaysinline {{
  %all = icmp sge i32 %count, {vector.lanes}
  br i1 %all, label %whole, label %parts
whole:
  %loaded = load {vector.wide}, ptr %at, align {vector.bits // 8}
  br label %end
parts:
  %any = icmp sgt i32 %count, 0
  %some = select i1 %any, i32 %count, i32 0
{made}
  br label %end
end:
  %bits = phi {vector.wide} [ %loaded, %whole ], [ {before}, %parts ]
  %out = bitcast {vector.wide} %bits to {vector.type}
  ret {vector.type} %out
}}
"""


def _store(vector: _Vector, name: str, part: str) -> str:
    """Text of a store that writes nothing beyond the first lanes."""
    suffix, lines, ways = f"v{vector.fit}i{vector.bits}.v{vector.lanes}i{vector.bits}", [], []
    for lane in vector.parts:
        lines.append(f"""  br label %part.{lane}
part.{lane}:
  %at.{lane} = getelementptr i{vector.bits}, ptr %at, i32 {lane}
  %value.{lane} = call {vector.part} @llvm.vector.extract.{suffix}({vector.wide} %bits, i64 {lane})
  %left.{lane} = sub i32 %count, {lane}
  %all.{lane} = icmp sge i32 %left.{lane}, {vector.fit}
  br i1 %all.{lane}, label %whole.{lane}, label %last
whole.{lane}:
  store {vector.part} %value.{lane}, ptr %at.{lane}, align {vector.bits // 8}""")
        ways.append(lane)
    made = "\n".join(lines)
    places, values, lefts = (
        ", ".join(f"[ %{what}.{lane}, %part.{lane} ]" for lane in ways)
        for what in ("at", "value", "left")
    )
    return f"""
define internal void @{name}(ptr %at, i32 %count, {vector.type} %value) alwaysinline {{
  %bits = bitcast {vector.type} %value to {vector.wide}
{made}
  br label %end
last:
  %place = phi ptr {places}
  %rest = phi {vector.part} {values}
  %left = phi i32 {lefts}
  %some = icmp sgt i32 %left, 0
  br i1 %some, label %few, label %end
few:
  call void @{part}(ptr %place, i32 %left, {vector.part} %rest)
  br label %end
end:
  ret void
}}
"""


_ONCE = f'noinline nounwind "no-builtins" {MARK} minsize optsize'


def _few_stored(vector: _Vector, name: str, marks: str) -> str:
    """Text of a store of some of a register's lanes, not all: in powers of two, the largest first;
    after each, the remaining lanes move to the front."""
    sizes = [1 << k for k in reversed(range((vector.fit - 1).bit_length()))]
    lines, value = [f"  br label %test.{sizes[0]}"], "%value"
    for size in sizes:
        after, kind = f"test.{size // 2}" if size > 1 else "done", f"i{vector.bits * size}"
        numbers = f"<{vector.fit // size} x {kind}>"
        lanes = ", ".join(f"i32 {min(k + size, vector.fit - 1)}" for k in range(vector.fit))
        moved = f"<{vector.fit} x i32> <{lanes}>"
        lines.append(f"""test.{size}:
  %bit.{size} = and i32 %count, {size}
  %has.{size} = icmp ne i32 %bit.{size}, 0
  br i1 %has.{size}, label %copy.{size}, label %next.{size}
copy.{size}:
  %before.{size} = and i32 %count, {-2 * size}
  %to.{size} = getelementptr i{vector.bits}, ptr %at, i32 %before.{size}
  %numbers.{size} = bitcast {vector.part} {value} to {numbers}
  %first.{size} = extractelement {numbers} %numbers.{size}, i32 0
  store {kind} %first.{size}, ptr %to.{size}, align {vector.bits // 8}
  %moved.{size} = shufflevector {vector.part} {value}, {vector.part} poison, {moved}
  br label %next.{size}
next.{size}:
  %value.{size} = phi {vector.part} [ {value}, %test.{size} ], [ %moved.{size}, %copy.{size} ]
  br label %{after}""")
        value = f"%value.{size}"
    made = "\n".join(lines)
    return f"""
define internal void @{name}(ptr %at, i32 %count, {vector.part} %value) {marks} {{
{made}
done:
  ret void
}}
"""


def _few_loaded(vector: _Vector, name: str, marks: str) -> str:
    """Text of a load of all, some or none of a register's lanes: in powers of two, the last lanes
    first; each moves up to make room for those before it."""
    sizes = [1 << k for k in range((vector.fit - 1).bit_length())]
    lines, value = list[str](), "zeroinitializer"
    for size in sizes:
        after, kind = f"test.{2 * size}" if size != sizes[-1] else "done", f"i{vector.bits * size}"
        numbers = f"<{vector.fit // size} x {kind}>"
        joined = [*range(size), *range(vector.fit, 2 * vector.fit - size)]
        mask = f"<{vector.fit} x i32> <{', '.join(f'i32 {lane}' for lane in joined)}>"
        lines.append(f"""test.{size}:
  %bit.{size} = and i32 %count, {size}
  %has.{size} = icmp ne i32 %bit.{size}, 0
  br i1 %has.{size}, label %copy.{size}, label %next.{size}
copy.{size}:
  %before.{size} = and i32 %count, {-2 * size}
  %from.{size} = getelementptr i{vector.bits}, ptr %at, i32 %before.{size}
  %number.{size} = load {kind}, ptr %from.{size}, align {vector.bits // 8}
  %numbers.{size} = insertelement {numbers} zeroinitializer, {kind} %number.{size}, i32 0
  %some.{size} = bitcast {numbers} %numbers.{size} to {vector.part}
  %joined.{size} = shufflevector {vector.part} %some.{size}, {vector.part} {value}, {mask}
  br label %next.{size}
next.{size}:
  %value.{size} = phi {vector.part} [ {value}, %test.{size} ], \
[ %joined.{size}, %copy.{size} ]
  br label %{after}""")
        value = f"%value.{size}"
    made = "\n".join(lines)
    return f"""
define internal {vector.part} @{name}(ptr %at, i32 %count) {marks} {{
  %all = icmp sge i32 %count, {vector.fit}
  br i1 %all, label %whole, label %test
whole:
  %loaded = load {vector.part}, ptr %at, align {vector.bits // 8}
  ret {vector.part} %loaded
test:
  %any = icmp sgt i32 %count, 0
  br i1 %any, label %test.1, label %none
none:
  ret {vector.part} zeroinitializer
{made}
done:
  ret {vector.part} {value}
}}
"""
