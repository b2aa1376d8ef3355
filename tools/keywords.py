"""Writes the keywords of `compile` and `Trainer` with types, for editors and type checkers.

    python -m tools.keywords        after an option was added or its type changed

Options are declared once, in edgetrain/options/declared.py and as fields of `Settings`. Type
checkers only read classes in source form, so this tool generates them from the declarations.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from edgetrain.options.declared import OPTIONS

ROOT = Path(__file__).resolve().parents[1] / "edgetrain"
# Names in types -> the room or module they come from.
_FROM = {
    "Any": "typing", "Callable": "collections.abc", "Group": "edgetrain.optim.groups",
    "Lora": "edgetrain.compiler.model.lora", "Loss": "edgetrain.losses",
    "Mapping": "collections.abc", "Optimizer": "edgetrain.optim", "Rewiring": "edgetrain.sparse",
    "Schedule": "edgetrain.optim", "Sequence": "collections.abc",
}  # fmt: skip


def of_compile() -> str:
    """The text of edgetrain/compiler/keywords.py."""
    types = {option.name: option.keyword or option.type for option in OPTIONS.values()}
    return _text(types, "compile", "Options", "edgetrain.compiler")


def of_trainer() -> str:
    """The text of edgetrain/runtime/training/keywords.py."""
    (table,) = (
        node
        for node in ast.parse((ROOT / "runtime" / "training" / "settings.py").read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    fields = [node for node in table.body if isinstance(node, ast.AnnAssign)]
    types = {ast.unparse(field.target): ast.unparse(field.annotation) for field in fields}
    return _text(types, "Trainer", "Settings", "edgetrain.runtime.training")


def _text(types: dict[str, str], function: str, table: str, package: str) -> str:
    lines = [
        f'"""The keywords of {function}; python -m tools.keywords writes them."""',
        "",
        *_imports({*re.findall(r"[A-Z]\w+", " ".join(types.values()))} - {"None"}, package),
        "",
        "",
        "class Keywords(TypedDict, total=False):",
        f'    """The fields of `{table}`, as passed to `{function}`."""',
        "",
        *(f"    {name}: {kind}" for name, kind in types.items()),
        "",
    ]
    return "\n".join(lines)


def _imports(names: set[str], package: str) -> Iterator[str]:
    modules: dict[str, list[str]] = {"typing": ["TypedDict"]}
    for name in names:
        modules.setdefault(_FROM[name], []).append(name)
    own = {module for module in modules if module.startswith("edgetrain")}
    lines = {module: f"import {', '.join(sorted(modules[module]))}" for module in modules}
    yield from (f"from {module} {lines[module]}" for module in sorted(modules.keys() - own))
    yield ""
    dots = "." * (package.count(".") + 1)
    for module in sorted(own, key=lambda module: (module.startswith(package), module)):
        inner = module.startswith(package)
        path = module.removeprefix(package) if inner else dots + module.removeprefix("edgetrain.")
        yield f"from {path} {lines[module]}"


FILES = {
    ROOT / "compiler" / "keywords.py": of_compile,
    ROOT / "runtime" / "training" / "keywords.py": of_trainer,
}

if __name__ == "__main__":
    for path, make in FILES.items():
        path.write_text(make())
