"""The language of kernels: who emits LLVM instructions, and what is still written in them.

A family is arithmetic on numbers that may be vectors. What follows is the whole list of files that
do not keep to this yet, with a reason each; it gets shorter, never longer.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "edgetrain" / "kernels"
FILES = sorted(KERNELS.rglob("*.py"))

# Files that import llvmlite: the definition of numbers, memory and calls; what makes objects; what
# interprets instructions.
LANGUAGE = {"block", "calls", "number", "prim", "vector"}
EMISSION = {"engine", "frames", "objects", "program", "text"}
INTERPRETER = {"instructions", "words"}
# Register tiles whose loops are instructions, so that sums stay in registers.
TILES = {
    "conv/csr_axpy": "rows of sums by nonzeros",
    "conv/csr_dot": "dot products by nonzeros",
    "gemm/tile": "tiles of rows and columns, squares that are transposed",
    "language/vector_gemm": "tiles of convolutions",
    "recurrent/tile": "tiles of few rows",
}
ALLOWED = {
    *(f"language/{name}" for name in LANGUAGE),
    *(f"emission/{name}" for name in EMISSION),
    *(f"run/{name}" for name in INTERPRETER),
    *TILES,
}
# Arithmetic by a builder, outside of the files above: of numbers and vectors alike.
ALIKE = {"language/mathf", "language/packed", "language/power", "language/rng"}
ARITHMETIC = {"add", "sub", "mul", "fadd", "fsub", "fmul", "fdiv", "select", "fneg", "lshr", "ashr"}


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


def test_instructions_are_emitted_by_the_files_that_define_the_language():
    assert _importers() == ALLOWED, "a file that no longer imports llvmlite leaves the list"


def _emits(tree: ast.Module) -> bool:
    """Whether a builder's arithmetic is written: `builder.fmul(...)`, or `b.fmul(...)`."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ARITHMETIC
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("builder", "b")
        for node in ast.walk(tree)
    )


def test_no_mathematics_stands_twice():
    """What a builder writes is written once for numbers and vectors, or is a register tile."""
    rooms = ("emission/", "run/", "loops/", "linking/", "cache/")
    found = {name for name, tree in _trees() if _emits(tree) and not name.startswith(rooms)}
    # csr_loops counts nonzeros for the two files of sparse rows
    expected = ALIKE | set(TILES) | {"conv/csr_loops"} | {f"language/{n}" for n in LANGUAGE}
    assert found <= expected and set(TILES) <= found, sorted(found ^ expected)
