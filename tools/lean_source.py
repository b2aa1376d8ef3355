"""Sources as a device's wheel holds them: without docstrings and without what functions say of the
types that they take, each line where it was."""

import ast
from pathlib import Path

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HAVE_ONE = (ast.Module, ast.ClassDef, *_FUNCTIONS)
Place = tuple[int, int]  # line from 0 on, byte in it


def without_docstrings(text: str) -> str:
    """The source, with blank lines where docstrings were (`...` where a body was nothing else)."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, _HAVE_ONE) or ast.get_docstring(node, clean=False) is None:
            continue
        found = node.body[0]
        first, last = found.lineno - 1, (found.end_lineno or found.lineno) - 1
        start = lines[first].encode()[: found.col_offset].decode()
        rest = lines[last].encode()[found.end_col_offset :].decode()
        alone = len(node.body) == 1 or start.strip() or rest.strip()
        lines[first : last + 1] = [""] * (last + 1 - first)
        lines[first] = f"{start}...{rest}" if alone else ""
    return "".join(f"{line}\n" for line in lines)


def without_annotations(text: str) -> str:
    """The source without the annotations of functions; those of classes are fields, and stay."""
    lines = [line.encode() for line in text.splitlines()]
    cuts: list[tuple[Place, Place]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _FUNCTIONS):
            given = node.args
            some = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
            for one in some:
                if one is not None and one.annotation is not None:
                    name = one.lineno - 1, one.col_offset + len(one.arg.encode())
                    cuts.append((name, _end(one)))
            if node.returns is not None:
                cuts.append((_arrow(lines, node.returns), _colon(lines, node.returns)))
    for (line, start), (last, stop) in sorted(cuts, reverse=True):
        whole = lines[line][:start] + lines[last][stop:]
        lines[line : last + 1] = [whole, *[b""] * (last - line)]
    return "".join(f"{line.decode()}\n" for line in lines)


def _end(node: ast.expr | ast.arg) -> Place:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno - 1, node.end_col_offset


def _arrow(lines: list[bytes], returns: ast.expr) -> Place:
    """Where the `->` before a result's annotation is: its parentheses may begin on another line."""
    line, before = returns.lineno - 1, lines[returns.lineno - 1][: returns.col_offset]
    while b"->" not in before:
        line -= 1
        before = lines[line]
    return line, before.rindex(b"->")


def _colon(lines: list[bytes], returns: ast.expr) -> Place:
    """Where a result's annotation has ended, its parentheses too."""
    line, at = _end(returns)
    while b":" not in lines[line][at:]:
        line, at = line + 1, 0
    return line, lines[line].index(b":", at)


def strip(folder: Path) -> None:
    """Make every source below a folder lean."""
    for path in folder.rglob("*.py"):
        path.write_text(without_docstrings(without_annotations(path.read_text())))
