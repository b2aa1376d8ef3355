"""Python functions to LLVM text: the one place that drives numba.

numba types and lowers a kernel with its runtime off; objects.py makes of the text an object whose
only symbol has the C signature `void name(i64 base, i64 args, i64 thread, i64 nthreads)`. Imported
only where something has to be compiled: training from kept or installed kernels needs no numba.
"""

import contextlib
import functools
import re
from collections import namedtuple
from collections.abc import Callable, Sequence

Fields = Sequence[tuple[str, int]]


@functools.cache
def _numba_contexts():
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    return cpu_target.typing_context, cpu_target.target_context


@contextlib.contextmanager
def _text_only():
    """Keep numba from optimising and emitting each helper by itself: objects.py does it once."""
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


def _parameters(kinds: str, fields: Fields) -> tuple:
    """numba's types of what a kernel takes behind (thread, nthreads)."""
    from numba.core import types
    from numba.core.types import containers

    operands = [types.float32 if kind == "f" else types.int64 for kind in kinds]
    if not fields:
        return tuple(operands)
    members, at = [], 0
    for _, count in fields:
        members.append(containers.UniTuple(types.int64, count) if count else operands[at])
        at += count or 1
    names: list[str] = [name for name, _ in fields]
    return (containers.NamedTuple(members, namedtuple("Operands", names)),)


def llvm_text(symbol: str, function: Callable, kinds: str, fields: Fields = ()) -> str:
    """LLVM text of a module whose function `symbol` unpacks its operands and calls the kernel.

    Args:
      fields: as in `Spec`: `function` takes its operands as one record; else by position.
    """
    from numba.core import compiler, types

    typing_context, target_context = _numba_contexts()
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    signature = (types.int64, types.int64, *_parameters(kinds, fields))
    with _text_only():
        result = compiler.compile_extra(
            typing_context, target_context, function, signature, types.void, flags, {}
        )
    module = _linked(result.library)
    native = result.fndesc.llvm_func_name
    text = re.sub(r"^target (triple|datalayout) = .*\n", "", str(module), flags=re.M)
    text = re.sub(r'"(target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
    return text + entry(symbol, native, kinds)


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


def entry(symbol: str, native: str, kinds: str) -> str:
    """Text of the function `symbol`, which unpacks its operands and calls `native`."""
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
