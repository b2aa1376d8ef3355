"""The kernel compiler compared with Python, construct by construct."""

import types
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError

from edgetrain.kernels.emission import lowering
from edgetrain.kernels.language.calls import outline
from edgetrain.kernels.language.inlining import Inline, inline
from edgetrain.kernels.language.prim import st_i64

from .harness import declared, entry


class Pair(NamedTuple):
    """Two numbers."""

    a: int
    b: int


@inline
def _sign(n, otherwise=7):
    if n < 0:
        return -1
    if n > 0:
        return 1
    return otherwise


@inline
def _swapped(pair):
    return Pair(pair.b, pair.a)


@inline
def _applied(function, n):
    return function(n)


def _stored(y, pair: Pair, n):
    st_i64(y, 0, pair.a * n + pair.b)


_store = outline("et_test_stored", _stored)


def _early(n):
    return _sign(n) * 10 + _sign(0) + _sign(0, 2)


def _loops(n):
    total = 0
    for i in range(n, -3, -2):
        if i == 2:
            continue
        if i < -1:
            break
        total += i
    for i in range(0, n, 3):
        total = total * 2 + i
    while total > 40 and total != 47 or total == 13:
        total -= 7
    return total


def _chosen(n):
    items = (5, 6, 7, 8)
    value = items[n & 3] + items[-1] + len(items[1:])
    value = value + (1 if 2 < n <= 5 else -1)
    return value if not (n == 4 or n == 6) else min(value, 3, n)


def _retyped(n):
    value = (n, n + 1)
    total = 0
    for i in range(n):
        value = (i, total)
        value = value[0] + value[1]
        total += value
        value = (i, total)
    return total + value[1]


def _bits(n):
    return ((n << 3) ^ (n >> 1) | 1) & ~4 | (n & 1) << 9


def _records(n):
    pair = _swapped(Pair(n, 3))
    a, (b, c) = pair.b, (pair.a, n in (1, 2))
    return a * 100 + b * 10 + int(c)


def _functions(n):
    total = 0
    for k, item in enumerate((n, 4, n * n)):
        total += _applied(_sign, item) * k + item
    return total


def _generated(n):
    items = tuple(n + i for i in (1, 2, 3))
    n = n + 10
    pairs = tuple(a * b + n for i, (a, b) in enumerate(zip(items, (n, 7, n * n), strict=True)))
    for i, (item, pair) in enumerate(zip(items, pairs[:3], strict=True)):
        items = tuple(n * item + i * (pair - other) for n, other in enumerate(items))
    return items[0] + 10 * items[1] + 100 * items[2] + len(tuple(a for a in ())) + n


CASES = [_early, _loops, _chosen, _retyped, _bits, _records, _functions, _generated]


def _plain(function):
    """Return the function with its inlined helpers as plain Python functions."""
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(names.get(name), Inline):
            names[name] = _plain(names[name].py_func)
    return types.FunctionType(function.__code__, names, argdefs=function.__defaults__)


def _run(function, n: int) -> int:
    body = inline(function)

    def run(thread, nthreads, args):
        st_i64(args.y, 0, body(args.n))

    kernel = declared(f"case{function.__name__}", "y:w:i64[1] n", lambda: run)
    memory = np.zeros(16, np.int64)
    words = np.array([0, n], np.int64)
    entry(kernel, ())(memory.ctypes.data, words.ctypes.data, 0, 1)
    return int(memory[0])


@pytest.mark.parametrize("function", CASES, ids=lambda one: one.__name__.strip("_"))
def test_functions_compute_what_python_does(function) -> None:
    numbers = range(-4, 12)
    assert [_run(function, n) for n in numbers] == [_plain(function)(n) for n in numbers]


def test_an_outlined_function_takes_records_by_their_numbers() -> None:
    def run(thread, nthreads, args):
        _store(args.y, Pair(args.n, 5), 100)

    kernel = declared("outlined", "y:w:i64[1] n", lambda: run)
    memory, words = np.zeros(16, np.int64), np.array([0, 3], np.int64)
    entry(kernel, ())(memory.ctypes.data, words.ctypes.data, 0, 1)
    assert memory[0] == 305


def _text(function) -> str:
    return lowering.native_text(function, "ri", [("y", 0), ("n", 0)])


def test_what_is_known_not_to_happen_is_not_compiled() -> None:
    def of(known):
        def run(thread, nthreads, args):
            if known > 2:
                st_i64(args.y, 0, args.no_such_field)
            st_i64(args.y, 1, _sign(known))

        return run

    assert "icmp" not in _text(of(1))
    with pytest.raises(TypingError, match="Unknown attribute 'no_such_field'"):
        _text(of(3))


def test_a_variable_of_two_types_is_refused_where_both_may_be_there() -> None:
    def run(thread, nthreads, args):
        value = 1
        if args.n > 2:
            value = (1, 2)
        st_i64(args.y, 0, value)

    with pytest.raises(TypingError, match="value") as raised:
        _text(run)
    assert any("test_functions.py" in note for note in raised.value.__notes__)
