"""The sources that a kernel is made of, and their digests, which show whether code is current.

An installed runtime has no kernel sources, only `made.json`, which records their digests.
"""

import functools
import json
from pathlib import Path
from typing import Any

from ...units.sha import sha256

# Modules that call and compile the planner's loops.
LOOPS = tuple(f"loops.{name}" for name in ("functions", "instructions", "kinds", "text"))
# Modules that find, declare, cache, link and load kernels; they don't affect any kernel's code.
_MACHINERY = (
    "declaration.", "registry", "targets", "tapes.decode", "emission.code", "emission.engine",
    "emission.rewritten", "cache.", "linking.", "loops.",
)  # fmt: skip
_ROOT = Path(__file__).parents[1]
DECLARING = (".optim",)  # rooms beside this one whose plug-ins bring kernels, as modules are named
# The modules of those rooms, and of formats, that kernels' code is made of.
_BESIDE = (".formats.", ".ir.storage", ".optim.schedules.", ".optim.kernels")
COMPILERS = "emission.lowering", "emission.objects"
MADE, DECLARATIONS = "made.json", "declarations.txt"


@functools.cache
def made() -> dict[str, Any] | None:
    """The record that a runtime was built with: `package`, and `digests` by module; else None."""
    path = _ROOT / MADE
    return json.loads(path.read_text()) if path.is_file() else None


def declarations() -> Path | None:
    """The declarations file that a runtime was built with, as in registry.py; else None."""
    path = _ROOT / DECLARATIONS
    return path if path.is_file() else None


def path_of(module: str) -> Path:
    """Source file of a module, named relative to this package: `language.prim`, `.optim.adam`."""
    root = _ROOT.parent if module.startswith(".") else _ROOT
    return root / f"{module.lstrip('.').replace('.', '/')}.py"


@functools.cache
def _direct_imports(module: str) -> tuple[str, ...]:
    """What one file imports from this package, anywhere in it; some names may not be modules."""
    own = f".{_ROOT.name}."
    import ast  # only needed if something may have to be compiled

    out: list[str] = []
    folder = module.split(".")[:-1]
    if module.startswith("."):
        out.append(f"{'.'.join(folder)}.kernels")  # declares the plug-in's kernels
    for node in ast.walk(ast.parse(path_of(module).read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        above = node.level - len(folder) - 1
        if above <= 0:
            base = [*folder[: len(folder) + 1 - node.level], *filter(None, [node.module])]
            out += [".".join(base), *(".".join([*base, alias.name]) for alias in node.names)]
        elif above == 1 and not module.startswith("."):
            rooms = [(node.module or alias.name).partition(".")[0] for alias in node.names]
            out += _formats() if "formats" in rooms else []
    beside = (own, *_BESIDE)
    kept = [n for n in out if not n.startswith(".") or any(part in n for part in beside)]
    return tuple(name.removeprefix(own) for name in kept if name != module)


@functools.cache
def _formats() -> list[str]:
    """Formats, whose formulas are kernels' loads and stores."""
    files = sorted((_ROOT.parent / "formats").glob("*.py"))
    return [*(f".formats.{path.stem}" for path in files), ".ir.storage"]


@functools.cache
def closure(module: str) -> tuple[str, ...]:
    """Files that a family's code depends on, sorted: the module, the files of this package that it
    imports, and the compiler's; () if there is no such module."""
    if not path_of(module).is_file():
        return ()
    result: set[str] = set()
    pending = [module, *COMPILERS]
    while pending:
        name = pending.pop()
        if name not in result and not name.startswith(_MACHINERY) and path_of(name).is_file():
            result.add(name)
            pending += _direct_imports(name)
    return tuple(sorted(result))


@functools.cache
def file_digest(module: str) -> str:
    """SHA-256 of one file; "" if it is missing."""
    path = path_of(module)
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@functools.cache
def nbytes(module: str) -> int:
    """Size of all sources that a module's kernels are made of: an estimate of compile time."""
    return sum(path_of(name).stat().st_size for name in closure(module))


@functools.cache
def digest(module: str) -> str:
    """Digest of all sources that a module's kernels are made of."""
    known = made()
    if known is not None:
        return known["digests"].get(module, "")
    parts = " ".join(f"{name} {file_digest(name)}" for name in closure(module))
    return sha256(parts.encode()).hexdigest()


@functools.cache
def package_digest() -> str:
    """Digest of all sources of this package, of formats and of the plug-ins that bring kernels."""
    known = made()
    if known is not None:
        return known["package"]
    whole = sha256()
    others = [path for room in DECLARING for path in (_ROOT.parent / room[1:]).rglob("*.py")]
    for path in sorted([*_ROOT.rglob("*.py"), *others, *map(path_of, _formats())]):
        whole.update(path.relative_to(_ROOT.parent).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()
