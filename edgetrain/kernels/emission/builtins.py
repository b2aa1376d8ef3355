"""Our own code for functions that LLVM calls if a processor lacks an instruction.

Names and conventions are those of the processor's compiler library (Run-time ABI for the Arm
Architecture, IHI 0043; psABI of RISC-V). That library is not linked: emitted objects are
self-contained. float64 arithmetic is in soft_float.py.
"""

from collections.abc import Callable

from ..targets import IN_INTEGER, Target
from . import soft_float
from .text import direct, text_of

_DIVISION = """
define internal { i64, i64 } @__aeabi_uldivmod(i64 %n, i64 %d) noinline {
  %any = or i64 %n, %d
  %top = lshr i64 %any, 32
  %short = icmp eq i64 %top, 0
  br i1 %short, label %narrow, label %loop
narrow:
  %n32 = trunc i64 %n to i32
  %d32 = trunc i64 %d to i32
  %q32 = udiv i32 %n32, %d32
  %m32 = mul i32 %q32, %d32
  %r32 = sub i32 %n32, %m32
  %qn = zext i32 %q32 to i64
  %rn = zext i32 %r32 to i64
  br label %end
loop:
  %k = phi i32 [ 0, %0 ], [ %k1, %loop ]
  %a = phi i64 [ %n, %0 ], [ %a1, %loop ]
  %r = phi i64 [ 0, %0 ], [ %r1, %loop ]
  %q = phi i64 [ 0, %0 ], [ %q1, %loop ]
  %bit = lshr i64 %a, 63
  %a1 = shl i64 %a, 1
  %over = icmp slt i64 %r, 0
  %rs = shl i64 %r, 1
  %rb = or i64 %rs, %bit
  %ge = icmp uge i64 %rb, %d
  %take = or i1 %over, %ge
  %less = sub i64 %rb, %d
  %r1 = select i1 %take, i64 %less, i64 %rb
  %qs = shl i64 %q, 1
  %one = zext i1 %take to i64
  %q1 = or i64 %qs, %one
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, 64
  br i1 %more, label %loop, label %end
end:
  %qe = phi i64 [ %qn, %narrow ], [ %q1, %loop ]
  %re = phi i64 [ %rn, %narrow ], [ %r1, %loop ]
  %p = insertvalue { i64, i64 } poison, i64 %qe, 0
  %pair = insertvalue { i64, i64 } %p, i64 %re, 1
  ret { i64, i64 } %pair
}
"""
_SIGNED_DIVISION = """
define internal { i64, i64 } @__aeabi_ldivmod(i64 %n, i64 %d) noinline {
  %sn = ashr i64 %n, 63
  %sd = ashr i64 %d, 63
  %nx = xor i64 %n, %sn
  %na = sub i64 %nx, %sn
  %dx = xor i64 %d, %sd
  %da = sub i64 %dx, %sd
  %pair = call { i64, i64 } @__aeabi_uldivmod(i64 %na, i64 %da)
  %q = extractvalue { i64, i64 } %pair, 0
  %r = extractvalue { i64, i64 } %pair, 1
  %sq = xor i64 %sn, %sd
  %qx = xor i64 %q, %sq
  %qs = sub i64 %qx, %sq
  %rx = xor i64 %r, %sn
  %rs = sub i64 %rx, %sn
  %p = insertvalue { i64, i64 } poison, i64 %qs, 0
  %out = insertvalue { i64, i64 } %p, i64 %rs, 1
  ret { i64, i64 } %out
}
"""
# A half is in the low 16 bits of a float register; the bits above are ones.
_FROM_HALF = """
define internal float @__extendhfsf2(float %boxed) noinline {
  %whole = bitcast float %boxed to i32
  %sign16 = and i32 %whole, 32768
  %sign = shl i32 %sign16, 16
  %size = and i32 %whole, 32767
  %big = icmp uge i32 %size, 31744
  %tiny = icmp ult i32 %size, 1024
  %moved = shl i32 %size, 13
  %normal = add i32 %moved, 939524096
  %odd = add i32 %moved, 1879048192
  %wide = select i1 %big, i32 %odd, i32 %normal
  %number = uitofp i32 %size to float
  %scaled = fmul float %number, 0x3E70000000000000
  %small = bitcast float %scaled to i32
  %bits = select i1 %tiny, i32 %small, i32 %wide
  %signed = or i32 %bits, %sign
  %out = bitcast i32 %signed to float
  ret float %out
}
"""
_TO_HALF = """
define internal float @__truncsfhf2(float %value) noinline {
  %whole = bitcast float %value to i32
  %high = lshr i32 %whole, 16
  %sign = and i32 %high, 32768
  %size = and i32 %whole, 2147483647
  %nan = icmp ugt i32 %size, 2139095040
  %over = icmp uge i32 %size, 1199570944
  %tiny = icmp ult i32 %size, 947912704
  %last = lshr i32 %size, 13
  %odd = and i32 %last, 1
  %up = add i32 %odd, 4095
  %rounded = add i32 %size, %up
  %moved = lshr i32 %rounded, 13
  %normal = sub i32 %moved, 114688
  %positive = bitcast i32 %size to float
  %pushed = fadd float %positive, 5.000000e-01
  %pushed.bits = bitcast float %pushed to i32
  %small = sub i32 %pushed.bits, 1056964608
  %low = select i1 %tiny, i32 %small, i32 %normal
  %inf = select i1 %over, i32 31744, i32 %low
  %bits = select i1 %nan, i32 32256, i32 %inf
  %signed = or i32 %bits, %sign
  %boxed = or i32 %signed, -65536
  %out = bitcast i32 %boxed to float
  ret float %out
}
"""
_TO_WHOLE = """
define internal float @{symbol}(float %a) noinline {{
  %bits = bitcast float %a to i32
  %size = and i32 %bits, 2147483647
  %sign = and i32 %bits, -2147483648
  %whole = icmp uge i32 %size, 1258291200
  br i1 %whole, label %same, label %small
small:
{lines}  %found.bits = bitcast float %found to i32
  %signed = or i32 %found.bits, %sign
  %out = bitcast i32 %signed to float
  ret float %out
same:
  ret float %a
}}
"""
_AWAY = """  %k = fptosi float %a to i32
  %t = sitofp i32 %k to float
  %past = fcmp {past} float %t, %a
  %moved = fadd float %t, {by}
  %found = select i1 %past, float %moved, float %t
"""
# From 2^23 on, float32 has no fractions, so adding 2^23 rounds to an integer.
_NEAREST = """  %positive = bitcast i32 %size to float
  %up = fadd float %positive, 8.388608e+06
  %found = fsub float %up, 8.388608e+06
"""


