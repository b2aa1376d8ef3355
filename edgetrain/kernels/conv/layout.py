"""Sizes that a kernel's declaration and its code share, and the parts of its scratch."""

import ast
import functools
from collections import namedtuple


class _Substituted(ast.NodeTransformer):
    def __init__(self, known: dict[str, ast.expr]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.known.get(node.id, node)


class _Coded(ast.NodeTransformer):
    """Names that are no values become fields of k, divisions those of language/prim.py."""

    def __init__(self, values: frozenset[str]) -> None:
        self.values = values

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return ast.Call(node.func, [self.visit(arg) for arg in node.args], [])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node if node.id in self.values else ast.parse(f"k.{node.id}", mode="eval").body

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        called = {ast.FloorDiv: "div", ast.Mod: "mod"}.get(type(node.op))
        if called is None:
            return ast.BinOp(left, node.op, right)
        return ast.Call(ast.Name(called), [left, right], [])


class Layout:
    """Named sizes and parts of scratch, as expressions of a kernel's integers.

    Args:
      sizes: each may use the integers and the sizes before it.
      parts: bytes of each part, in order. Each begins at a multiple of 64: where the bytes are not
        known to be one, they are at least 63 more than are used.
    """

    def __init__(self, sizes: dict[str, str], parts: dict[str, str]) -> None:
        self.sizes, self.parts = sizes, parts

    @functools.cached_property
    def nbytes(self) -> str:
        """The whole scratch as one expression of the integers, for a declaration."""
        known: dict[str, ast.expr] = {}
        for name, text in self.sizes.items():
            known[name] = _Substituted(known).visit(ast.parse(text, mode="eval").body)
        whole = ast.parse(" + ".join(self.parts.values()), mode="eval").body
        return ast.unparse(_Substituted(known).visit(whole))

    @functools.cached_property
    def places(self):
        """Inline function (address of the scratch, operands): record of the sizes and of the
        addresses of the parts."""
        from ..language.inlining import inline
        from ..language.prim import div, mod
        from ..language.source import function_of

        sizes, names = frozenset(self.sizes), [*self.sizes, *self.parts]

        def code(text: str) -> str:
            return ast.unparse(_Coded(sizes).visit(ast.parse(text, mode="eval").body))

        lines = [f"{name} = {code(text)}" for name, text in self.sizes.items()]
        at = "scratch"
        for name, text in self.parts.items():
            lines += [f"{name} = {at}"]
            at = f"{name} + (({code(text)}) & -64)"
        body = "\n    ".join([*lines, f"return Places({', '.join(names)})"])
        scope = {"div": div, "mod": mod, "Places": namedtuple("Places", names)}
        text = f"def places(scratch, k):\n    {body}\n"
        return inline(function_of(text, scope))
