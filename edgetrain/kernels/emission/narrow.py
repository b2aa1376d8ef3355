"""Rewrites a module's int64 arithmetic as int32, for processors with 32-bit addresses.

Kernels compute in int64. A 32-bit processor needs two registers for each int64, and at least two
instructions for each operation. Most of these integers are counts, indices and addresses, and an
arena on such a processor is so small that they all fit into 32 bits.

LLVM's types don't tell which ones do, so each value is traced to its sources:

- narrow sources: a kernel's thread numbers, addresses, and operands that `fitting` lists; elements
  loaded as at most 16 bits, or as signed 32;
- wide sources: everything else, such as elements loaded as int64 (seeds, step counts, sums) or as
  unsigned 32 bits (random numbers), and constants of more than 31 bits.

A result of arithmetic, `select`, `phi`, `min` or `max` is narrow if all its operands are. Each
narrow value `%x` gets an int32 twin `%x.n`, which other narrow instructions use; LLVM deletes the
int64 version if nothing uses it any more.

The input must be the text of a module after the pass `text.SIMPLIFY`: local variables are values
instead of memory, and each instruction is one line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SYMBOL = r'(?:"[^"]+"|[\w.$-]+)'
_NAME = r'%(?:"[^"]+"|[\w.$-]+)'
_VALUE = rf"(?:{_NAME}|-?\d+|poison|undef)"
_FITS = 2**31

_DEFINE = re.compile(r"^define .*?@(\"[^\"]+\"|[\w.$-]+)\((.*)\).*\{$")
_LABEL = re.compile(r'^(?:"[^"]+"|[\w.$-]+):')
_RESULT = re.compile(rf"^  ({_NAME}) = (.*)$")
_ARITHMETIC = re.compile(
    rf"(add|sub|mul|shl|sdiv|srem|udiv|urem|and|or|xor|ashr|lshr)"
    rf"((?: nuw| nsw| exact| disjoint)*) i64 ({_VALUE}), ({_VALUE})"
)
_COMPARE = re.compile(rf"icmp( samesign)? (\w+) i64 ({_VALUE}), ({_VALUE})")
_SELECT = re.compile(rf"select i1 ({_NAME}|true|false), i64 ({_VALUE}), i64 ({_VALUE})")
_PHI = re.compile(r"phi i64 (.*)")
_ARM = re.compile(rf"\[ ({_VALUE}), ({_NAME}) \]")
_EXTEND = re.compile(r"(sext|zext(?: nneg)?) i(\d+) (\S+) to i64")
_INTRINSIC = re.compile(
    r"((?:tail )?call) (?:range\([^)]*\) )?i64 @llvm\.(smin|smax|umin|umax|abs)\.i64\((.*)\)(.*)"
)
_FREEZE = re.compile(rf"freeze i64 ({_VALUE})")
_TO_FLOAT = re.compile(rf"sitofp i64 ({_VALUE}) to (\w+)")
_TO_POINTER = re.compile(rf"inttoptr i64 ({_NAME}) to ptr")
_TRUNC = re.compile(rf"trunc(?: nuw| nsw)* i64 ({_NAME}) to i32")
_STEP = re.compile(rf"(getelementptr .*), i64 ({_NAME})")
_SWITCH = re.compile(rf"^  switch i64 ({_NAME}), label ({_NAME}) \[$")
_CASE = re.compile(rf"^    i64 (-?\d+), label ({_NAME})$")
_CALL = re.compile(r'^(  (?:tail )?call void @)(k\.[\w.$-]+|"k\.[^"]+")\((.*)\)(.*)$')
_ATTRIBUTE = re.compile(r" noundef| nonnull| range\([^)]*\)")


@dataclass
class _Function:
    """What is known about one function while it is rewritten."""

    fitting: "Fitting"
    sources: dict[str, str] = field(default_factory=dict)  # narrow source -> its int32 instruction
    made_of: dict[str, list[str]] = field(default_factory=dict)  # narrow if all of these are
    addresses: set[str] = field(default_factory=set)
    wide: set[str] = field(default_factory=set)
    calls: int = 0

    def fits(self, value: str) -> bool:
        """Whether a value fits into 32 bits, sign extended."""
        if value.startswith("%"):
            return value in self.sources or (value in self.made_of and value not in self.wide)
        return value in ("poison", "undef") or -_FITS <= int(value) < _FITS

    def settle(self) -> None:
        """Mark values made of wide ones as wide, and values made of addresses as addresses."""
        changed = True
        while changed:
            lost = {
                name
                for name, parts in self.made_of.items()
                if name not in self.wide and not all(map(self.fits, parts))
            }
            self.wide |= lost
            changed = bool(lost)
        changed = True
        while changed:
            result = {
                name
                for name, parts in self.made_of.items()
                if name not in self.addresses and not self.addresses.isdisjoint(parts)
            }
            self.addresses |= result
            changed = bool(result)


def short(value: str) -> str:
    """The 32-bit twin of a value."""
    if not value.startswith("%"):
        return value
    return f'%"{value[1:].strip(chr(34))}.n"'


Fitting = Mapping[str, Sequence[str | None]]


def narrowed(text: str, fitting: Fitting) -> str:
    """The module's text with counts and positions in 32 bits.

    Args:
      fitting: function -> for each parameter "count" or "address" if it fits into 32 bits, else
        None. Functions named `k...` take these as int32; others keep their types.
    """
    out: list[str] = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        match = _DEFINE.match(lines[number])
        if match is None:
            out.append(lines[number])
            number += 1
            continue
        end = lines.index("}", number)
        out += _rewritten(lines[number : end + 1], match, fitting)
        number = end + 1
    # a text that already used a 32-bit minimum has declared it
    return "\n".join(out) + "".join(
        line for name, line in DECLARATIONS.items() if f"@{name}(" not in text
    )


def _is_ours(function: str) -> bool:
    return function.startswith("k.")


def _rewritten(lines: list[str], match: re.Match, fitting: Fitting) -> list[str]:
    known, begin = _Function(fitting), []
    function, given = match[1].strip('"'), match[2].split(", ")
    for k, kind in enumerate(fitting.get(function, ())):
        if kind is None:
            continue
        name = given[k].rsplit(" ", 1)[1]
        known.sources[name] = ""
        if kind == "address":
            known.addresses.add(name)
        if _is_ours(function):
            given[k] = f"i32 {short(name)}"
            begin.append(f"  {name} = sext i32 {short(name)} to i64")
        else:
            begin.append(f"  {short(name)} = trunc i64 {name} to i32")
    for line in lines[1:]:
        _learn(line, known)
    known.settle()
    start = lines[0].replace(f"({match[2]})", f"({', '.join(given)})", 1)
    return [start, *_lines(lines[1:], known, begin)]


def _learn(line: str, known: _Function) -> None:
    """Record how a line computes its result."""
    result = _RESULT.match(line)
    if result is None:
        return
    name, what = result.groups()
    if (extend := _EXTEND.match(what)) is not None:
        kind, bits, value = extend.groups()
        if int(bits) < 32 or kind != "zext":
            bits_of = f"{'sext' if kind == 'sext' else 'zext'} i{bits} {value} to i32"
            known.sources[name] = f"add i32 {value}, 0" if bits == "32" else bits_of
    elif what.startswith("ptrtoint ptr") and what.endswith("to i64"):
        known.sources[name] = f"trunc i64 {name} to i32"
        known.addresses.add(name)
    else:
        parts = _parts(what)
        if parts is not None:
            known.made_of[name] = parts


def _parts(what: str) -> list[str] | None:
    """The values that decide whether a result fits into 32 bits; None if it does not."""
    if (result := _ARITHMETIC.match(what)) is not None:
        op, _, a, b = result.groups()
        if op in ("shl", "ashr", "lshr"):
            small = b.isdigit() and int(b) < 31
            return [a] if small or (op == "lshr" and b == "63") else None
        return [a, b]
    if (result := _SELECT.match(what)) is not None:
        return [result[2], result[3]]
    if (result := _PHI.match(what)) is not None:
        return [arm[0] for arm in _ARM.findall(result[1])]
    if (result := _INTRINSIC.match(what)) is not None:
        values = re.findall(rf"i64 (?:noundef )?({_VALUE})", result[3])
        return values
    if (result := _FREEZE.match(what)) is not None:
        return [result[1]]
    return None


def _lines(lines: list[str], known: _Function, begin: list[str]) -> Iterator[str]:
    """The function's lines, with a 32-bit twin for each narrow value; `begin` goes first."""
    late = list(begin)  # lines that must follow the phis of a block
    cases = False
    for line in lines:
        if cases:
            case = _CASE.match(line)
            yield f"    i32 {case[1]}, label {case[2]}" if case else line
            cases = case is not None
            continue
        is_phi = " = phi " in line
        body = line.startswith("  ") and not is_phi
        if body and late:
            yield from late
            late = []
        result = _RESULT.match(line)
        switch = _SWITCH.match(line)
        if switch is not None and known.fits(switch[1]):
            yield f"  switch i32 {short(switch[1])}, label {switch[2]} ["
            cases = True
        elif (call := _CALL.match(line)) is not None:
            yield from _call(call, known)
        elif result is None:
            yield line
        else:
            made, after = _instruction(result[1], result[2], known)
            yield made
            if is_phi:
                late += after
            else:
                yield from after


