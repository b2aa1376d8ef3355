"""Sources as a device's wheel holds them: the same code on the same lines.

Docstrings, comments, deep indentation and code only for type checkers are removed.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable

from .device_modules import Never

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HAVE_ONE = (ast.Module, ast.ClassDef, *_FUNCTIONS)
# Modules whose names are often imported for annotations alone.
_OF_TYPES = ("typing", "collections.abc", "types", "pathlib", "os", "_thread")
Place = tuple[int, int]  # line from 0, byte in the line


def without_docstrings(text: str) -> str:
    """Replace docstrings by blank lines, or by `...` if the body was nothing else."""
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
    """Remove annotations of functions; annotations in classes are fields and stay."""
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
                cuts.append((_arrow(lines, node.returns), _sign(lines, node.returns, b":")))
    return _cut(lines, cuts)


def _cut(lines: list[bytes], cuts: list[tuple[Place, Place]]) -> str:
    """Remove the text between pairs of places; other lines stay where they were."""
    for (line, start), (last, stop) in sorted(cuts, reverse=True):
        whole = lines[line][:start] + lines[last][stop:]
        lines[line : last + 1] = [whole, *[b""] * (last - line)]
    return "".join(f"{line.decode()}\n" for line in lines)


def without_annotations_of_variables(text: str) -> str:
    """Remove annotations of variables with a value, except in classes."""
    lines = [line.encode() for line in text.splitlines()]
    cuts: list[tuple[Place, Place]] = []
    pending: list[ast.AST] = [ast.parse(text)]
    while pending:
        node = pending.pop()
        fields = node.body if isinstance(node, ast.ClassDef) else ()
        pending += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.AnnAssign)]
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.AnnAssign) and child.value and child not in fields:
                cuts.append((_end(child.target), _sign(lines, child.annotation, b"=")))
    return _cut(lines, cuts)


def _end(node: ast.expr | ast.arg) -> Place:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno - 1, node.end_col_offset


def _arrow(lines: list[bytes], returns: ast.expr) -> Place:
    """Position of `->` before a result's annotation; its parentheses may begin on another line."""
    line, before = returns.lineno - 1, lines[returns.lineno - 1][: returns.col_offset]
    while b"->" not in before:
        line -= 1
        before = lines[line]
    return line, before.rindex(b"->")


def _sign(lines: list[bytes], annotation: ast.expr, sign: bytes) -> Place:
    """Position of the sign after an annotation; its parentheses may end on another line."""
    line, at = _end(annotation)
    while sign not in lines[line][at:]:
        line, at = line + 1, 0
    return line, lines[line].index(sign, at)


def without(text: str, blocks: Iterable[Never]) -> str:
    """Remove these statements; a whole block becomes `...`."""
    lines = text.splitlines()
    for statements, whole in blocks:
        if not statements or any(map(_yields, statements)):
            continue  # without its `yield`, a function would no longer be a generator
        first = min(
            n.lineno for n in (statements[0], *getattr(statements[0], "decorator_list", ()))
        )
        start = lines[first - 1][: statements[0].col_offset]
        if start.strip():
            continue
        last = statements[-1].end_lineno or first
        lines[first - 1 : last] = [f"{start}..." if whole else "", *[""] * (last - first)]
    return "".join(f"{line}\n" for line in lines)


def _yields(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(node))


def without_names_of_types(text: str) -> str:
    """Remove names imported for annotations that are no longer used."""
    lines = text.splitlines()
    tree = ast.parse(text)
    used = _words(tree)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in _OF_TYPES and not node.level:
            left = [alias for alias in node.names if (alias.asname or alias.name) in used]
            last = node.end_lineno or node.lineno
            kept = ast.unparse(ast.ImportFrom(node.module, left, 0)) if left else ""
            if len(left) < len(node.names):
                lines[node.lineno - 1 : last] = [kept, *[""] * (last - node.lineno)]
    return "".join(f"{line}\n" for line in lines)


def _words(tree: ast.Module) -> set[str]:
    """Names that a source uses, including those in strings, which may be annotations."""
    result: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            result.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            result.update(re.findall(r"\w+", node.value))
    return result


def without_margins(text: str) -> str:
    """Remove comments and reduce indentation to one space per level."""
    lines = text.split("\n")
    ends, depths = [len(line) for line in lines], [0] * len(lines)
    inside: set[int] = set()  # lines that begin inside a string
    depth, opened = 0, []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name, first, last = tokenize.tok_name[token.type], token.start[0] - 1, token.end[0] - 1
        if name in ("INDENT", "DEDENT"):
            depth += 1 if name == "INDENT" else -1
        elif name == "COMMENT":
            ends[first] = token.start[1]
        elif name.endswith("STRING_START"):
            opened.append(first)
        elif name.endswith("STRING_END"):
            inside.update(range(opened.pop() + 1, last + 1))
        elif name == "STRING":
            inside.update(range(first + 1, last + 1))
        if name not in ("NEWLINE", "NL", "COMMENT", "ENDMARKER"):
            depths[first] = depth
    for k, line in enumerate(lines):
        code = line[: ends[k]]
        code = code if k in inside else " " * depths[k] + code.lstrip()
        lines[k] = code if k + 1 in inside else code.rstrip()
    return "\n".join(lines)


def without_gaps(text: str) -> str:
    """Remove spaces between words and signs."""
    lines = text.split("\n")
    cuts: list[tuple[int, int, int]] = []
    row, column, formatted = -1, 0, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name, (line, start) = tokenize.tok_name[token.type], token.start
        if line == row and start > column and not formatted and name != "COMMENT":
            beside = lines[row - 1][column - 1] + lines[row - 1][start]
            apart = re.fullmatch(r"\w[\w\"']|\d\.", beside) is not None
            cuts.append((row - 1, column + apart, start))
        formatted += name.endswith("STRING_START")
        formatted -= name.endswith("STRING_END")
        row, column = token.end
    for line, start, stop in reversed(cuts):
        lines[line] = lines[line][:start] + lines[line][stop:]
    return "\n".join(lines)


def lean(text: str, blocks: Iterable[Never] = ()) -> str:
    """The source as it is shipped to a device.

    Args:
      blocks: statements that a device never runs.
    """
    text = without_docstrings(without_annotations(without(text, blocks)))
    text = without_annotations_of_variables(text)
    return without_gaps(without_margins(without_names_of_types(text)))
