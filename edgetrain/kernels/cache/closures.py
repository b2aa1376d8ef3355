"""The sources that a kernel is made of, and their digests, which show whether code is current."""

import functools

from ...units.sha import sha256
from . import sources

# Modules that call and compile the planner's loops.
LOOPS = tuple(f"loops.{name}" for name in ("functions", "instructions", "kinds", "text"))
# Modules that find, declare, cache, link and load kernels; they don't affect any kernel's code.
_MACHINERY = (
    "declaration.", "registry", "targets", "tapes.decode", "emission.code", "emission.engine",
    "emission.rewritten", "cache.", "linking.", "loops.",
)  # fmt: skip
# Modules of formats, and of the rooms of `sources.DECLARING`, that kernels' code is made of.
_BESIDE = (".formats.", ".ir.storage", ".optim.schedules.", ".optim.kernels")
COMPILERS = "emission.lowering", "emission.objects"


@functools.cache
def _direct_imports(module: str) -> tuple[str, ...]:
    """What one file imports from this package, anywhere in it; some names may not be modules."""
    prefix = f".{sources.ROOT.name}."
    import ast  # only needed if something may have to be compiled

    out: list[str] = []
    folder = module.split(".")[:-1]
    if module.startswith("."):
        out.append(f"{'.'.join(folder)}.kernels")  # declares the plug-in's kernels
    for node in ast.walk(ast.parse(sources.path_of(module).read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        above = node.level - len(folder) - 1
        if above <= 0:
            base = [*folder[: len(folder) + 1 - node.level], *filter(None, [node.module])]
            out += [".".join(base), *(".".join([*base, alias.name]) for alias in node.names)]
        elif above == 1 and not module.startswith("."):
            rooms = [(node.module or alias.name).partition(".")[0] for alias in node.names]
            out += sources.formats() if "formats" in rooms else []
    beside = (prefix, *_BESIDE)
    kept = [n for n in out if not n.startswith(".") or any(part in n for part in beside)]
    return tuple(name.removeprefix(prefix) for name in kept if name != module)


@functools.cache
def closure(module: str) -> tuple[str, ...]:
    """Files that a family's code depends on, sorted: the module, the files of this package that it
    imports, and the compiler's; () if there is no such module."""
    if not sources.path_of(module).is_file():
        return ()
    result: set[str] = set()
    pending = [module, *COMPILERS]
    while pending:
        name = pending.pop()
        if (
            name not in result
            and not name.startswith(_MACHINERY)
            and sources.path_of(name).is_file()
        ):
            result.add(name)
            pending += _direct_imports(name)
    return tuple(sorted(result))


@functools.cache
def file_digest(module: str) -> str:
    """SHA-256 of one file; "" if it is missing."""
    path = sources.path_of(module)
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@functools.cache
def nbytes(module: str) -> int:
    """Size of all sources that a module's kernels are made of: an estimate of compile time."""
    return sum(sources.path_of(name).stat().st_size for name in closure(module))


@functools.cache
def digest(module: str) -> str:
    """Digest of all sources that a module's kernels are made of."""
    known = sources.made()
    if known is not None:
        return known["digests"].get(module, "")
    parts = " ".join(f"{name} {file_digest(name)}" for name in closure(module))
    return sha256(parts.encode()).hexdigest()
