"""Expressions in declarations: integers, names, arithmetic and comparisons, nothing else.

Declarations come from the families' sources or from the file of an earlier start. Neither is run as
Python: an expression is parsed by the grammar below and evaluated as a tree.

    max(n, 1) * c // 2        lanes >= 4 and S == 'f16'        x if a < b else 0

Functions of groups of integers: `prod(dims)`, `least(dims)`, and `covers(n, origin, dims, steps,
...)`, which is true if every origin + sum(i * step), 0 <= i < dim, is in [0, n). Steps may be
negative.
"""

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Expression = Callable[[Mapping[str, Any]], Any]

_PRODUCTS = {"*": operator.mul, "//": operator.floordiv, "%": operator.mod}
_SUMS = {"+": operator.add, "-": operator.sub}
_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KEYWORDS = {"if", "else", "and", "or", "not"}
_WORD = re.compile(r"\d+|'[^'\\]*'|[A-Za-z_]\w*|//|[<>=!]=|\S", re.ASCII)


def _covers(n: int, origin: int, *walks: Sequence[int]) -> bool:
    pairs = zip(walks[::2], walks[1::2], strict=True)
    moves = [(d - 1) * s for dims, steps in pairs for d, s in zip(dims, steps, strict=True)]
    low, high = (sum(choice(0, move) for move in moves) for choice in (min, max))
    return origin + low >= 0 and origin + high < n


# name -> function and its least number of arguments
_FUNCTIONS: dict[str, tuple[Callable, int]] = {
    "min": (min, 2),
    "max": (max, 2),
    "least": (min, 1),
    "prod": (math.prod, 1),
    "covers": (_covers, 4),
}


@functools.cache
def expression(text: str) -> Expression:
    """A function that evaluates the expression, given the values of names.

    Raises:
      ValueError: outside the grammar.
    """
    return functools.partial(_value, tree_of(text))


def tree_of(text: str) -> Any:
    """Parse an expression to a tree; see the comment on trees below.

    Raises:
      ValueError: outside the grammar.
    """
    words = [*_WORD.findall(text), ""][::-1]
    try:
        tree = _choice(words)
        _pass(words, "")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expression {text!r} in a kernel declaration: {error}") from None
    return tree


class Later:
    """An expression that is parsed on first use. For most kernels that a Program names, at most
    half of the expressions are ever used."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, names: Mapping[str, Any]) -> Any:
        return expression(self.text)(names)


later = functools.cache(Later)  # variants of a kernel share most of theirs


def forget() -> None:
    """Free the parsed expressions: once a device has proved its tapes, it needs none of them."""
    expression.cache_clear()


def _value(tree: Any, names: Mapping[str, Any]) -> Any:
    """Evaluate a tree."""
    if type(tree) is str:
        return names[tree]
    if type(tree) is not tuple:
        return tree
    apply = tree[0]
    if apply is str:
        return tree[1]
    if apply is all or apply is any:
        return apply(_value(part, names) for part in tree[1:])
    if apply is None:
        return _value(tree[2 if _value(tree[1], names) else 3], names)
    return apply(*[_value(part, names) for part in tree[1:]])


# Below, `words` holds the unread words in reverse order; "" marks the end. Each function parses an
# operator of its own precedence or tighter, with Python's precedence, and returns a compact tree:
# an int is itself, a str is a name, (str, text) a string; (None, test, yes, no) is a conditional,
# (all, ...) and (any, ...) stop early; anything else is (function, operands ...).


def _taken(words: list[str], *expected: str) -> str:
    return words.pop() if words[-1] in expected else ""


def _pass(words: list[str], expected: str) -> None:
    if words.pop() != expected:
        raise ValueError(f"expected {expected or 'its end'}")


def _choice(words: list[str]) -> Any:
    tree = _either(words)
    if not _taken(words, "if"):
        return tree
    test = _either(words)
    _pass(words, "else")
    return None, test, tree, _choice(words)


def _either(words: list[str]) -> Any:
    return _joined(words, "or", any, _both)


def _both(words: list[str]) -> Any:
    return _joined(words, "and", all, _negated)


def _joined(words: list[str], word: str, apply: Callable, part: Callable) -> Any:
    parts = [part(words)]
    while _taken(words, word):
        parts.append(part(words))
    return (apply, *parts) if len(parts) > 1 else parts[0]


def _negated(words: list[str]) -> Any:
    return (operator.not_, _negated(words)) if _taken(words, "not") else _compared(words)


def _compared(words: list[str]) -> Any:
    left, pairs = _sum(words), []
    while sign := _taken(words, *_COMPARISONS):
        right = _sum(words)
        pairs.append((_COMPARISONS[sign], left, right))
        left = right
    return (all, *pairs) if len(pairs) > 1 else pairs[0] if pairs else left


def _sum(words: list[str]) -> Any:
    return _folded(words, _SUMS, _product)


def _product(words: list[str]) -> Any:
    return _folded(words, _PRODUCTS, _signed)


def _folded(words: list[str], signs: Mapping[str, Callable], part: Callable) -> Any:
    tree = part(words)
    while sign := _taken(words, *signs):
        tree = signs[sign], tree, part(words)
    return tree


def _signed(words: list[str]) -> Any:
    return (operator.neg, _signed(words)) if _taken(words, "-") else _single(words)


def _single(words: list[str]) -> Any:
    word = words.pop()
    if word.isdecimal():
        return int(word)
    if len(word) > 1 and word[0] == "'":
        return str, word[1:-1]
    if word == "(":
        tree = _choice(words)
        _pass(words, ")")
        return tree
    if not word.isidentifier() or word in _KEYWORDS:
        raise ValueError(f"unexpected {word!r}" if word else "unexpected end")
    return _call(word, words) if _taken(words, "(") else word


def _call(name: str, words: list[str]) -> Any:
    function, least = _FUNCTIONS.get(name, (None, 0))
    if function is None:
        raise ValueError(f"unknown function {name!r}")
    operands = [_choice(words)]
    while _taken(words, ","):
        operands.append(_choice(words))
    _pass(words, ")")
    if len(operands) < least:
        raise ValueError(f"{name!r} takes at least {least} operands")
    return function, *operands
