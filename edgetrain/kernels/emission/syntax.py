"""Syntax trees of functions, found by the source position in their code objects."""

import ast
import functools
import linecache
from collections.abc import Callable, Iterator
from typing import NamedTuple

Node = ast.FunctionDef | ast.Lambda


class Written(NamedTuple):
    """A function's source.

    Attributes:
      body: its statements.
      kept: variables that need no memory: assigned once and read only in the scope of that
        assignment.
    """

    body: list[ast.stmt]
    kept: frozenset[str]


def written(function: Callable) -> Written:
    """A function's source."""
    return _of_code(function.__code__)


@functools.cache
def _of_code(code) -> Written:
    result = _nodes(code.co_filename).get((code.co_firstlineno, code.co_name), [])
    names = list(code.co_varnames[: code.co_argcount])
    result = [node for node in result if [item.arg for item in node.args.args] == names]
    if len(result) > 1:
        result = [node for node in result if _holds(node, code)]
    if not result:
        raise LookupError(
            f"{code.co_filename}:{code.co_firstlineno}: the source of {code.co_name} was not found"
        )
    node = result[0]
    if isinstance(node, ast.Lambda):
        body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
    else:
        body = node.body
    return Written(body, _kept(body, names))


def _holds(node: Node, code) -> bool:
    """Whether a lambda, one of several in a line, is the one that this code was compiled from."""
    inner = node.body if isinstance(node, ast.Lambda) else node
    places = [p for p in code.co_positions() if p[0] is not None and p[2] is not None]
    line, _, column, _ = places[-1] if places else (None,) * 4
    first = inner.lineno, inner.col_offset  # type: ignore[union-attr]
    last = inner.end_lineno, inner.end_col_offset  # type: ignore[union-attr]
    return line is None or first <= (line, column) <= last


@functools.cache
def _nodes(file: str) -> dict[tuple[int, str], list[Node]]:
    """The functions of a file by their first line and name."""
    out: dict[tuple[int, str], list[Node]] = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            out.setdefault((first, node.name), []).append(node)
        elif isinstance(node, ast.Lambda):
            out.setdefault((node.lineno, "<lambda>"), []).append(node)
    return out


def _kept(body: list[ast.stmt], parameters: list[str]) -> frozenset[str]:
    given: dict[str, list[_Given]] = {}
    for item in _given(body):
        given.setdefault(item.name, []).append(item)
    reads = _reads(body)
    of_blocks = {id(body): reads}
    kept = {name for name in parameters if name not in given}
    for name, places in given.items():
        if len(places) == 1 and name not in parameters:
            block = places[0].block
            if id(block) not in of_blocks:
                of_blocks[id(block)] = _reads(block)
            inside = of_blocks[id(block)].get(name, [])
            after = all(place > places[0].place for place in inside)
            if after and len(inside) == len(reads.get(name, [])):
                kept.add(name)
    return frozenset(kept)


class _Given(NamedTuple):
    """An assignment of a variable: its name, the statements around it, and its place."""

    name: str
    block: list[ast.stmt]
    place: tuple[int, int]


def _given(body: list[ast.stmt]) -> Iterator[_Given]:
    for item in body:
        if isinstance(item, (ast.Assign, ast.AugAssign, ast.For)):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            times = 2 if isinstance(item, ast.AugAssign) else 1
            block = item.body if isinstance(item, ast.For) else body
            for node in (node for target in targets for node in ast.walk(target)):
                if isinstance(node, ast.Name):
                    yield from [_Given(node.id, block, (item.lineno, item.col_offset))] * times
        for inner in ("body", "orelse"):
            yield from _given(getattr(item, inner, []))


def _reads(body: list[ast.stmt]) -> dict[str, list[tuple[int, int]]]:
    out: dict[str, list[tuple[int, int]]] = {}
    for item in body:
        for node in ast.walk(item):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                out.setdefault(node.id, []).append((node.lineno, node.col_offset))
    return out
