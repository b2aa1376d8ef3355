"""Sources as a device's wheel holds them: without docstrings, each line where it was."""

import ast
from pathlib import Path

_HAVE_ONE = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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


def strip(folder: Path) -> None:
    """Take the docstrings out of every source below a folder."""
    for path in folder.rglob("*.py"):
        path.write_text(without_docstrings(path.read_text()))
