"""Replaces float64 by pairs of float32, for Programs planned for processors without float64.

The text of a kernel is rewritten: every float64 value becomes two float32, and every operation on
it becomes one of pair_functions.py, which documents their errors. Memory keeps float64, so tables,
control block and files are the same for all. The rewritten text is compiled for that processor, and
also for any other machine that runs such a Program: the bits belong to the Program.

The input is a module's text after `text.SIMPLIFY`: locals are values, one instruction a line.
"""

import re
import struct
from collections.abc import Callable

from .pair_functions import FUNCTIONS, OPERATIONS, PAIR, Lines

_NAME = r'%(?:"[^"]+"|[\w.$-]+)'
_KIND = r"(?:double|<\d+ x double>)"
_SPLAT = rf"splat \({_KIND} \S+\)"
_VALUE = rf"(?:{_NAME}|{_SPLAT}|zeroinitializer|poison|undef|0x[0-9A-F]+|[-+]?\d[\w.+-]*)"
_RESULT = re.compile(rf"^  ({_NAME}) = (?:tail )?(.*)$")
_ADDRESS = re.compile(rf"getelementptr .*?, ptr ({_NAME})")
_WHOLE_SUM = 2.0**50  # adding a larger constant rounds as float64: so kernels round to integers
_TRAILING = re.compile(r"(, ![\w.]+ !\d+|, align \d+)+$")


def in_pairs(text: str) -> str:
    """The module's text without float64, followed by the functions that it calls.

    Raises:
      ValueError: an instruction on float64 has no rule here.
    """
    made = _Module()
    out = [made.line(line) for line in text.split("\n") if not _declares_wide(line)]
    used = _closure(made.used)
    functions = "".join(FUNCTIONS[name] for name in sorted(used))
    body = "\n".join(out) + "\n" + functions
    result = sorted(set(re.findall(r"@(llvm\.(?:fma|sqrt|fabs)\.(v\d+)?f32)\(", body)))
    declared = [
        _declaration(name, count)
        for name, count in result
        if not re.search(rf"^declare .*@{re.escape(name)}\(", body, re.M)
    ]
    return body + "".join(declared)


def _declares_wide(line: str) -> bool:
    return line.startswith("declare") and "double" in line


def _declaration(name: str, count: str) -> str:
    kind = f"<{count[1:]} x float>" if count else "float"
    operands = ", ".join([kind] * (3 if ".fma." in name else 1))
    return f"declare {kind} @{name}({operands})\n"


def _closure(used: set[str]) -> set[str]:
    result: set[str] = set()
    pending = set(used)
    while pending:
        result |= pending
        texts = "".join(FUNCTIONS[name] for name in pending)
        pending = set(re.findall(r"call [^@\n]*@pair\.(\w+)\(", texts)) - result
    return result


def _single(kind: str) -> str:
    """`float` for `double`, or the same for vectors."""
    return kind.replace("double", "float")


def _part(value: str, which: str) -> str:
    return f'%"{value[1:].strip(chr(34))}.{which}"'


def _number(text: str) -> float:
    if text.startswith("0x"):
        return struct.unpack(">d", bytes.fromhex(text[2:].rjust(16, "0")))[0]
    return float(text)