def _to_whole(symbol: str, lines: str) -> str:
    """Text of a function that rounds to an integral float and keeps the sign."""
    return _TO_WHOLE.format(symbol=symbol, lines=lines)


def _shift(symbol: str, how: str) -> str:
    """Text of a 64-bit shift by %n, in 32-bit words; `near` moves away from the other word."""
    left = how == "shl"
    near, far = ("%lo", "%hi") if left else ("%hi", "%lo")
    back = "lshr" if left else "shl"
    filled = "  %fill = ashr i32 %hi, 31\n" if how == "ashr" else "  %fill = add i32 0, 0\n"
    other = "lshr" if how == "ashr" else how
    low, high = ("%near", "%far") if left else ("%far", "%near")
    return (
        f"define internal i64 @{symbol}(i64 %a, i32 %n) noinline {{\n"
        "  %lo = trunc i64 %a to i32\n  %up = lshr i64 %a, 32\n  %hi = trunc i64 %up to i32\n"
        "  %by = and i32 %n, 31\n  %rest = xor i32 %by, 31\n  %bit = and i32 %n, 32\n"
        f"  %long = icmp ne i32 %bit, 0\n{filled}"
        f"  %moved = {how} i32 {near}, %by\n  %kept = {other} i32 {far}, %by\n"
        f"  %half = {back} i32 {near}, 1\n  %over = {back} i32 %half, %rest\n"
        "  %mixed = or i32 %kept, %over\n"
        "  %far = select i1 %long, i32 %moved, i32 %mixed\n"
        "  %near = select i1 %long, i32 %fill, i32 %moved\n"
        f"  %l = zext i32 {low} to i64\n  %h = zext i32 {high} to i64\n"
        "  %top = shl i64 %h, 32\n  %out = or i64 %top, %l\n  ret i64 %out\n}\n"
    )


def _call(name: str, given: tuple[str, ...]) -> str:
    """Lines that call a function of soft_float.py with these i64 values; its result is in %r."""
    operands = "".join(f", i64 {value}" for value in given)
    return (
        "  %slot = alloca i64, align 8\n  %at = ptrtoint ptr %slot to i64\n"
        f'  call void @"{direct("soft_" + name)}"(i64 0, i64 1, i64 %at{operands})\n'
        "  %r = load i64, ptr %slot, align 8\n"
    )


def _binary(symbol: str, name: str, prepare: str = "", a: str = "%a", b: str = "%b") -> str:
    return (
        f"define internal i64 @{symbol}(i64 %a, i64 %b) noinline {{\n{prepare}"
        f"{_call(name, (a, b))}  ret i64 %r\n}}\n"
    )


