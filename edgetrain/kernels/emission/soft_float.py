"""float64 arithmetic in integers, for processors whose floating-point unit has only float32.

IEEE 754 to the bit: rounds to nearest even and keeps subnormals; NaNs stay NaNs, but with any bits.
The functions take bits (int64) and store their result at `out`; builtins.py gives them the names
that LLVM calls. Kernels compute in float32; these functions are for the sums, scales and counts
they keep in float64.

Source: IEEE 754-2019; digit by digit as in Warren 2012, Hacker's Delight, sections 9.5 and 11.1.
"""

from collections.abc import Callable

import numpy as np

from ..language.inlining import inline
from ..language.prim import st_i64

_U = np.uint64
_SIGN, _ABS, _INF = _U(1 << 63), _U((1 << 63) - 1), _U(0x7FF << 52)
_NAN, _QUIET = _U(0x7FF8 << 48), _U(1 << 51)
_HIDDEN, _FRACTION = _U(1 << 52), _U((1 << 52) - 1)
_TOP = _U(1 << 55)  # top bit of a fraction with three extra bits below the last one
_0, _1, _2, _3, _4, _7, _8, _11, _32, _52, _55, _63 = map(
    _U, (0, 1, 2, 3, 4, 7, 8, 11, 32, 52, 55, 63)
)
_255, _LOW32 = _U(255), _U(0xFFFFFFFF)


@inline
def _exponent(x):
    """The biased exponent of a magnitude."""
    return np.int64(x >> _52)


@inline
def _sticky(m, shift):
    """m >> shift, with its last bit set if a bit was lost."""
    if shift >= 63:
        return _0 if m == _0 else _1
    by = _U(shift)
    kept = m >> by
    return kept if kept << by == m else kept | _1


@inline
def _packed(sign, e, m):
    """Bits of a number with biased exponent e and fraction m: its top is bit 55, or e <= 1."""
    if e >= 2047:
        return sign | _INF
    if e < 1:
        m, e = _sticky(m, 1 - e), 1
    if m < _TOP:
        e = 0
    rest, m = m & _7, m >> _3
    bits = (_U(e) << _52) | (m & _FRACTION)
    if rest > _4 or (rest == _4 and m & _1 != _0):
        bits += _1
    return sign | bits


@inline
def _scale(x):
    """(biased exponent, fraction with its top at bit 52) of a magnitude above 0."""
    e, m = _exponent(x), x & _FRACTION
    if e == 0:
        e = 1
        while m < _HIDDEN:
            m = m << _1
            e -= 1
    return e, m | _HIDDEN


@inline
def _add(a, b):
    if a & _ABS < b & _ABS:
        a, b = b, a
    x, y, sign = a & _ABS, b & _ABS, a & _SIGN
    same = (a ^ b) & _SIGN == _0
    if x >= _INF:
        if x > _INF:
            return a | _QUIET
        return a if same or y < _INF else _NAN
    if y == _0:
        if x == _0 and not same:
            return _0
        return a
    ea, eb = _exponent(x), _exponent(y)
    ma, mb = x & _FRACTION, y & _FRACTION
    if ea == 0:
        ea = 1
    else:
        ma |= _HIDDEN
    if eb == 0:
        eb = 1
    else:
        mb |= _HIDDEN
    ma, mb = ma << _3, _sticky(mb << _3, ea - eb)
    if same:
        m = ma + mb
        if m >= _TOP << _1:
            m = (m >> _1) | (m & _1)
            ea += 1
        return _packed(sign, ea, m)
    m = ma - mb
    if m == _0:
        return _0
    while m < _TOP and ea > 1:
        m = m << _1
        ea -= 1
    return _packed(sign, ea, m)


@inline
def _product(ma, mb):
    """(high, low) 64 bits of the product of two 64-bit numbers."""
    a1, a0, b1, b0 = ma >> _32, ma & _LOW32, mb >> _32, mb & _LOW32
    low, middle, other = a0 * b0, a1 * b0, a0 * b1
    carry = (low >> _32) + (middle & _LOW32) + (other & _LOW32)
    high = a1 * b1 + (middle >> _32) + (other >> _32) + (carry >> _32)
    return high, (carry << _32) | (low & _LOW32)