def _rounded(value: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _constant(value: float) -> str:
    """A float32 constant in LLVM's notation."""
    return f"0x{struct.pack('>d', value).hex().upper()}"


class _Module:
    """Rewrites a module line by line; tracks which addresses are on the stack, and the raw bits of
    values that were loaded unchanged."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self._stack: set[str] = set()
        self._raw: dict[str, str] = {}
        self._count = 0

    def line(self, line: str) -> str:
        if line.startswith("define"):
            self._stack, self._raw = set(), {}
            if "double" in line:
                raise ValueError(f"a float64 parameter is not supported: {line}")
        result = _RESULT.match(line)
        if result is not None and self._is_of_stack(result[2]):
            self._stack.add(result[1])
        if "double" not in line and ".f64" not in line:
            return line
        if result is None:
            return self._stored(line)
        for pattern, rule in _RULES:
            match = pattern.fullmatch(result[2]) or pattern.fullmatch(_TRAILING.sub("", result[2]))
            if match is not None:
                return rule(self, result[1], match)
        if result[2].startswith(("alloca ", "getelementptr ")):
            return line
        raise ValueError(f"float64 is not supported in: {line}")

    def _is_of_stack(self, what: str) -> bool:
        address = _ADDRESS.match(what)
        return what.startswith("alloca ") or (address is not None and address[1] in self._stack)

    def both(self, value: str) -> tuple[str, str]:
        """High and low part of a value; a constant is split."""
        if value.startswith("%"):
            return _part(value, "h"), _part(value, "l")
        if value in ("poison", "undef", "zeroinitializer"):
            return value, value
        splat = re.fullmatch(rf"splat \({_KIND} (\S+)\)", value)
        number = _number(splat[1] if splat else value)
        high = _rounded(number)
        low = _rounded(number - high) if high - high == 0 else 0.0
        texts = _constant(high), _constant(low)
        if splat:
            return f"splat (float {texts[0]})", f"splat (float {texts[1]})"
        return texts

    def place(self, kind: str = "float") -> Lines:
        """New lines for instructions at one place."""
        self._count += 1
        return Lines(f"pair.{self._count}", kind)

    def call(self, out: Lines, name: str, kind: str, *operands: str) -> str:
        self.used.add(name)
        return out(f"call {kind} @pair.{name}({', '.join(operands)})")

    def named(self, name: str, out: Lines, high: str, low: str) -> str:
        """The lines, with both parts assigned to the value's name."""
        t = out.kind
        return "\n".join(
            [
                *out.lines,
                f"  {_part(name, 'h')} = bitcast {t} {high} to {t}",
                f"  {_part(name, 'l')} = bitcast {t} {low} to {t}",
            ]
        )

    def pair(self, name: str, out: Lines, value: str) -> str:
        """Like `named`, for a pair that a function returned."""
        high = out(f"extractvalue {PAIR} {value}, 0")
        return self.named(name, out, high, out(f"extractvalue {PAIR} {value}, 1"))

    def computed(self, operation: str, kind: str, name: str, *operands: str) -> str:
        """An operation: a call, or inline instructions for vectors."""
        out = self.place(_single(kind))
        parts = [part for value in operands for part in self.both(value)]
        if operation == "sub":
            parts[2:] = [out.minus(part) for part in parts[2:]]
            operation = "add"
        if out.kind != "float":
            return self.named(name, out, *OPERATIONS[operation](out, *parts))
        made = self.call(out, operation, PAIR, *(f"float {part}" for part in parts))
        if any(not v.startswith("%") and abs(_number(v)) >= _WHOLE_SUM for v in operands):
            parts = [out(f"extractvalue {PAIR} {made}, {k}") for k in range(2)]
            bits = self.call(out, "store", "i64", *(f"float {part}" for part in parts))
            made = self.call(out, "load", PAIR, f"i64 {bits}")
        return self.pair(name, out, made)

    def loaded(self, name: str, match: re.Match) -> str:
        kind, address = match[1], match[2]
        out = self.place(_single(kind))
        if address not in self._stack:
            if kind != "double":
                raise ValueError(f"loading a vector of float64 is not supported: {match[0]}")
            bits = out(f"load i64, ptr {address}, align 8")
            self._raw[name] = bits
            return self.pair(name, out, self.call(out, "load", PAIR, f"i64 {bits}"))
        if kind == "double":
            high = out(f"load float, ptr {address}, align 8")
            behind = out(f"getelementptr i8, ptr {address}, i32 4")
            return self.named(name, out, high, out(f"load float, ptr {behind}, align 4"))
        count = int(kind.split()[0][1:])
        vector = out(f"load <{2 * count} x float>, ptr {address}, align 8")
        return self.named(name, out, *(_every_second(out, vector, count, k) for k in range(2)))

    def _stored(self, line: str) -> str:
        match = re.match(rf"  store ({_KIND}) ({_VALUE}), ptr ({_NAME})", line)
        if match is None:
            raise ValueError(f"float64 is not supported in: {line}")
        kind, value, address = match.groups()
        out = self.place()
        high, low = self.both(value)
        if kind != "double":
            raise ValueError(f"storing a vector of float64 is not supported: {line}")
        if address in self._stack:
            behind = out(f"getelementptr i8, ptr {address}, i32 4")
            stores = [f"  store float {high}, ptr {address}, align 8"]
            stores.append(f"  store float {low}, ptr {behind}, align 4")
            return "\n".join([*out.lines, *stores])
        if value.startswith("%"):
            given = f"float {high}", f"float {low}"
            bits = self._raw.get(value) or self.call(out, "store", "i64", *given)
        else:
            bits = str(struct.unpack("q", struct.pack("d", _number(value)))[0])
        return "\n".join([*out.lines, f"  store i64 {bits}, ptr {address}, align 8"])

    def compared(self, name: str, match: re.Match) -> str:
        how, kind, a, b = match.groups()
        out = self.place(_single(kind))
        count = kind.split()[0][1:] if kind != "double" else ""
        bits = f"<{count} x i1>" if count else "i1"
        (ah, al), (bh, bl) = self.both(a), self.both(b)
        if how in ("ord", "uno"):
            return f"  {name} = fcmp {how} {out.kind} {ah}, {bh}"
        opposite = {
            "ult": "oge",
            "ule": "ogt",
            "ugt": "ole",
            "uge": "olt",
            "une": "oeq",
            "ueq": "one",
        }
        ordered = opposite.get(how, how)
        # Low parts decide if the high parts are equal; low parts of infinities are meaningless.
        first = {"olt": "olt", "ole": "olt", "ogt": "ogt", "oge": "ogt", "one": "one"}.get(ordered)
        second = {
            "olt": "olt",
            "ole": "ule",
            "ogt": "ogt",
            "oge": "uge",
            "one": "one",
            "oeq": "ueq",
        }[ordered]
        same = out.op("fcmp oeq", ah, bh)
        result = out(f"and {bits} {same}, {out.op(f'fcmp {second}', al, bl)}")
        if first is not None:
            result = out(f"or {bits} {out.op(f'fcmp {first}', ah, bh)}, {result}")
        true = "true" if not count else "splat (i1 true)"
        flipped = true if how in opposite else ("false" if not count else "zeroinitializer")
        return "\n".join([*out.lines, f"  {name} = xor {bits} {result}, {flipped}"])


def _every_second(out: Lines, vector: str, count: int, first: int) -> str:
    mask = ", ".join(f"i32 {2 * k + first}" for k in range(count))
    wide = f"<{2 * count} x float>"
    return out(f"shufflevector {wide} {vector}, {wide} poison, <{count} x i32> <{mask}>")


def _twice(build: Callable[[_Module, re.Match, int], str]):
    """A rule that applies the same instruction to both parts."""

    def rule(made: _Module, name: str, match: re.Match) -> str:
        return "\n".join(
            f"  {_part(name, part)} = {build(made, match, k)}" for k, part in enumerate("hl")
        )

    return rule


def _phi(made: _Module, match: re.Match, k: int) -> str:
    arms = re.findall(rf"\[ ({_VALUE}), ({_NAME}) \]", match[2])
    chosen = ", ".join(f"[ {made.both(value)[k]}, {block} ]" for value, block in arms)
    return f"phi {_single(match[1])} {chosen}"


def _select(made: _Module, match: re.Match, k: int) -> str:
    condition, kind, a, b = match.groups()
    kind = _single(kind)
    return f"select {condition}, {kind} {made.both(a)[k]}, {kind} {made.both(b)[k]}"


def _shuffle(made: _Module, match: re.Match, k: int) -> str:
    kind, a, b, mask = match.groups()
    kind = _single(kind)
    return f"shufflevector {kind} {made.both(a)[k]}, {kind} {made.both(b)[k]}, {mask}"


def _extended(made: _Module, name: str, match: re.Match) -> str:
    kind, value, to = match.groups()
    to = _single(to)
    high = f"  {_part(name, 'h')} = " + (
        f"bitcast {to} {value} to {to}" if kind == to else f"fpext {kind} {value} to {to}"
    )
    zero = "zeroinitializer" if to != "float" else "0.0"
    return f"{high}\n  {_part(name, 'l')} = bitcast {to} {zero} to {to}"


def _shortened(made: _Module, name: str, match: re.Match) -> str:
    kind, value, to = match.groups()
    high, single = made.both(value)[0], _single(kind)
    op = "bitcast" if to == single else "fptrunc"
    return f"  {name} = {op} {single} {high} to {to}"


def _of_integer(made: _Module, name: str, match: re.Match) -> str:
    op, bits, value = match.groups()
    out, signed = made.place(), op == "sitofp"
    if int(bits) == 32 and (signed or "nneg" in op):
        return made.pair(name, out, made.call(out, "int", PAIR, f"i32 {value}"))
    if int(bits) < 64:
        value = out(f"{'sext' if signed else 'zext'} i{bits} {value} to i64")
    return made.pair(name, out, made.call(out, "wide", PAIR, f"i64 {value}"))


def _to_integer(made: _Module, name: str, match: re.Match) -> str:
    out = made.place()
    high, low = made.both(match[1])
    result = made.call(out, "to_int", "i32", f"float {high}", f"float {low}")
    last = f"sext i32 {result} to i64" if match[2] == "64" else f"bitcast i32 {result} to i32"
    return "\n".join([*out.lines, f"  {name} = {last}"])


def _bits_of(made: _Module, name: str, match: re.Match) -> str:
    out = made.place()
    high, low = made.both(match[1])
    bits = made.call(out, "store", "i64", f"float {high}", f"float {low}")
    return "\n".join([*out.lines, f"  {name} = bitcast i64 {bits} to i64"])


def _of_bits(made: _Module, name: str, match: re.Match) -> str:
    out = made.place()
    return made.pair(name, out, made.call(out, "load", PAIR, f"i64 {match[1]}"))


def _fused(made: _Module, name: str, match: re.Match) -> str:
    kind, a, b, c = match.groups()
    product = f'%"{name[1:].strip(chr(34))}.p"'
    return (
        made.computed("mul", kind, product, a, b)
        + "\n"
        + (made.computed("add", kind, name, product, c))
    )


_PLAIN = {"fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "div"}
_ARGUMENT = rf"{_KIND} (?:noundef )?({_VALUE})"
_RULES: list[tuple[re.Pattern, Callable[[_Module, str, re.Match], str]]] = [
    (re.compile(rf"(fadd|fsub|fmul|fdiv) ({_KIND}) ({_VALUE}), ({_VALUE})"),
     lambda made, name, m: made.computed(_PLAIN[m[1]], m[2], name, m[3], m[4])),
    (re.compile(rf"fneg ({_KIND}) ({_VALUE})"),
     _twice(lambda made, m, k: f"fneg {_single(m[1])} {made.both(m[2])[k]}")),
    (re.compile(rf"call (?:noundef )?({_KIND}) @llvm\.sqrt\.\w+\({_ARGUMENT}\).*"),
     lambda made, name, m: made.computed("sqrt", m[1], name, m[2])),
    (re.compile(
        rf"call (?:arcp )?(?:noundef )?({_KIND}) "
        rf"@llvm\.fma\.\w+\({_ARGUMENT}, {_ARGUMENT}, {_ARGUMENT}\).*"
     ), _fused),
    (re.compile(rf"fcmp (\w+) ({_KIND}) ({_VALUE}), ({_VALUE})"), _Module.compared),
    (re.compile(rf"load ({_KIND}), ptr ({_NAME})"), _Module.loaded),
    (re.compile(rf"phi ({_KIND}) (.*)"), _twice(_phi)),
    (re.compile(rf"select (\S+ \S+|<\d+ x i1> \S+), ({_KIND}) ({_VALUE}), {_KIND} ({_VALUE})"),
     _twice(_select)),
    (re.compile(rf"shufflevector ({_KIND}) ({_VALUE}), {_KIND} ({_VALUE}), (<.*)"),
     _twice(_shuffle)),
    (re.compile(rf"extractelement ({_KIND}) ({_VALUE}), (.*)"), _twice(
        lambda made, m, k: f"extractelement {_single(m[1])} {made.both(m[2])[k]}, {m[3]}")),
    (re.compile(rf"insertelement ({_KIND}) ({_VALUE}), double ({_VALUE}), (.*)"), _twice(
        lambda made, m, k: (
            f"insertelement {_single(m[1])} {made.both(m[2])[k]}, "
            f"float {made.both(m[3])[k]}, {m[4]}"))),
    (re.compile(rf"fpext (\S+|<\d+ x \w+>) (\S+) to ({_KIND})"), _extended),
    (re.compile(rf"fptrunc ({_KIND}) ({_VALUE}) to (\S+|<\d+ x \w+>)"), _shortened),
    (re.compile(r"(sitofp|uitofp(?: nneg)?) i(\d+) (\S+) to double"), _of_integer),
    (re.compile(rf"fpto[su]i double ({_VALUE}) to i(32|64)"), _to_integer),
    (re.compile(rf"bitcast double ({_VALUE}) to i64"), _bits_of),
    (re.compile(r"bitcast i64 (\S+) to double"), _of_bits),
    (re.compile(rf"freeze ({_KIND}) ({_VALUE})"),
     _twice(lambda made, m, k: f"freeze {_single(m[1])} {made.both(m[2])[k]}")),
]  # fmt: skip
