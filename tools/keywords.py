"""Writes the keywords of `compile` with their types, for editors and type checkers.

    python -m tools.keywords        after an option was added or its type changed

What a call takes is declared once, in edgetrain/options/declared.py; type checkers read classes as
they are written, so these are written from that.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from edgetrain.options.declared import OPTIONS

ROOT = Path(__file__).resolve().parents[1] / "edgetrain"
# Names in types -> where they come from.
_FROM = {
    "Any": "typing", "Mapping": "collections.abc", "Sequence": "collections.abc",
    "Callable": "collections.abc", "Loss": "..losses", "Optimizer": "..optim",
    "Group": "..optim.groups", "Rewiring": "..sparse", "Lora": ".model.lora",
}  # fmt: skip


def of_compile() -> str:
    """The text of edgetrain/compiler/keywords.py."""
    types = {option.name: option.keyword or option.type for option in OPTIONS.values()}
    return _text(types, "compile", "Options", _FROM)


def _text(types: dict[str, str], function: str, table: str, where: dict[str, str]) -> str:
    return "\n".join(
        [
            f'"""The keywords of {function}; python -m tools.keywords writes them."""',
            "",
            *_imports({*re.findall(r"[A-Z]\w+", " ".join(types.values()))} - {"None"}, where),
            "",
            "",
            "class Keywords(TypedDict, total=False):",
            f'    """The fields of `{table}`, as passed to `{function}`."""',
            "",
            *(f"    {name}: {kind}" for name, kind in types.items()),
            "",
        ]
    )


def _imports(names: set[str], where: dict[str, str]) -> Iterator[str]:
    modules: dict[str, list[str]] = {"typing": ["TypedDict"]}
    for name in names:
        modules.setdefault(where[name], []).append(name)
    order = sorted(modules, key=lambda module: (module[:1] == ".", module[:2] != "..", module))
    for module in order:
        if module[:1] == "." and order[order.index(module) - 1][:1] != ".":
            yield ""
        yield f"from {module} import {', '.join(sorted(modules[module], key=str.lower))}"


FILES = {ROOT / "compiler" / "keywords.py": of_compile}

if __name__ == "__main__":
    for path, make in FILES.items():
        path.write_text(make())
