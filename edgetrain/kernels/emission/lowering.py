"""Lower kernels to LLVM text: a module whose only symbol has the C signature `void name(i64 base,
i64 args, i64 thread, i64 nthreads)`.

functions.py compiles Python; objects.py turns the text into an object. Imported only if something
has to be compiled: training from cached or installed kernels needs neither numba nor LLVM.
"""

from collections import namedtuple
from collections.abc import Callable, Sequence

Fields = Sequence[tuple[str, int]]
NATIVE = "kernel"  # the function that takes operands one by one


def _parameters(kinds: str, fields: Fields) -> list:
    """numba's types of a kernel's parameters after (thread, nthreads)."""
    from numba.core import types
    from numba.core.types import containers

    operands = [types.float32 if kind == "f" else types.int64 for kind in kinds]
    if not fields:
        return operands
    members, index = [], 0
    for _, count in fields:
        members.append(containers.UniTuple(types.int64, count) if count else operands[index])
        index += count or 1
    record = namedtuple("Operands", [name for name, _ in fields])
    return [containers.BaseTuple.from_types(members, record)]


def llvm_text(symbol: str, function: Callable, kinds: str, fields: Fields = ()) -> str:
    """LLVM text of a module whose function `symbol` unpacks its operands and calls the kernel.

    Args:
      fields: as in `Spec`: with fields, `function` takes its operands as one record; otherwise by
        position.
    """
    return native_text(function, kinds, fields) + entry(symbol, NATIVE, kinds)


def native_text(function: Callable, kinds: str, fields: Fields = ()) -> str:
    """LLVM text of a module whose function NATIVE takes (thread, nthreads, operands)."""
    from numba.core import types

    from .functions import Module
    from .objects import printed

    module = Module()
    module.kernel(NATIVE, function, [types.int64, types.int64, *_parameters(kinds, fields)])
    return printed(str(module.ir))


def entry(symbol: str, native: str, kinds: str) -> str:
    """Text of the function `symbol`, which unpacks its operands and calls `native`."""
    lines = [
        f"define void @{symbol}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{",
        "  %p = inttoptr i64 %args to ptr",
    ]
    call, word = ["i64 %thread", "i64 %nthreads"], 0
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
    lines.append(f"  call void @{native}({', '.join(call)})\n  ret void\n}}\n")
    return "\n".join(lines)
