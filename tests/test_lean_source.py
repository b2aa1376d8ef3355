"""Sources of the runtime's wheel: what goes, what stays, and where lines are."""

import ast
from pathlib import Path

from tools.lean_source import without_annotations, without_docstrings

SOURCE = '''\
def f(a: int, *rest: dict[str,
        int], b: str = "x:", **more: "é") -> tuple[
    int,
    str,
]:
    """Says."""
    c: int = a
    return c, b


class Point:
    x: int = 0

    async def far(
        self, other: "Point"
    ) -> (
        float
    ): return {"->": 1.0}["->"]
'''


def test_annotations_of_functions_go_and_fields_keep_theirs() -> None:
    lean = without_docstrings(without_annotations(SOURCE))
    expected = """\
def f(a, *rest, b='x:', **more):
    c: int = a
    return (c, b)

class Point:
    x: int = 0

    async def far(self, other):
        return {'->': 1.0}['->']"""
    assert ast.unparse(ast.parse(lean)) == expected


def test_every_source_stays_the_same_code_on_the_same_lines() -> None:
    paths = sorted(Path("edgetrain").rglob("*.py"))[::7]
    assert paths
    for path in paths:
        text = path.read_text()
        lean = without_annotations(text)
        assert _bare(lean) == _bare(text), path
        assert lean.count("\n") == text.count("\n")


def _bare(text: str) -> list[tuple[str, int]]:
    """Statements without annotations of functions, and their lines."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return [(ast.dump(n), n.lineno) for n in ast.walk(tree) if isinstance(n, ast.stmt)]
