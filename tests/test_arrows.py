"""The shape of the house: who may import whom, and the size limits of files and functions."""

import ast
import functools
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.wheels import RUNTIME

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "edgetrain"

# Room -> rooms it may import.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "ir": {"errors"},
    "formats": {"ir", "errors", "units"},
    "kernels": {"formats", "errors", "units"},
    "options": {"formats", "kernels", "losses", "optim", "sparse", "errors", "units"},
    "program": {"ir", "formats", "kernels", "options", "errors", "units"},
    "checker": {"ir", "program", "kernels", "formats", "errors"},
    "ops": {"ir", "formats", "kernels", "errors", "units"},
    "importer": {"ir", "ops", "errors", "units"},
    "losses": {"ir", "formats", "errors", "units"},
    "optim": {"ir", "formats", "kernels", "errors", "units"},
    "sparse": {"ir", "formats", "optim", "errors", "units"},
    "compiler": {
        "ir", "formats", "program", "checker", "ops", "losses", "optim", "sparse", "kernels",
        "options", "errors", "units",
    },
    "data": {"errors", "units"},
    "history": {"program", "errors", "units"},
    "screen": {"history", "program", "report", "errors", "units"},
    "runtime": {
        "program", "kernels", "losses", "optim", "options", "sparse", "data", "screen", "history",
        "formats", "errors", "units",
    },
    "flower": {"runtime", "program", "data", "sparse", "formats", "errors", "units"},
    "ort": {
        "api", "runtime", "program", "kernels", "losses", "optim", "errors", "units",
    },
    "report": {"history", "program", "formats", "errors", "units"},
    "bundle": {"kernels", "losses", "optim", "program", "formats", "errors", "units"},
    "api": {
        "checker",
        "compiler", "ir", "ops", "losses", "optim", "formats", "program", "runtime", "kernels",
        "importer", "bundle", "data", "screen", "options", "errors", "units",
    },
    "migration": {"compiler", "importer", "ops", "program", "runtime", "errors", "units"},
    "demo": {"api", "optim", "program", "runtime", "units"},
    "lr_finder": {"api", "ops", "program", "runtime", "screen", "errors", "units"},
    "callbacks": {"runtime"},
    "__main__": {"cli"},
    "cli": {
        "api", "bundle", "compiler", "ir", "ops", "losses", "optim", "sparse", "formats", "program",
        "migration", "importer", "runtime", "data", "kernels", "errors", "units", "exporters",
        "report", "screen", "history", "demo", "options",
    },
}  # fmt: skip
# Library -> the rooms that may import it.
LIBRARIES = {
    "onnx": {"importer"},
    "onnx_ir": set(),
    "onnxruntime": set(),
    "torch": set(),
    "numba": {"kernels"},
    "llvmlite": {"kernels"},
    "rich": {"screen"},
    "PIL": {"data"},
    "flwr": {"flower"},
    "matplotlib": {"report"},
    "pandas": set(),
    "scipy": {"compiler"},
}
# `exporters` is only imported inside functions, by code that delegates work to it.
EXPORTERS = {"cli"}

# Files of formulas, each of which is described by its row in a table.
DESCRIBED_IN_ROWS = {
    f"edgetrain.kernels.elementwise.{name}" for name in ("formulas", "pair_formulas")
}

# Room -> most files at its root; the others are in folders named by their purpose.
FLAT_FILES = {"kernels": 6, "cli": 12, "compiler": 12, "runtime": 12, "data": 12}

FILE_LINES, FUNCTION_LINES, KERNEL_LINES = 600, 60, 80
FILES = sorted(
    path for folder in ("edgetrain", "exporters") for path in (ROOT / folder).rglob("*.py")
)