def _comparison(symbol: str, holds: str) -> str:
    """Text of a comparison. `holds`: lines that set %yes from %r: -1, 0, 1, or 2 if unordered."""
    return (
        f"define internal i32 @{symbol}(i64 %a, i64 %b) noinline {{\n"
        f"{_call('compare', ('%a', '%b'))}{holds}"
        "  %out = zext i1 %yes to i32\n  ret i32 %out\n}\n"
    )


def _conversion(symbol: str, name: str, kind: str, how: str, result: str) -> str:
    """Text of a conversion from `kind`, widened to i64 by `how`. `result`: return type, `|`, and
    the lines that return %r."""
    given, prepare = ("%a", "") if kind == "i64" else ("%w", f"  %w = {how} {kind} %a to i64\n")
    returned, lines = result.split("|")
    return (
        f"define internal {returned} @{symbol}({kind} %a) noinline {{\n{prepare}"
        f"{_call(name, (given,))}{lines}}}\n"
    )


_WHOLE, _LOW = "i64|  ret i64 %r\n", "i32|  %o = trunc i64 %r to i32\n  ret i32 %o\n"
_MINUS = "  %n = xor i64 %b, -9223372036854775808\n"
_REAL = "  %{0}.b = bitcast double %{0} to i64\n"


def _reals(symbol: str, name: str, count: int) -> str:
    """Text of a function of the math library, which takes and returns float64."""
    names = "abc"[:count]
    given = ", ".join(f"double %{n}" for n in names)
    bits = "".join(_REAL.format(n) for n in names)
    return (
        f"define internal double @{symbol}({given}) noinline {{\n{bits}"
        f"{_call(name, tuple(f'%{n}.b' for n in names))}"
        "  %o = bitcast i64 %r to double\n  ret double %o\n}\n"
    )


def _in_integer(text: str) -> str:
    """The text of a half conversion with the half in the low bits of an i32, as in ABIs without
    float registers."""
    text = text.replace("define internal float @__truncsfhf2", "define internal i32 @__truncsfhf2")
    text = text.replace("(float %boxed)", "(i32 %whole)")
    text = text.replace("  %whole = bitcast float %boxed to i32\n", "")
    boxed = "  %boxed = or i32 %signed, -65536\n  %out = bitcast i32 %boxed to float\n"
    return text.replace(f"{boxed}  ret float %out", "  ret i32 %signed")


# Exact in float64 except for the sum, which is rounded twice. That is wrong if the sum is halfway
# between two float32, or subnormal. In these cases the sum is first rounded to odd.
_FMA = """
define internal float @fmaf(float %a, float %b, float %c) noinline {
  %x = fpext float %a to double
  %y = fpext float %b to double
  %z = fpext float %c to double
  %p = fmul double %x, %y
  %s = fadd double %p, %z
  %bits = bitcast double %s to i64
  %low = and i64 %bits, 536870911
  %half = icmp eq i64 %low, 268435456
  %size = and i64 %bits, 9223372036854775807
  %tiny = icmp ult i64 %size, 4039728865751334912
  %odd = or i1 %half, %tiny
  br i1 %odd, label %careful, label %fast
fast:
  %r = fptrunc double %s to float
  ret float %r
careful:
  %back = fsub double %s, %p
  %rest = fsub double %s, %back
  %lost.p = fsub double %p, %rest
  %lost.z = fsub double %z, %back
  %lost = fadd double %lost.p, %lost.z
  %inexact = fcmp one double %lost, 0.0
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %moves = and i1 %inexact, %even
  %lost.bits = bitcast double %lost to i64
  %differ = xor i64 %lost.bits, %bits
  %down = icmp slt i64 %differ, 0
  %by = select i1 %down, i64 -1, i64 1
  %moved = add i64 %bits, %by
  %chosen = select i1 %moves, i64 %moved, i64 %bits
  %d = bitcast i64 %chosen to double
  %r.odd = fptrunc double %d to float
  ret float %r.odd
}
"""

