"""Checks which files may emit LLVM instructions.

Kernel families use operators on numbers that may be vectors; register tiles are in
language/tile.py.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "edgetrain" / "kernels"
FILES = sorted(KERNELS.rglob("*.py"))

# Files that import llvmlite: numbers, loads, register tiles and calls of the language; object
# emission; the interpreter's instructions.
ALLOWED = {
    *(f"language/{name}" for name in ("calls", "number", "prim", "tile", "vector")),
    *(f"emission/{name}" for name in ("engine", "frames", "objects", "program", "text", "values")),
    *(f"run/{name}" for name in ("instructions", "intrinsics")),
}
# Files that call a builder's arithmetic, once for both numbers and vectors.
LANGUAGE = {
    *(name for name in ALLOWED if name.startswith("language/")),
    *(
        f"language/{name}"
        for name in ("formula", "mathf", "packed", "power", "rng", "square", "transform")
    ),
}
ARITHMETIC = {
    "add", "sub", "mul", "sdiv", "urem", "fadd", "fsub", "fmul", "fdiv", "fneg", "select", "lshr",
    "ashr", "shl", "and_", "or_", "xor", "icmp_signed", "icmp_unsigned", "fcmp_ordered",
    "fcmp_unordered", "fpext", "fptrunc", "sitofp", "fptosi",
}  # fmt: skip


def _name(path: Path) -> str:
    return path.relative_to(KERNELS).with_suffix("").as_posix()


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def _trees() -> Iterator[tuple[str, ast.Module]]:
    return ((_name(path), ast.parse(path.read_text())) for path in FILES)


def _importers() -> set[str]:
    return {
        name
        for name, tree in _trees()
        if any(module.partition(".")[0] == "llvmlite" for module in _imports(tree))
    }


def test_instructions_are_emitted_by_at_most_thirteen_files():
    assert len(ALLOWED) <= 13
    assert _importers() == ALLOWED, "a file that no longer imports llvmlite leaves the list"


def _emits(tree: ast.Module) -> bool:
    """Whether the code calls a builder's arithmetic: `builder.fmul(...)` or `b.fmul(...)`."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ARITHMETIC
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("builder", "b")
        for node in ast.walk(tree)
    )


def test_only_the_language_emits_arithmetic():
    """Kernels use operators instead."""
    rooms = ("emission/", "run/", "loops/", "linking/", "cache/")
    found = {name for name, tree in _trees() if _emits(tree) and not name.startswith(rooms)}
    assert found <= LANGUAGE
