"""Compile kernels to objects, keep them on disk, load them: the only place that knows numba.

A kernel is a Python function of integers and floats. numba types and lowers it with its runtime
off, LLVM optimises the text for one target and emits an object whose only symbol has the C
signature `void name(i64 base, i64 args, i64 thread, i64 nthreads)`. The host's objects are kept
(cache.py), so that a second start neither compiles nor imports numba. Objects for other
processors come from the same text.
"""

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

from . import cache


@dataclass(frozen=True, slots=True)
class Target:
    """A processor that kernels are emitted for; lanes = 32-bit lanes of a vector register."""

    triple: str
    cpu: str
    features: str
    lanes: int
    pointer_bits: int = 64


AARCH64 = Target("aarch64-unknown-linux-gnu", "cortex-a72", "", 4)
CORTEX_M7 = Target("thumbv7em-none-eabihf", "cortex-m7", "", 1, 32)


@functools.cache
def host() -> Target:
    """The processor this process runs on."""
    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    triple = llvm.get_process_triple()
    return Target(triple, llvm.get_host_cpu_name(), features.flatten(), lanes)


def inline(function: Callable) -> Callable:
    """A helper that kernels call (Python cannot); always inlined, compiled when a kernel is."""
    import numba

    return numba.njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True)(function)


def hot(function: Callable) -> Callable:
    """A hot loop of the planner on numpy arrays: numba, kept in the cache."""
    import numba

    from .planner_cache import PlannerCache

    compiled = numba.njit(error_model="numpy", nogil=True)(function)
    compiled._cache = PlannerCache(function)
    return compiled


def _file(module: str) -> Path:
    """Source of a module of this package, named from the package on: `words.prim`."""
    return Path(__file__).parent / f"{module.replace('.', '/')}.py"


@functools.cache
def _direct_imports(module: str) -> tuple[str, ...]:
    """What one file imports from this package, at its top or inside; names that may be modules."""
    out: list[str] = []
    folder = module.split(".")[:-1]
    for node in ast.walk(ast.parse(_file(module).read_text())):
        if isinstance(node, ast.ImportFrom) and 1 <= node.level <= len(folder) + 1:
            base = [*folder[: len(folder) + 1 - node.level], *filter(None, [node.module])]
            out += [".".join(base), *(".".join([*base, alias.name]) for alias in node.names)]
    return tuple(out)


@functools.cache
def _imports(module: str) -> frozenset[str]:
    """Files of this package that `module` imports, itself included, transitively."""
    found: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name and name not in found and _file(name).is_file():
            found.add(name)
            pending += _direct_imports(name)
    return frozenset(found)


@functools.cache
def _sources_digest(module: str) -> str:
    """Changes whenever a source that the kernel is made of, or the compiler below it, does."""
    digest = hashlib.sha256()
    for name in sorted(_imports(module) | {"jit"}):
        digest.update(_file(name).read_bytes())
    for package in ("numba", "llvmlite"):
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()


def object_for(
    symbol: str, build: Callable[[], Callable], kinds: str, target: Target, module: str
) -> bytes:
    """The object of one kernel, from the cache where it is there.

    Args:
      symbol: name of the exported function.
      build: makes the Python function `(thread, nthreads, *operands)`.
      kinds: a letter for each operand, `r` reference (byte offset from base, negative = absent
        and passed as 0), `t` per-thread scratch (two words: offset, stride), `i` integer,
        `f` float32 bits.
      target: the processor.
      module: file of this package, such as `conv.plain`; kernels of others are not cached.
    """
    if not _imports(module):
        return _emit(_llvm_text(symbol, build(), kinds), target)
    identity = repr((symbol, kinds, target, _sources_digest(module)))
    name = f"objects/{hashlib.sha256(identity.encode()).hexdigest()[:40]}.o"
    kept = cache.read(name, identity)
    if kept is not None:
        return kept
    code = _emit(_llvm_text(symbol, build(), kinds), target)
    cache.write(name, identity, code)
    return code