# Symbol -> (its text, functions of soft_float.py that it calls, other symbols it needs).
_Row = tuple[str, tuple[str, ...], tuple[str, ...]]
BUILTINS: dict[str, _Row] = {
    "__aeabi_uldivmod": (_DIVISION, (), ()),
    "__aeabi_ldivmod": (_SIGNED_DIVISION, (), ("__aeabi_uldivmod",)),
    "__aeabi_llsl": (_shift("__aeabi_llsl", "shl"), (), ()),
    "__aeabi_llsr": (_shift("__aeabi_llsr", "lshr"), (), ()),
    "__aeabi_lasr": (_shift("__aeabi_lasr", "ashr"), (), ()),
    "__extendhfsf2": (_FROM_HALF, (), ()),
    "__truncsfhf2": (_TO_HALF, (), ()),
    "floorf": (_to_whole("floorf", _AWAY.format(past="ogt", by="-1.000000e+00")), (), ()),
    "ceilf": (_to_whole("ceilf", _AWAY.format(past="olt", by="1.000000e+00")), (), ()),
    "rintf": (_to_whole("rintf", _NEAREST), (), ()),
    "__aeabi_dadd": (_binary("__aeabi_dadd", "add"), ("add",), ()),
    "__aeabi_dsub": (_binary("__aeabi_dsub", "add", _MINUS, b="%n"), ("add",), ()),
    "__aeabi_dmul": (_binary("__aeabi_dmul", "mul"), ("mul",), ()),
    "__aeabi_ddiv": (_binary("__aeabi_ddiv", "div"), ("div",), ()),
    "__aeabi_i2d": (
        _conversion("__aeabi_i2d", "from_integer", "i32", "sext", _WHOLE), ("from_integer",), ()
    ),
    "__aeabi_ui2d": (
        _conversion("__aeabi_ui2d", "from_integer", "i32", "zext", _WHOLE), ("from_integer",), ()
    ),
    "__aeabi_l2d": (
        _conversion("__aeabi_l2d", "from_integer", "i64", "", _WHOLE), ("from_integer",), ()
    ),
    "__aeabi_d2iz": (
        _conversion("__aeabi_d2iz", "to_integer", "i64", "", _LOW), ("to_integer",), ()
    ),
    "__aeabi_d2uiz": (
        _conversion("__aeabi_d2uiz", "to_integer", "i64", "", _LOW), ("to_integer",), ()
    ),
    "__aeabi_d2lz": (
        _conversion("__aeabi_d2lz", "to_integer", "i64", "", _WHOLE), ("to_integer",), ()
    ),
    "__aeabi_f2d": (
        _conversion("__aeabi_f2d", "from_f32", "i32", "zext", _WHOLE), ("from_f32",), ()
    ),
    "__aeabi_d2f": (_conversion("__aeabi_d2f", "to_f32", "i64", "", _LOW), ("to_f32",), ()),
    "sqrt": (_reals("sqrt", "sqrt", 1), ("sqrt",), ()),
    "fma": (_reals("fma", "fma", 3), ("fma",), ()),
    "fmaf": (_FMA, (), ()),
}  # fmt: skip
for _name, _holds in {
    "eq": "  %yes = icmp eq i64 %r, 0\n",
    "lt": "  %yes = icmp eq i64 %r, -1\n",
    "le": "  %yes = icmp slt i64 %r, 1\n",
    "gt": "  %yes = icmp eq i64 %r, 1\n",
    "ge": "  %k = and i64 %r, -2\n  %yes = icmp eq i64 %k, 0\n",
    "un": "  %yes = icmp eq i64 %r, 2\n",
}.items():
    _symbol = f"__aeabi_dcmp{_name}"
    BUILTINS[_symbol] = (_comparison(_symbol, _holds), ("compare",), ())


IN_INTEGERS = {
    symbol: (_in_integer(BUILTINS[symbol][0]), *BUILTINS[symbol][1:])
    for symbol in ("__extendhfsf2", "__truncsfhf2")
}


def needed(symbols: set[str]) -> set[str]:
    """Our functions that cover `symbols`, and the functions they call in turn."""
    result: set[str] = set()
    pending = [symbol for symbol in symbols if symbol in BUILTINS]
    while pending:
        symbol = pending.pop()
        if symbol not in result:
            result.add(symbol)
            pending += BUILTINS[symbol][2]
    return result


def builtins_text(symbols: set[str], target: Target) -> list[str]:
    """LLVM texts, one per module, that define `symbols`; the first keeps them from removal."""
    known = BUILTINS | (IN_INTEGERS if target.halves == IN_INTEGER else {})
    rows, bits = {symbol: known[symbol] for symbol in sorted(symbols)}, target.pointer_bits
    functions = sorted({name for _, names, _ in rows.values() for name in names})
    declared = ""
    texts = []
    for name in functions:
        build, count = soft_float.FUNCTIONS[name]
        texts.append(_soft_text(name, build, count, bits))
        operands = ", ".join(["i64"] * (count + 3))
        declared += f'declare void @"{direct("soft_" + name)}"({operands})\n'
    kept = ", ".join(f"ptr @{symbol}" for symbol in rows)
    used = (
        f"@llvm.compiler.used = appending global [{len(rows)} x ptr] [{kept}], "
        'section "llvm.metadata"\n'
    )
    return [used + declared + "".join(text for text, _, _ in rows.values()), *texts]


def _soft_text(name: str, build: Callable, count: int, bits: int) -> str:
    return text_of(f"soft_{name}", build, "i" * (count + 1), bits, "soft_float")
