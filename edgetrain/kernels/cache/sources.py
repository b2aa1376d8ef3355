"""Where this package's sources are, and what a runtime without them was built with.

An installed runtime has no kernel sources, only `made.json`, which records their digests.
"""

import functools
import json
from pathlib import Path
from typing import Any

from ...units.sha import sha256

ROOT = Path(__file__).parents[1]
DECLARING = (".optim",)  # rooms beside this one whose plug-ins bring kernels, as modules are named
MADE, DECLARATIONS = "made.json", "declarations.txt"


@functools.cache
def made() -> dict[str, Any] | None:
    """The record that a runtime was built with: `package`, and `digests` by module; else None."""
    path = ROOT / MADE
    return json.loads(path.read_text()) if path.is_file() else None


def declarations() -> Path | None:
    """The declarations file that a runtime was built with, as in registry.py; else None."""
    path = ROOT / DECLARATIONS
    return path if path.is_file() else None


def path_of(module: str) -> Path:
    """Source file of a module, named relative to this package: `language.prim`, `.optim.adam`."""
    root = ROOT.parent if module.startswith(".") else ROOT
    return root / f"{module.lstrip('.').replace('.', '/')}.py"


@functools.cache
def formats() -> list[str]:
    """Formats, whose formulas are kernels' loads and stores."""
    files = sorted((ROOT.parent / "formats").glob("*.py"))
    return [*(f".formats.{path.stem}" for path in files), ".ir.storage"]


@functools.cache
def package_digest() -> str:
    """Digest of all sources of this package, of formats and of the plug-ins that bring kernels."""
    known = made()
    if known is not None:
        return known["package"]
    digest = sha256()
    others = [path for room in DECLARING for path in (ROOT.parent / room[1:]).rglob("*.py")]
    for path in sorted([*ROOT.rglob("*.py"), *others, *map(path_of, formats())]):
        digest.update(path.relative_to(ROOT.parent).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
