"""Sources of the runtime's wheel: what is removed, what stays, and line numbers."""

import ast
from pathlib import Path

from tools import device_modules
from tools.lean_source import (
    lean,
    without_annotations,
    without_docstrings,
    without_gaps,
    without_margins,
)

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
    """Statements without function annotations, with their lines."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return [(ast.dump(n), n.lineno) for n in ast.walk(tree) if isinstance(n, ast.stmt)]


LAYOUT = """\
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import edgetrain.units
if TYPE_CHECKING:
    from .far import Far  # never
LIMIT: "Sequence[int]" = (
    1,  # one
    -2,
)
class Point:
    x: int = 0
    def near(self, a: int) -> "Far":
        from edgetrain.compiler.compile import make_plan
        made: Callable = make_plan
        return made
    def far(self, path: Path) -> str:
        if a  and  not "b":
            return \"\"\"  # kept  \n    deep
        \"\"\" + f"{1 + 1 = }" + r"\\ "
        return self . x if 1 else 0
"""
LEAN = """\




import edgetrain.units


LIMIT=(
1,
-2,
)
class Point:
 x:int=0
 def near(self,a):
  from edgetrain.compiler.compile import make_plan


 def far(self,path):
  if a and not "b":
   return \"\"\"  # kept  \n    deep
        \"\"\"+f"{1 + 1 = }"+r"\\ "
  return self.x if 1 else 0
"""


def test_what_no_device_needs_goes_and_strings_stay_as_they_are() -> None:
    there = {"edgetrain", "edgetrain.units"}
    never = device_modules.never_run(ast.parse(LAYOUT), "edgetrain.errors", there)
    assert lean(LAYOUT, never) == LEAN


def test_spaces_and_comments_go_from_every_source_and_no_code_does() -> None:
    for path in sorted(Path("edgetrain").rglob("*.py"))[3::7]:
        text = path.read_text()
        assert _code(without_gaps(without_margins(text))) == _code(text), path


def _code(text: str) -> list[tuple[str, int]]:
    return [(ast.dump(n), n.lineno) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt)]
