"""Finds the modules of edgetrain-runtime: those that its entry points reach by imports.

Imports are followed at the top of a module, inside its functions, and in the strings by which a
package names members that it imports later (`Members.listed`), but not in code that a device never
runs. A module that needs a missing module at import time is left out too. If a function on a device
asks for it, `units/packages.py` says what to install.
"""

import ast
import functools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

from edgetrain.cli.parser import device_commands
from edgetrain.data.kinds import KINDS

PACKAGE = Path(__file__).resolve().parents[1] / "edgetrain"
# Entry points on a device: `import edgetrain`, the command line, Flower, and the comparison of a
# sensor program's state with a board's (examples/raspberry_pi).
ENTRIES = (
    "edgetrain",
    "edgetrain.__main__",
    "edgetrain.cli.__main__",
    "edgetrain.flower",
    "edgetrain.runtime.samples.check",
    *(f"edgetrain.cli.commands.{name}" for name in device_commands.modules()),
    *(f"edgetrain.data.sources.{kind.file}" for kind in KINDS.values()),
)


def module_of(path: Path) -> str:
    """The module name of a source below edgetrain/."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def path_of(module: str) -> Path | None:
    """The source of a module; None if there is none."""
    place = PACKAGE.parent / module.replace(".", "/")
    found = [path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()]
    return found[0] if found else None


def reached(candidates: Collection[str]) -> set[str]:
    """The modules that a device needs.

    Args:
      candidates: modules in the rooms that a device may have.
    """
    left = _importable(candidates)
    result: set[str] = set()
    pending = [*ENTRIES]
    while pending:
        module = pending.pop()
        if module in left and module not in result:
            result.add(module)
            pending += [*_above(module), *_followed(module, left), *_named(module)]
    return result


def _importable(candidates: Collection[str]) -> set[str]:
    """Candidates that only need other candidates at import time."""
    left = set(candidates)
    while wrong := {m for m in left if not left.issuperset(imported_at_once(m))}:
        left -= wrong
    return left


@functools.cache
def imported_at_once(module: str) -> frozenset[str]:
    """The edgetrain modules that are imported together with a module."""
    tree, package = _parsed(module)
    return frozenset(n for node in _at_once(tree) for n in _names(node, package))


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if is_false(child):
            yield from (below for item in child.orelse for below in _at_once(item))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _at_once(child)


def _followed(module: str, there: Collection[str]) -> set[str]:
    """The modules that a module can import, also inside functions."""
    tree, package = _parsed(module)
    never = {id(s) for block in never_run(tree, module, there) for s in block.statements}
    result: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if id(node) not in never:
            result |= _names(node, package)
            pending += ast.iter_child_nodes(node)
    return result


class Never(NamedTuple):
    """Statements of a block that no device runs; whole: they are the entire block."""

    statements: list[ast.stmt]
    whole: bool


def never_run(node: ast.AST, module: str, there: Collection[str]) -> Iterator[Never]:
    """Code that no device runs: statements after a failing import or under a false condition.

    Args:
      there: modules that a device may have.
    """
    package = _parsed(module)[1]
    for field, value in ast.iter_fields(node):
        block = value if isinstance(value, list) else [value]
        if is_false(node) and field == "body":
            yield Never(block, True)
            continue
        for k, child in enumerate(block):
            if is_false(child) and not child.orelse:
                yield Never([child], len(block) == 1)
            elif isinstance(child, ast.AST):
                if not _names(child, package).issubset(there):
                    yield Never(block[k + 1 :], False)
                    break
                yield from never_run(child, module, there)


@functools.cache
def _parsed(module: str) -> tuple[ast.Module, list[str]]:
    """Parse a module; return its tree and its package."""
    path = path_of(module)
    assert path is not None, module
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return ast.parse(path.read_text()), package.split(".")


def _names(node: ast.AST, package: list[str]) -> frozenset[str]:
    """The edgetrain modules that a statement imports, and their parent packages."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) + 1 - node.level] if node.level else []
        base += [node.module] if node.module else []
        names = [".".join([*base, *name]) for name in ([], *([a.name] for a in node.names))]
    ours = [name for name in names if name.partition(".")[0] == "edgetrain" and path_of(name)]
    return frozenset([*ours, *(above for name in ours for above in _above(name))])


def is_false(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether this is `if TYPE_CHECKING:` or `if is_whole():`, which never holds on a device."""
    if not isinstance(node, ast.If):
        return False
    test = node.test.func if isinstance(node.test, ast.Call) else node.test
    return isinstance(test, ast.Name) and test.id in ("TYPE_CHECKING", "is_whole")


def _named(module: str) -> Iterator[str]:
    """The modules that a package names in strings relative to itself: `sgd`, `sgd.SGD`."""
    path = path_of(module)
    assert path is not None
    if path.name != "__init__.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = f"{module}.{node.value}"
            yield from (one for one in (name, name.rpartition(".")[0]) if path_of(one))


def _above(module: str) -> Iterator[str]:
    """The packages that contain a module."""
    while "." in module:
        module = module.rpartition(".")[0]
        yield module
