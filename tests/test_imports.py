"""A name that moved within the project is imported from its new place everywhere."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = "benchmarks", "device_tests", "edgetrain", "examples", "exporters", "tests", "tools"


def imported(path: Path) -> list[tuple[str, str]]:
    """Module and name of each `from ... import` of a project module in a file."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.partition(".")[0] in FOLDERS:
                found += [(module, alias.name) for alias in node.names if alias.name != "*"]
    return found


def exists(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_imported_name_exists(folder):
    missing = [
        f"{path.relative_to(ROOT)}: {module} has no {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module, name in imported(path)
        if not exists(module, name)
    ]
    assert not missing, missing
