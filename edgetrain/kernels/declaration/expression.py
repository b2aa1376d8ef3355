"""Expressions of a declaration: integers, names, arithmetic and comparisons, and nothing else.

Declarations come from the families' own sources or from the file of an earlier start. Neither is
run as Python: an expression is parsed, held against the grammar below, and turned into functions.

    max(n, 1) * c // 2        lanes >= 4 and S == 'f16'        x if a < b else 0

Of groups of integers: `prod(dims)`, `least(dims)`, and `covers(n, origin, dims, steps, ...)`:
whether every origin + sum(i * step), 0 <= i < dim, lies in [0, n); steps may be negative.
"""

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Expression = Callable[[Mapping[str, Any]], Any]

_ARITHMETIC: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type, Callable] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type, Callable] = {ast.Not: operator.not_, ast.USub: operator.neg}


def _covers(n: int, origin: int, *walks: Sequence[int]) -> bool:
    pairs = zip(walks[::2], walks[1::2], strict=True)
    moves = [(d - 1) * s for dims, steps in pairs for d, s in zip(dims, steps, strict=True)]
    low, high = (sum(choice(0, move) for move in moves) for choice in (min, max))
    return origin + low >= 0 and origin + high < n


# with how many arguments they take at least
_FUNCTIONS: dict[str, tuple[Callable, int]] = {
    "min": (min, 2),
    "max": (max, 2),
    "least": (min, 1),
    "prod": (math.prod, 1),
    "covers": (_covers, 4),
}


@functools.cache
def expression(text: str) -> Expression:
    """A function of the names' values.

    Raises:
      ValueError: outside the grammar.
    """
    try:
        return functools.partial(_value, _of(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, KeyError) as error:
        raise ValueError(f"expression {text!r} of a kernel's declaration: {error}") from error


class Later:
    """An expression that is parsed when it is first asked: of most kernels that a Program names,
    no more than half are."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, names: Mapping[str, Any]) -> Any:
        return expression(self.text)(names)


later = functools.cache(Later)  # variants of a kernel share most of theirs


def forget() -> None:
    """Give back what was parsed: a device that has proved its tapes asks for none of it again."""
    expression.cache_clear()


def _value(tree: Any, names: Mapping[str, Any]) -> Any:
    """What an expression of `_of` comes to."""
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


def _of(node: ast.expr) -> Any:
    """A tree that takes little room: an int is itself, a str a name, (str, text) a text; (None,
    test, yes, no) a choice, (all, ...) and (any, ...) stop early; else (function, operands ...)."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Constant(value=str() as value):
            return str, value
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)], _of(left), _of(right)
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)], _of(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARISONS[type(op)], _of(left), _of(right)
        case ast.Compare(left=left, ops=[first, *ops], comparators=[middle, *others]):
            both = [ast.Compare(left, [first], [middle]), ast.Compare(middle, ops, others)]
            return all, *map(_of, both)
        case ast.BoolOp(op=op, values=values):
            return all if isinstance(op, ast.And) else any, *map(_of, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return None, _of(test), _of(body), _of(orelse)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args, keywords=[]):
            function, least = _FUNCTIONS[name]
            if len(args) < least:
                raise KeyError(name)
            return function, *map(_of, args)
    raise ValueError(f"expression of a kernel's declaration: {ast.unparse(node)!r} is not in it")
