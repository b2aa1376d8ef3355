"""Conversions of halves for processors without them, in integer arithmetic, for single numbers and
four lanes.

LLVM would call the C library for each number. The input is a module's text after `text.SIMPLIFY`.
The bits are the same as from builtins.py, and from processors that convert halves.
"""

import re

from .text import APART

PREFIX = "half."  # prefix of the functions' names
_NUMBER = r"(?:<(\d+) x {0}>|{0})"
_LINE = re.compile(
    rf"^  (\S+|%\"[^\"]+\") = (?:fpext (?P<wide>{_NUMBER.format('half')}) (?P<half>\S+|%\"[^\"]+\")"
    rf" to (?P<to>.*)|fptrunc (?P<narrow>{_NUMBER.format('float')}) (?P<float>\S+|%\"[^\"]+\")"
    r" to (?:half|<\d+ x half>))$",
    re.M,
)

_NAME = r'("[^"]+"|[\w.$-]+)'
_OUTLINED = re.compile(rf'^define [^(]*@"?{re.escape(APART)}.*?^}}$', re.M | re.S)
_BLOCK = re.compile(rf"^{_NAME}:", re.M)
_JUMP = re.compile(rf"label %{_NAME}")


def in_integers(text: str) -> str:
    """The module's text without half conversions. It calls functions named `PREFIX...`, for four
    lanes at a time, which are appended."""
    used: set[tuple[str, int]] = set()
    loops = _innermost(text)

    def replaced(match: re.Match) -> str:
        lines = _Lines(match[1])
        kind = match["wide"] or match["narrow"]
        count = int(kind[1:].split()[0]) if kind.startswith("<") else 0
        if match["wide"] is None:
            used.add(("narrowed", _piece(count)))
            bits = lines.converted("narrowed", "float", "i16", match["float"], count)
            return lines.ended(f"bitcast {_of(count, 'i16')} {bits} to {_of(count, 'half')}")
        name = "widened.loop" if any(match.start() in loop for loop in loops) else "widened"
        used.add((name, _piece(count)))
        bits = lines(f"bitcast {_of(count, 'half')} {match['half']} to {_of(count, 'i16')}")
        real = lines.converted(name, "i16", "float", bits, count)
        kind = _of(count, "float")
        # float64: by float32, which is exact
        op = "bitcast" if match["to"] == kind else "fpext"
        return lines.ended(f"{op} {kind} {real} to {match['to']}")

    result = _LINE.sub(replaced, text)
    return result + "".join(_FUNCTIONS[name](count) for name, count in sorted(used))


def _innermost(text: str) -> list[range]:
    """Spans of the innermost loops in a kernel's outlined functions. These loops need every
    register, and a call would spill them all. In the order of the text, a loop extends from a block
    that is jumped back to, to the end of the block that jumps."""
    result = list[range]()
    for function in _OUTLINED.finditer(text):
        heads = [*_BLOCK.finditer(text, *function.span())]
        ends = [head.start() for head in heads[1:]] + [function.end()]
        begun, loops = dict[str, int](), list[range]()
        for head, end in zip(heads, ends, strict=True):
            begun[head[1]] = head.start()
            jumps = _JUMP.findall(text, head.end(), end)
            loops += [range(begun[name], end) for name in jumps if name in begun]
        result += [loop for loop in loops if not any(_inside(other, loop) for other in loops)]
    return result


def _inside(a: range, b: range) -> bool:
    return a != b and b.start <= a.start and a.stop <= b.stop


def _piece(count: int) -> int:
    """Lanes per call."""
    return 4 if count % 4 == 0 and count else count


class _Lines:
    """Instructions that replace one instruction."""

    def __init__(self, name: str) -> None:
        self._name, self._lines = name, list[str]()

    def __call__(self, what: str) -> str:
        value = f'%"{self._name[1:].strip(chr(34))}.half{len(self._lines)}"'
        self._lines.append(f"  {value} = {what}")
        return value

    def ended(self, what: str) -> str:
        return "\n".join([*self._lines, f"  {self._name} = {what}"])

    def converted(self, name: str, source: str, target: str, value: str, count: int) -> str:
        """Convert a number, or lanes in groups of four, by calls of a function."""
        size = _piece(count)
        parts = [value]
        if count > size:
            row_text = _of(count, source)
            rows = (range(k, k + size) for k in range(0, count, size))
            parts = [self(_shuffled(row_text, value, "poison", row)) for row in rows]
        given, made = _of(size, source), _of(size, target)
        parts = [self(f"call {made} @{PREFIX}{name}.{size}({given} {part})") for part in parts]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            kind = _of(size, target)
            parts = [self(_shuffled(kind, *pair, range(2 * size))) for pair in pairs]
            size *= 2
        return parts[0]


