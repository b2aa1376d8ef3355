"""Arithmetic on pairs of float32 as LLVM text: high + low represents a float64 value.

For processors whose floating-point unit has only float32. The high part is the sum rounded to
float32, so a pair has 48 bits and the range of float32. With u = 2^-24 and normal results, the
error is at most 4 u^2 * (|a| + |b|) for a + b, 8 u^2 of the result for a * b, a / b and the root,
and u^2 for a float64 read from memory. If the high part is not finite, the low part is meaningless.

Source: Dekker 1971, A floating-point technique for extending the available precision; Joldes,
Muller, Popescu 2017, Tight and rigorous error bounds for basic building blocks of double-word
arithmetic (algorithms 5, 11 and 17, the renormalisation guarded against infinities).
"""

from collections.abc import Callable, Iterator, Sequence

PAIR = "{ float, float }"


class Lines:
    """Instructions of one function or one place, with unique names.

    Args:
      prefix: of all names.
      kind: `float`, or a vector of floats.
    """

    def __init__(self, prefix: str, kind: str = "float") -> None:
        self.lines: list[str] = []
        self._prefix, self.kind = prefix, kind

    def __call__(self, text: str) -> str:
        """Append an instruction and return its result's name."""
        name = f'%"{self._prefix}.{len(self.lines)}"'
        self.lines.append(f"  {name} = {text}")
        return name

    def op(self, op: str, a: str, b: str) -> str:
        """Append an operation on two numbers."""
        return self(f"{op} {self.kind} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once."""
        t = self.kind
        return self(f"call {t} @{intrinsic('fma', t)}({t} {a}, {t} {b}, {t} {c})")

    def minus(self, a: str) -> str:
        """-a."""
        return self(f"fneg {self.kind} {a}")

    def normal(self, high: str, low: str) -> tuple[str, str]:
        """Renormalise a sum whose second part is small to a pair; a low part that is not finite
        becomes 0."""
        t = self.kind
        count = t.partition(" x ")[0].strip("<") if t != "float" else ""
        ordered = self(f"fcmp ord {t} {self.op('fsub', low, low)}, zeroinitializer")
        bits = f"<{count} x i1>" if count else "i1"
        low = self(f"select {bits} {ordered}, {t} {low}, {t} zeroinitializer")
        total = self.op("fadd", high, low)
        return total, self.op("fsub", low, self.op("fsub", total, high))


def intrinsic(name: str, kind: str) -> str:
    """Name of an LLVM intrinsic for float32 or a vector of it."""
    if kind == "float":
        return f"llvm.{name}.f32"
    return f"llvm.{name}.v{kind.partition(' x ')[0].strip('<')}f32"


def add(out: Lines, ah: str, al: str, bh: str, bl: str) -> tuple[str, str]:
    """a + b, which may cancel."""
    total = out.op("fadd", ah, bh)
    part = out.op("fsub", total, ah)
    rest = out.op("fsub", ah, out.op("fsub", total, part))
    rest = out.op("fadd", rest, out.op("fsub", bh, part))
    return out.normal(total, out.op("fadd", rest, out.op("fadd", al, bl)))


def mul(out: Lines, ah: str, al: str, bh: str, bl: str) -> tuple[str, str]:
    """a * b, using the exact rounding error of the product."""
    product = out.op("fmul", ah, bh)
    rest = out.fma(ah, bh, out.minus(product))
    return out.normal(product, out.fma(al, bh, out.fma(ah, bl, rest)))


def div(out: Lines, ah: str, al: str, bh: str, bl: str) -> tuple[str, str]:
    """a / b; the remainder is divided once more."""
    quotient = out.op("fdiv", ah, bh)
    back = out.minus(quotient)
    rest = out.op("fadd", out.fma(back, bh, ah), al)
    return out.normal(quotient, out.op("fdiv", out.fma(back, bl, rest), bh))


def sqrt(out: Lines, ah: str, al: str) -> tuple[str, str]:
    """The root, by one Newton step."""
    t = out.kind
    root = out(f"call {t} @{intrinsic('sqrt', t)}({t} {ah})")
    rest = out.op("fadd", out.fma(out.minus(root), root, ah), al)
    return out.normal(root, out.op("fdiv", rest, out.op("fadd", root, root)))


OPERATIONS: dict[str, Callable[..., tuple[str, str]]] = {
    "add": add,
    "mul": mul,
    "div": div,
    "sqrt": sqrt,
}


def _operation(name: str, build: Callable[..., tuple[str, str]], count: int) -> str:
    out = Lines("t")
    given = ["%ah", "%al", "%bh", "%bl"][: 2 * count]
    high, low = build(out, *given)
    return _function(name, PAIR, [("float", v) for v in given], [*out.lines, *_pair(high, low)])


def _function(name: str, kind: str, given: Sequence[tuple[str, str]], lines: Sequence[str]) -> str:
    """Text of a function. Equal functions of several modules become one when these are linked."""
    operands = ", ".join(f"{t} {v}" for t, v in given)
    body = "\n".join(lines)
    return f"define linkonce_odr {kind} @pair.{name}({operands}) nounwind {{\n{body}\n}}\n"


def _pair(high: str, low: str) -> Iterator[str]:
    yield f"  %r.0 = insertvalue {PAIR} poison, float {high}, 0"
    yield f"  %r.1 = insertvalue {PAIR} %r.0, float {low}, 1"
    yield f"  ret {PAIR} %r.1"


_INTEGER = """  %top = and i32 %v, -65536
  %bottom = and i32 %v, 65535
  %a = sitofp i32 %top to float
  %b = sitofp i32 %bottom to float
  %h = fadd float %a, %b
  %d = fsub float %h, %a
  %l = fsub float %b, %d
"""
_WIDE = f"""  %w = ashr i64 %v, 32
  %a = trunc i64 %w to i32
  %low = trunc i64 %v to i32
  %b = lshr i32 %low, 16
  %c = and i32 %low, 65535
  %x = call {PAIR} @pair.int(i32 %a)
  %x0 = extractvalue {PAIR} %x, 0
  %x1 = extractvalue {PAIR} %x, 1
  %xh = fmul float %x0, 0x41F0000000000000
  %xl = fmul float %x1, 0x41F0000000000000
  %bf = sitofp i32 %b to float
  %yh = fmul float %bf, 6.553600e+04
  %yl = sitofp i32 %c to float
  %z = call {PAIR} @pair.add(float %yh, float 0.0, float %yl, float 0.0)
  %z0 = extractvalue {PAIR} %z, 0
  %z1 = extractvalue {PAIR} %z, 1
  %r = call {PAIR} @pair.add(float %xh, float %xl, float %z0, float %z1)
  ret {PAIR} %r
"""
# Rounds towards zero; the result fits into 31 bits.
_TO_INT = """  %i = fptosi float %ah to i32
  %back = sitofp i32 %i to float
  %rest = fsub float %ah, %back
  %r = fadd float %rest, %al
  %j = fptosi float %r to i32
  %jf = sitofp i32 %j to float
  %t = add i32 %i, %j
  %s = fsub float %r, %jf
  %over = icmp sgt i32 %t, 0
  %less = fcmp olt float %s, 0.0
  %one = and i1 %over, %less
  %down = sext i1 %one to i32
  %under = icmp slt i32 %t, 0
  %more = fcmp ogt float %s, 0.0
  %other = and i1 %under, %more
  %up = zext i1 %other to i32
  %u = add i32 %t, %down
  %n = add i32 %u, %up
  ret i32 %n
"""
# Splits a float64 from memory: 24 bits of the fraction, rounded, then the remaining 29 bits.
_LOAD = """  %lo = trunc i64 %v to i32
  %up = lshr i64 %v, 32
  %hi = trunc i64 %up to i32
  %sign = and i32 %hi, -2147483648
  %e = lshr i32 %hi, 20
  %ex = and i32 %e, 2047
  %f1 = and i32 %hi, 1048575
  %f2 = shl i32 %f1, 3
  %f3 = lshr i32 %lo, 29
  %frac = or i32 %f2, %f3
  %below = and i32 %lo, 536870911
  %up1 = lshr i32 %below, 28
  %up2 = shl i32 %up1, 29
  %rest = sub i32 %below, %up2
  %from = sub i32 %ex, 897
  %normal = icmp ult i32 %from, 254
  br i1 %normal, label %usual, label %odd
usual:
  %be = sub i32 %ex, 896
  %be2 = shl i32 %be, 23
  %bm = or i32 %be2, %frac
  %bn = add i32 %bm, %up1
  %bits = or i32 %bn, %sign
  %h = bitcast i32 %bits to float
  %fits = icmp uge i32 %ex, 923
  %se = sub i32 %ex, 922
  %se2 = shl i32 %se, 23
  %sb = select i1 %fits, i32 %se2, i32 0
  %sb2 = or i32 %sb, %sign
  %scale = bitcast i32 %sb2 to float
  %rf = sitofp i32 %rest to float
  %rs = fmul float %rf, 0x3E50000000000000
  %l = fmul float %rs, %scale
  %s = fadd float %h, %l
  %d = fsub float %s, %h
  %t = fsub float %l, %d
  br label %end
odd:
  %large = icmp ugt i32 %ex, 896
  br i1 %large, label %beyond, label %tiny
beyond:
  %any = or i32 %frac, %below
  %some = icmp ne i32 %any, 0
  %last = icmp eq i32 %ex, 2047
  %nan = and i1 %some, %last
  %q = select i1 %nan, i32 2143289344, i32 2139095040
  %qs = or i32 %q, %sign
  %inf = bitcast i32 %qs to float
  br label %end
tiny:
  %here = icmp uge i32 %ex, 845
  %te = sub i32 %ex, 844
  %te2 = shl i32 %te, 23
  %tb = select i1 %here, i32 %te2, i32 0
  %tb2 = or i32 %tb, %sign
  %tscale = bitcast i32 %tb2 to float
  %m = or i32 %frac, 8388608
  %mf = sitofp i32 %m to float
  %ms = fmul float %mf, 0x3B40000000000000
  %small = fmul float %ms, %tscale
  br label %end
end:
  %high = phi float [ %s, %usual ], [ %inf, %beyond ], [ %small, %tiny ]
  %low = phi float [ %t, %usual ], [ 0.0, %beyond ], [ 0.0, %tiny ]
"""
# The inverse: the high part as 53 bits, plus the low part as an integer.
_STORE = """  %given = bitcast float %ah to i32
  %sign = and i32 %given, -2147483648
  %size = and i32 %given, 2147483647
  %finite = icmp ult i32 %size, 2139095040
  br i1 %finite, label %number, label %other
other:
  %isnan = icmp ugt i32 %size, 2139095040
  %ob = select i1 %isnan, i32 2146959360, i32 2146435072
  %os = or i32 %ob, %sign
  br label %whole
number:
  %tiny = icmp ult i32 %size, 8388608
  %by = select i1 %tiny, float 0x43F0000000000000, float 1.0
  %less = select i1 %tiny, i32 64, i32 0
  %scaled = fmul float %ah, %by
  %bits = bitcast float %scaled to i32
  %m = and i32 %bits, 2147483647
  %iszero = icmp eq i32 %m, 0
  br i1 %iszero, label %whole, label %usual
usual:
  %me = lshr i32 %m, 23
  %frac = and i32 %m, 8388607
  %ex0 = add i32 %me, 896
  %ex = sub i32 %ex0, %less
  %top = shl i32 %ex, 20
  %ftop = lshr i32 %frac, 3
  %hi0 = or i32 %top, %ftop
  %hi = or i32 %hi0, %sign
  %lo = shl i32 %frac, 29
  %big = icmp uge i32 %me, 26
  %has = xor i1 %tiny, true
  %use = and i1 %big, %has
  %se = sub i32 280, %me
  %se2 = shl i32 %se, 23
  %sb = select i1 %use, i32 %se2, i32 0
  %sb2 = or i32 %sb, %sign
  %scale = bitcast i32 %sb2 to float
  %x0 = fmul float %al, %scale
  %below = fcmp olt float %x0, 0.0
  %edge = icmp eq i32 %frac, 0
  %finer = and i1 %below, %edge
  %unit = select i1 %finer, float 0x41A0000000000000, float 0x4190000000000000
  %x = fmul float %x0, %unit
  %half = select i1 %below, float -0.5, float 0.5
  %xa = fadd float %x, %half
  %sz = call float @llvm.fabs.f32(float %x)
  %exact = fcmp ogt float %sz, 4194304.0
  %xr = select i1 %exact, float %x, float %xa
  %i = fptosi float %xr to i32
  %wide = zext i32 %hi to i64
  %wide2 = shl i64 %wide, 32
  %wlo = zext i32 %lo to i64
  %base = or i64 %wide2, %wlo
  %more = sext i32 %i to i64
  %sum = add i64 %base, %more
  ret i64 %sum
whole:
  %z = phi i32 [ %os, %other ], [ %sign, %number ]
  %zw = zext i32 %z to i64
  %zs = shl i64 %zw, 32
  ret i64 %zs
"""
_LOW = [("float", "%ah"), ("float", "%al")]
FUNCTIONS = {
    **{
        name: _operation(name, build, 1 if name == "sqrt" else 2)
        for name, build in OPERATIONS.items()
    },
    "int": _function("int", PAIR, [("i32", "%v")], [_INTEGER, *_pair("%h", "%l")]),
    "wide": _function("wide", PAIR, [("i64", "%v")], [_WIDE]),
    "to_int": _function("to_int", "i32", _LOW, [_TO_INT]),
    "load": _function("load", PAIR, [("i64", "%v")], [_LOAD, *_pair("%high", "%low")]),
    "store": _function("store", "i64", _LOW, [_STORE]),
}