def _call(call: re.Match, known: _Function) -> Iterator[str]:
    """A call of a kernel, with counts and addresses in 32 bits."""
    function, given = call[2].strip('"'), call[3].split(", ")
    for k, kind in enumerate(known.fitting.get(function, ())):
        if kind is not None:
            value = given[k].rsplit(" ", 1)[1]
            if not known.fits(value):
                yield f"  %c{known.calls}.{k} = trunc i64 {value} to i32"
                value = f"%c{known.calls}.{k}"
            else:
                value = short(value)
            given[k] = f"i32 {value}"
    known.calls += 1
    yield f"{call[1]}{call[2]}({', '.join(given)}){call[4]}"


def _instruction(name: str, what: str, known: _Function) -> tuple[str, list[str]]:
    """The line for one instruction, and the lines after it (for a phi, after all phis)."""
    if name in known.sources:
        return f"  {name} = {what}", [f"  {short(name)} = {known.sources[name]}"]
    if known.fits(name):
        wide = f"  {name} = sext i32 {short(name)} to i64"
        return f"  {short(name)} = {_narrow(name, what, known)}", [wide]
    return f"  {name} = {_used(what, known)}", []


def _narrow(name: str, what: str, known: _Function) -> str:
    """An instruction on counts and positions, in 32 bits."""
    if (result := _ARITHMETIC.match(what)) is not None:
        op, flags, a, b = result.groups()
        # an address may cross the middle of the 32-bit range, a count may not
        kept = " nsw" if " nsw" in flags and name not in known.addresses else ""
        kept += " exact" if " exact" in flags else ""
        b = "31" if op == "lshr" and b == "63" else short(b)
        return f"{op}{kept} i32 {short(a)}, {b}"
    if (result := _SELECT.match(what)) is not None:
        return f"select i1 {result[1]}, i32 {short(result[2])}, i32 {short(result[3])}"
    if (result := _PHI.match(what)) is not None:
        arms = ", ".join(f"[ {short(v)}, {b} ]" for v, b in _ARM.findall(result[1]))
        return f"phi i32 {arms}"
    if (result := _INTRINSIC.match(what)) is not None:
        call, which, values, _ = result.groups()
        values = _ATTRIBUTE.sub("", values)
        values = re.sub(rf"i64 ({_VALUE})", lambda m: f"i32 {short(m[1])}", values)
        return f"{call} i32 @llvm.{which}.i32({values})"
    result = _FREEZE.match(what)
    assert result is not None
    return f"freeze i32 {short(result[1])}"


def _used(what: str, known: _Function) -> str:
    """An instruction that takes 32-bit values and produces a value of another type."""
    if (result := _COMPARE.match(what)) is not None:
        _, how, a, b = result.groups()
        if known.fits(a) and known.fits(b):
            return f"icmp {how} i32 {short(a)}, {short(b)}"
    elif (result := _TO_FLOAT.match(what)) is not None and known.fits(result[1]):
        return f"sitofp i32 {short(result[1])} to {result[2]}"
    elif (result := _TO_POINTER.match(what)) is not None and known.fits(result[1]):
        return f"inttoptr i32 {short(result[1])} to ptr"
    elif (result := _TRUNC.match(what)) is not None and known.fits(result[1]):
        return f"add i32 {short(result[1])}, 0"
    elif (result := _STEP.match(what)) is not None and known.fits(result[2]):
        return _STEP.sub(lambda m: f"{m[1]}, i32 {short(m[2])}", what, count=1)
    return what


DECLARATIONS = {
    f"llvm.{name}.i32": f"declare i32 @llvm.{name}.i32(i32, {'i1' if name == 'abs' else 'i32'})\n"
    for name in ("smin", "smax", "umin", "umax", "abs")
}