@inline
def _mul(a, b):
    x, y, sign = a & _ABS, b & _ABS, (a ^ b) & _SIGN
    if x > _INF:
        return a | _QUIET
    if y > _INF:
        return b | _QUIET
    if x == _INF or y == _INF:
        return _NAN if x == _0 or y == _0 else sign | _INF
    if x == _0 or y == _0:
        return sign
    ea, ma = _scale(x)
    eb, mb = _scale(y)
    high, low = _product(ma << _11, mb << _11)
    e = ea + eb - 1022
    if high & _SIGN == _0:
        high = (high << _1) | (low >> _63)
        low = low << _1
        e -= 1
    lost = (high & _255) | low
    m = high >> _8
    return _packed(sign, e, m if lost == _0 else m | _1)


@inline
def _div(a, b):
    x, y, sign = a & _ABS, b & _ABS, (a ^ b) & _SIGN
    if x > _INF:
        return a | _QUIET
    if y > _INF:
        return b | _QUIET
    if x == _INF:
        return _NAN if y == _INF else sign | _INF
    if y == _INF:
        return sign
    if y == _0:
        return _NAN if x == _0 else sign | _INF
    if x == _0:
        return sign
    ea, ma = _scale(x)
    eb, mb = _scale(y)
    e = ea - eb + 1023
    if ma < mb:
        ma = ma << _1
        e -= 1
    q = _0
    for _ in range(56):
        q = q << _1
        if ma >= mb:
            ma -= mb
            q |= _1
        ma = ma << _1
    return _packed(sign, e, q if ma == _0 else q | _1)


@inline
def _sqrt(a):
    x = a & _ABS
    if x > _INF:
        return a | _QUIET
    if x == _0:
        return a
    if a & _SIGN != _0:
        return _NAN
    if x == _INF:
        return a
    e, m = _scale(x)
    e -= 1023
    if e & 1 != 0:
        m = m << _1
    m = m << _U(10)  # 27 pairs of bits, from the top
    q, rest = _0, _0
    for _ in range(56):
        rest = (rest << _2) | (m >> _U(62))
        m = m << _2
        trial = (q << _2) | _1
        q = q << _1
        if rest >= trial:
            rest -= trial
            q |= _1
    return _packed(_0, (e >> 1) + 1023, q if rest == _0 else q | _1)


@inline
def _fma(a, b, c):
    """a * b + c rounded once, for finite operands."""
    if a & _ABS >= _INF or b & _ABS >= _INF or c & _ABS >= _INF:
        return _add(_mul(a, b), c)
    if a & _ABS == _0 or b & _ABS == _0 or c & _ABS == _0:
        return _add(_mul(a, b), c)
    sign = (a ^ b) & _SIGN
    ea, ma = _scale(a & _ABS)
    eb, mb = _scale(b & _ABS)
    ec, mc = _scale(c & _ABS)
    # a product with its top at bit 125 of 128, two above it for carries; c likewise
    high, low = _product(ma << _U(10), mb << _U(10))
    e = ea + eb - 1022
    if high < _U(1 << 61):
        high, low = (high << _1) | (low >> _63), low << _1
        e -= 1
    other, rest = mc << _U(9), _0
    csign = c & _SIGN
    if ec > e or (ec == e and (other > high or (other == high and rest > low))):
        high, other, low, rest = other, high, rest, low
        e, ec, sign, csign = ec, e, csign, sign
    by = e - ec
    if by >= 127:
        other, rest = _0, _1
    elif by >= 64:
        lost = rest if by == 64 else rest | (other << _U(128 - by))
        rest = other >> _U(by - 64)
        other = _0
        if lost != _0:
            rest |= _1
    elif by > 0:
        lost = rest << _U(64 - by)
        rest = (rest >> _U(by)) | (other << _U(64 - by))
        other = other >> _U(by)
        if lost != _0:
            rest |= _1
    if sign == csign:
        total = low + rest
        high = high + other + (_1 if total < low else _0)
        low = total
        if high >= _U(1 << 62):
            lost = low & _1
            low = (low >> _1) | (high << _63) | lost
            high = high >> _1
            e += 1
    else:
        total = low - rest
        high = high - other - (_1 if low < rest else _0)
        low = total
        if high == _0 and low == _0:
            return _0
        while high < _U(1 << 61):
            high, low = (high << _1) | (low >> _63), low << _1
            e -= 1
    m, lost = high >> _U(6), (high & _U(63)) | low
    return _packed(sign, e, m if lost == _0 else m | _1)