def room_of(path: Path) -> str:
    """First part of the path below edgetrain/."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "exporters":
        parts = ("edgetrain", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path: Path, *, everywhere: bool = True) -> tuple[str, ...]:
    """Absolute names that a file imports; without `everywhere`, only at its own import."""
    tree = ast.parse(path.read_text())
    inside = path.name == "__init__.py"
    package = module_of(path).split(".") + ([""] if inside else [])
    found: list[str] = []
    for node in ast.walk(tree) if everywhere else _at_import(tree.body):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: -node.level]) + "." if node.level else ""
            module = base + (node.module or "")
            found += (f"{module.rstrip('.')}.{alias.name}" for alias in node.names)
    return tuple(found)


def _at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            for part in ("body", "orelse", "finalbody"):
                yield from _at_import(getattr(node, part, []))


def test_every_room_has_its_arrows() -> None:
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert rooms == set(ARROWS)


@pytest.mark.parametrize("room", sorted(ARROWS))
def test_imports_point_upward(room: str) -> None:
    allowed = {f"edgetrain.{other}" for other in ARROWS[room] | {room}}
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        if room_of(path) != room:
            continue
        for name in imports(path):
            inner = name.startswith("edgetrain.") and name != "edgetrain.__version__"
            if inner and not any(name == a or name.startswith(f"{a}.") for a in allowed):
                wrong.append((module_of(path), name))
    assert wrong == []


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_libraries_stay_in_their_rooms(library: str) -> None:
    wrong = [
        module_of(path)
        for path in PACKAGE.rglob("*.py")
        if room_of(path) not in LIBRARIES[library]
        and any(name.split(".")[0] == library for name in imports(path))
    ]
    assert wrong == []


@pytest.mark.parametrize(("room", "most"), FLAT_FILES.items())
def test_a_room_of_many_files_has_folders(room: str, most: int) -> None:
    assert len(list((PACKAGE / room).glob("*.py"))) <= most


def test_exporters_are_imported_late_and_by_few() -> None:
    for path in PACKAGE.rglob("*.py"):
        name = "edgetrain.exporters"
        early = [n for n in imports(path, everywhere=False) if n.startswith(name)]
        late = [n for n in imports(path) if n.startswith(name)]
        assert not early and (not late or room_of(path) in EXPORTERS), path


def test_what_a_device_has_needs_nothing_else() -> None:
    """The rooms of edgetrain-runtime; its command line imports the others only on demand."""
    rooms = {name.removesuffix(".py") for name in RUNTIME} - {"__init__", "py.typed", "__main__"}
    for room in rooms - {"cli", "screen"}:
        assert ARROWS[room] <= rooms, room
    for name in ("__init__", "parser/arguments", "parser/choices", "commands/train"):
        early = {
            imported.split(".")[1]
            for imported in imports(PACKAGE / "cli" / f"{name}.py", everywhere=False)
            if imported.startswith("edgetrain.") and imported != "edgetrain.__version__"
        }
        assert early <= rooms, name


def test_modules_import_each_other_in_no_circle() -> None:
    modules = {module_of(path): path for path in FILES}
    edges = {}
    for module, path in modules.items():
        found = set()
        for name in imports(path, everywhere=False):
            parts = name.split(".")
            target = next(
                (c for k in range(len(parts), 0, -1) if (c := ".".join(parts[:k])) in modules), None
            )
            if target is not None and target != module:
                found.add(target)
        edges[module] = found
    while leaves := {module for module, found in edges.items() if not found & edges.keys()}:
        edges = {module: found for module, found in edges.items() if module not in leaves}
    assert sorted(edges) == []


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines of code) of every function, without its docstring and inner functions."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
            for inner in ast.walk(node):
                if inner is not node and isinstance(inner, ast.FunctionDef):
                    lines -= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
            yield node.name, len(lines)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_files_and_functions_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES
    compiled = "kernels" in path.parts or "@hot" in path.read_text()
    most = KERNEL_LINES if compiled else FUNCTION_LINES
    assert [(name, lines) for name, lines in functions(path) if lines > most] == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_every_module_and_public_name_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text())
    kinds = ast.FunctionDef | ast.ClassDef
    bare = [
        node.name
        for node in tree.body
        if isinstance(node, kinds)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
        # what a table of rules or kernels lists by name is described in that table
        and not (isinstance(node, ast.FunctionDef) and node.decorator_list)
    ]
    assert bare == [] or module_of(path) in DESCRIBED_IN_ROWS
    assert ast.get_docstring(tree) is not None or not path.read_text().strip()


def test_nothing_is_left_undone() -> None:
    words = ("TODO", "FIXME", "XXX", "HACK")
    left = []
    for path in FILES:
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.COMMENT and any(word in token.string for word in words):
                left.append((module_of(path), token.start[0]))
    assert left == []
