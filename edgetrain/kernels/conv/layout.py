"""Sizes and parts of a kernel's scratch, written once for its declaration and its code.

The declaration needs the bytes of the whole scratch as one expression of the kernel's integers. The
code needs the value of each size and the address of each part. Both are derived from the same
expressions.
"""

import functools
import operator
import re
from collections import namedtuple
from typing import Any

from ..declaration.expression import tree_of

_NAME = re.compile(r"[A-Za-z_]\w*")


class Layout:
    """Named sizes and the parts of scratch.

    Args:
      sizes: name -> expression of the kernel's integers and of the sizes before it.
      parts: name -> bytes, an expression of the integers and of all sizes. Each part begins at a
        multiple of 64. If its size may not be a multiple of 64, declare 63 bytes more than it uses.
    """

    def __init__(self, sizes: dict[str, str], parts: dict[str, str]) -> None:
        self.sizes, self.parts = sizes, parts

    @functools.cached_property
    def nbytes(self) -> str:
        """Bytes of the whole scratch, as an expression of the integers alone, for a declaration."""
        known: dict[str, str] = {}

        def replaced(text: str) -> str:
            return _NAME.sub(lambda name: known.get(name[0], name[0]), text)

        for name, text in self.sizes.items():
            known[name] = f"({replaced(text)})"
        return replaced(" + ".join(self.parts.values()))

    @functools.cached_property
    def places(self):
        """Inline function (address of the scratch, operands), for the kernel's code.

        It returns a record of all sizes, then the address of each part.
        """
        from ..language.inlining import inline

        record = namedtuple("Places", [*self.sizes, *self.parts])
        fill, names = _nothing(), list(self.sizes)
        for number, text in enumerate(self.sizes.values()):
            fill = _with_size(fill, _function(tree_of(text), names[:number]))
        for text in self.parts.values():
            fill = _with_part(fill, _function(tree_of(text), names))

        @inline
        def places(scratch, args):
            values, _ = fill(scratch, args)
            return record(*values)

        return places


# Inline functions (scratch, args) -> (values so far, address of the next part):


def _nothing():
    from ..language.inlining import inline

    @inline
    def nothing(scratch, args):
        return (), scratch

    return nothing


def _with_size(fill, size):
    from ..language.inlining import inline

    @inline
    def with_size(scratch, args):
        values, start = fill(scratch, args)
        return values + (size(args, values),), start  # noqa: RUF005

    return with_size


def _with_part(fill, nbytes):
    from ..language.inlining import inline

    @inline
    def with_part(scratch, args):
        values, start = fill(scratch, args)
        return values + (start,), start + (nbytes(args, values) & -64)  # noqa: RUF005

    return with_part


def _function(tree: Any, sizes: list[str]):
    """Inline function (operands, values of sizes) that evaluates an expression's tree."""
    from ..language.inlining import inline
    from ..language.prim import div, mod

    if isinstance(tree, int):
        return inline(lambda args, values: tree)
    if isinstance(tree, str):
        place = sizes.index(tree) if tree in sizes else 0
        if tree in sizes:
            return inline(lambda args, values: values[place])
        return inline(lambda args, values: getattr(args, tree))
    apply, first, *others = tree
    apply = {operator.floordiv: div, operator.mod: mod}.get(apply, apply)
    condition = _function(first, sizes)
    if apply is operator.not_:
        return inline(lambda args, values: not condition(args, values))
    if apply is None:
        yes, no = (_function(other, sizes) for other in others)
        return inline(
            lambda args, values: yes(args, values) if condition(args, values) else no(args, values)
        )
    for other in others:
        condition = _joined(apply, condition, _function(other, sizes))
    return condition


def _joined(apply: Any, condition: Any, other: Any):
    from ..language.inlining import inline

    if apply is all:
        return inline(lambda args, values: condition(args, values) and other(args, values))
    if apply is any:
        return inline(lambda args, values: condition(args, values) or other(args, values))
    return inline(lambda args, values: apply(condition(args, values), other(args, values)))