@functools.cache
def package_digest() -> str:
    """Changes whenever any source of this package does."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _numba_contexts():
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    return cpu_target.typing_context, cpu_target.target_context


@contextlib.contextmanager
def _text_only():
    """Keep numba from optimising and emitting every helper by itself: `_emit` does it once."""
    from numba.core import codegen, cpu
    from numba.core.compiler_lock import global_compiler_lock

    library, context = codegen.CPUCodeLibrary, cpu.CPUContext
    replaced: tuple[tuple[type, str, Callable], ...] = (
        (library, "finalize", lambda self: setattr(self, "_finalized", True)),
        (library, "_optimize_functions", lambda self, module: None),
        # in place of machine code: any builtin will do as long as it is another each time
        (context, "get_executable", lambda self, library, fndesc, env: [].append),
    )
    with global_compiler_lock:
        kept = [getattr(owner, name) for owner, name, _ in replaced]
        try:
            for owner, name, function in replaced:
                setattr(owner, name, function)
            yield
        finally:
            for (owner, name, _), function in zip(replaced, kept, strict=True):
                setattr(owner, name, function)


def _llvm_text(symbol: str, function: Callable, kinds: str) -> str:
    """LLVM text of a module whose function `symbol` unpacks its operands and calls the kernel."""
    from numba.core import compiler, types

    typing_context, target_context = _numba_contexts()
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    signature = (types.int64, types.int64) + tuple(
        types.float32 if kind == "f" else types.int64 for kind in kinds
    )
    with _text_only():
        result = compiler.compile_extra(
            typing_context, target_context, function, signature, types.void, flags, {}
        )
    module = _linked(result.library)
    native = result.fndesc.llvm_func_name
    text = re.sub(r"^target (triple|datalayout) = .*\n", "", str(module), flags=re.M)
    text = re.sub(r'"(target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
    return text + _entry(symbol, native, kinds)


def _linked(library):
    """The library's module with everything that it calls, before whole-module optimisation."""
    module = library._final_module.clone()
    pending, seen = list(library._linking_libraries), set()
    while pending:
        other = pending.pop()
        if id(other) not in seen:
            seen.add(id(other))
            module.link_in(other._final_module.clone())
            pending.extend(other._linking_libraries)
    return module


def _entry(symbol: str, native: str, kinds: str) -> str:
    lines = [
        f"define void @{symbol}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{",
        "  %ret = alloca ptr\n  %exc = alloca ptr\n  %p = inttoptr i64 %args to ptr",
    ]
    call, word = ["ptr %ret", "ptr %exc", "i64 %thread", "i64 %nthreads"], 0
    for k, kind in enumerate(kinds):
        lines.append(
            f"  %q{k} = getelementptr i64, ptr %p, i32 {word}\n  %w{k} = load i64, ptr %q{k}"
        )
        word += 1
        if kind == "f":
            lines.append(f"  %h{k} = trunc i64 %w{k} to i32\n  %v{k} = bitcast i32 %h{k} to float")
        elif kind == "r":
            lines.append(
                f"  %s{k} = add i64 %base, %w{k}\n  %n{k} = icmp slt i64 %w{k}, 0\n"
                f"  %v{k} = select i1 %n{k}, i64 0, i64 %s{k}"
            )
        elif kind == "t":
            lines.append(
                f"  %g{k} = getelementptr i64, ptr %p, i32 {word}\n  %m{k} = load i64, ptr %g{k}\n"
                f"  %o{k} = mul i64 %m{k}, %thread\n  %b{k} = add i64 %base, %w{k}\n"
                f"  %v{k} = add i64 %b{k}, %o{k}"
            )
            word += 1
        else:
            lines.append(f"  %v{k} = add i64 %w{k}, 0")
        call.append(f"{'float' if kind == 'f' else 'i64'} %v{k}")
    lines.append(f'  %status = call i32 @"{native}"({", ".join(call)})\n  ret void\n}}\n')
    return "\n".join(lines)


def _narrow_division(text: str) -> str:
    """Divide in 32 bits where pointers have 32: no quotient is wider there, and no call needed."""

    def narrow(match: re.Match) -> str:
        out, op, a, b = match.groups()
        name = out[1:].strip('"')
        x, y, z = (f'%"{name}.{part}"' for part in ("na", "nb", "nq"))
        return (
            f"{x} = trunc i64 {a} to i32\n{y} = trunc i64 {b} to i32\n"
            f"{z} = {op} i32 {x}, {y}\n{out} = sext i32 {z} to i64"
        )

    return re.sub(r'(%(?:"[^"]+"|\S+)) = ([su](?:div|rem)) i64 (\S+), (\S+)', narrow, text)


@functools.cache
def _machine(target: Target):
    return _new_machine(target)


def _new_machine(target: Target):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )


def _emit(text: str, target: Target) -> bytes:
    machine = _machine(target)
    if target.pointer_bits == 32:
        text = _narrow_division(text)
    if target != host():
        # Keep loops loops: no memset or memcpy to link against.
        text = re.sub(r"^(define .*?)( \{)$", r'\1 "no-builtins"\2', text, flags=re.M)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    for function in module.functions:
        function.add_function_attribute("nounwind")
        if not function.is_declaration and not function.name.startswith("et_"):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


_loaded: dict[str, int] = {}
_engines: list = []  # what is loaded stays loaded: addresses never dangle


def load(objects: Mapping[str, Callable[[], bytes]]) -> dict[str, int]:
    """Load objects into this process, once each.

    Args:
      objects: exported symbol -> what makes the host's object.
    Returns:
      Symbol -> address; the C signature is that of the module's docstring.
    """
    missing = [symbol for symbol in objects if symbol not in _loaded]
    if missing:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # The engine owns the machine it is given: a fresh one each time.
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine(host()))
        for symbol in missing:
            engine.add_object_file(llvm.ObjectFileRef.from_data(objects[symbol]()))
        engine.finalize_object()
        _engines.append(engine)
        for symbol in missing:
            _loaded[symbol] = engine.get_function_address(symbol)
    return {symbol: _loaded[symbol] for symbol in objects}