@inline
def _less(a, b):
    """-1, 0 or 1 if a is below, equal to or above b; 2 if either is NaN."""
    x, y = a & _ABS, b & _ABS
    if x > _INF or y > _INF:
        return 2
    if a == b or (x | y) == _0:
        return 0
    if (a ^ b) & _SIGN != _0:
        return -1 if a & _SIGN != _0 else 1
    below = x < y
    if a & _SIGN != _0:
        below = not below
    return -1 if below else 1


@inline
def _from_integer(a):
    if a == _0:
        return _0
    sign, m, e = _0, a, 1023 + 55
    if a & _SIGN != _0:
        sign, m = _SIGN, _0 - a
    while m >= _TOP << _1:
        m = (m >> _1) | (m & _1)
        e += 1
    while m < _TOP:
        m = m << _1
        e -= 1
    return _packed(sign, e, m)


@inline
def _to_integer(a):
    """Rounds towards zero; the value must fit."""
    e = _exponent(a & _ABS) - 1023
    if e < 0:
        return _0
    m = (a & _FRACTION) | _HIDDEN
    m = m >> _U(52 - e) if e <= 52 else m << _U(min(e, 63) - 52)
    return _0 - m if a & _SIGN != _0 else m


@inline
def _from_f32(a):
    sign, e, m = (
        (a & _U(1 << 31)) << _32,
        _exponent((a << _U(29)) & _U(0xFF << 52)),
        a & _U((1 << 23) - 1),
    )
    if e == 255:
        return sign | _INF | (m << _U(29))
    if e == 0:
        if m == _0:
            return sign
        e = 1
        while m < _U(1 << 23):
            m = m << _1
            e -= 1
    return sign | (_U(e + 896) << _52) | ((m & _U((1 << 23) - 1)) << _U(29))


@inline
def _to_f32(a):
    x, sign = a & _ABS, (a & _SIGN) >> _32
    if x > _INF:
        return sign | _U(0x7FC00000)
    e = _exponent(x) - 896
    m = (x & _FRACTION) | _HIDDEN
    if x < _U(1 << 52):
        return sign  # below every float32
    if e >= 255:
        return sign | _U(0x7F800000)
    m = _sticky(m, 26)  # 24 bits and three extra ones
    if e < 1:
        m, e = _sticky(m, 1 - e), 1
    if m < _U(1 << 26):
        e = 0
    rest, m = m & _7, m >> _3
    bits = (_U(e) << _U(23)) | (m & _U((1 << 23) - 1))
    if rest > _4 or (rest == _4 and m & _1 != _0):
        bits += _1
    return sign | bits


def _one(function) -> Callable[[], Callable]:
    def build():
        def run(thread, nthreads, out, a):
            st_i64(out, 0, np.int64(function(_U(a))))

        return run

    return build


def _two(function) -> Callable[[], Callable]:
    def build():
        def run(thread, nthreads, out, a, b):
            st_i64(out, 0, np.int64(function(_U(a), _U(b))))

        return run

    return build


def _fused() -> Callable:
    def run(thread, nthreads, out, a, b, c):
        st_i64(out, 0, np.int64(_fma(_U(a), _U(b), _U(c))))

    return run


# Name -> builder of the function (thread, nthreads, out, operands), number of operands.
FUNCTIONS: dict[str, tuple[Callable[[], Callable], int]] = {
    "add": (_two(_add), 2),
    "mul": (_two(_mul), 2),
    "div": (_two(_div), 2),
    "compare": (_two(_less), 2),
    "fma": (_fused, 3),
    "sqrt": (_one(_sqrt), 1),
    "from_integer": (_one(_from_integer), 1),
    "to_integer": (_one(_to_integer), 1),
    "from_f32": (_one(_from_f32), 1),
    "to_f32": (_one(_to_f32), 1),
}