def _shuffled(kind: str, a: str, b: str, lanes: range) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{mask}>"


def _of(count: int, kind: str) -> str:
    return f"<{count} x {kind}>" if count else kind


def _number(count: int, kind: str, value: str) -> str:
    """A constant as an operand, the same in each lane."""
    return f"splat ({kind} {value})" if count else value


def _widened(count: int, name: str = "widened", inlined: str = "noinline") -> str:
    """Text of the widening function. It multiplies by 2**112, since the exponents' biases differ by
    112, so subnormal numbers need no separate case."""
    i16, i32, real, truth = (_of(count, kind) for kind in ("i16", "i32", "float", "i1"))

    def n(value: int) -> str:
        return _number(count, "i32", str(value))

    scale = _number(count, "float", "0x46F0000000000000")
    return f"""
define linkonce_odr {real} @{PREFIX}{name}.{count}({i16} %bits) {inlined} {{
  %whole = zext {i16} %bits to {i32}
  %top = shl {i32} %whole, {n(16)}
  %sign = and {i32} %top, {n(-(2**31))}
  %size = and {i32} %whole, {n(32767)}
  %big = icmp ugt {i32} %size, {n(31743)}
  %moved = shl {i32} %size, {n(13)}
  %small = bitcast {i32} %moved to {real}
  %scaled = fmul {real} %small, {scale}
  %number = bitcast {real} %scaled to {i32}
  %more = select {truth} %big, {i32} {n(2139095040)}, {i32} {n(0)}
  %all = or {i32} %number, %more
  %signed = or {i32} %all, %sign
  %out = bitcast {i32} %signed to {real}
  ret {real} %out
}}
"""


def _narrowed(count: int) -> str:
    i16, i32, real, truth = (_of(count, kind) for kind in ("i16", "i32", "float", "i1"))

    def n(value: int) -> str:
        return _number(count, "i32", str(value))

    half = _number(count, "float", "5.000000e-01")
    return f"""
define linkonce_odr {i16} @{PREFIX}narrowed.{count}({real} %value) noinline {{
  %whole = bitcast {real} %value to {i32}
  %high = lshr {i32} %whole, {n(16)}
  %sign = and {i32} %high, {n(32768)}
  %size = and {i32} %whole, {n(2147483647)}
  %nan = icmp ugt {i32} %size, {n(2139095040)}
  %over = icmp uge {i32} %size, {n(1199570944)}
  %tiny = icmp ult {i32} %size, {n(947912704)}
  %last = lshr {i32} %size, {n(13)}
  %odd = and {i32} %last, {n(1)}
  %up = add {i32} %odd, {n(4095)}
  %rounded = add {i32} %size, %up
  %moved = lshr {i32} %rounded, {n(13)}
  %normal = sub {i32} %moved, {n(114688)}
  %positive = bitcast {i32} %size to {real}
  %pushed = fadd {real} %positive, {half}
  %pushed.bits = bitcast {real} %pushed to {i32}
  %small = sub {i32} %pushed.bits, {n(1056964608)}
  %low = select {truth} %tiny, {i32} %small, {i32} %normal
  %inf = select {truth} %over, {i32} {n(31744)}, {i32} %low
  %found = select {truth} %nan, {i32} {n(32256)}, {i32} %inf
  %signed = or {i32} %found, %sign
  %out = trunc {i32} %signed to {i16}
  ret {i16} %out
}}
"""


def _widened_inline(count: int) -> str:
    """The widening function for innermost loops."""
    return _widened(count, "widened.loop", "alwaysinline")


_FUNCTIONS = {
    "widened": _widened,
    "widened.loop": _widened_inline,
    "narrowed": _narrowed,
}
