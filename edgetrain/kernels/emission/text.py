"""LLVM text of single kernels, ready to be linked into one module; cached on disk by content.

Lowering is the same for every processor, so the cached text already has helpers inlined and locals
in registers. It depends on only one property of the target: the width of addresses. Its one
external function takes the operands as the kernel's Python does: addresses, integers and floats,
without a tape.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import llvmlite.binding as llvm

from ..cache import closures, disk, jit
from ..registry import Kernel
from . import code, lowering, objects

# What passes may assume before the target is known; all targets are little-endian.
LAYOUTS = {64: "e-p:64:64-i64:64-n32:64", 32: "e-p:32:32-i64:64-n32"}

APART = "apart."  # prefix of the names of functions that kernels call and that are not inlined


def direct(symbol: str) -> str:
    """Name of the function that takes a kernel's operands as arguments."""
    return f"k.{symbol}"


def kernel_text(kernel: Kernel, storages: Mapping[str, str], bits: int) -> str:
    """LLVM text whose one external function is `void direct(symbol)(thread, nthreads, operands)`.

    Outlined functions of the kernel are not inlined: inner loops need every register, and code
    called from many places is there only once.

    Args:
      bits: of a pointer, 32 or 64.
    """

    def build() -> Callable:
        return kernel.function(storages)

    symbol, spec = kernel.symbol(storages), kernel.spec
    return text_of(symbol, build, spec.kinds, bits, kernel.module, spec.fields)


def text_of(
    symbol: str,
    build: Callable[[], Callable],
    kinds: str,
    bits: int,
    module: str,
    fields: lowering.Fields = (),
) -> str:
    """Like `kernel_text`, for any function of integers and floats; arguments as
    `jit.objects_for`."""
    digest = closures.digest(module) if closures.closure(module) else ""
    identity = repr(("text", symbol, kinds, bits, digest, jit.compiler(), _own_digest()))
    name = f"objects/{hashlib.sha256(identity.encode()).hexdigest()[:40]}.ll"
    kept = disk.read(name, identity) if digest else None
    if kept is not None:
        return kept.decode()
    function = build()
    key = code.key_of(function) if digest else ""
    meaning = repr(("text", symbol, kinds, fields, bits, key, jit.compiler(), _own_digest()))
    other = f"objects/{hashlib.sha256(meaning.encode()).hexdigest()[:40]}.ll"
    kept = disk.read(other, meaning) if key else None
    if kept is None:
        text = _simplified(lowering.native_text(function, kinds, fields), symbol, bits)
    else:
        text = kept.decode()
    if digest:
        disk.write(name, identity, text.encode())
    if key and kept is None:
        disk.write(other, meaning, text.encode())
    return text


@functools.cache
def _own_digest() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def parameter(kind: str) -> str:
    """LLVM type of an operand of this kind."""
    return "float" if kind == "f" else "i64"


def operand_types(kinds: str) -> list[str]:
    """LLVM types of the parameters of `direct`."""
    return ["i64", "i64", *map(parameter, kinds)]


def _simplified(text: str, symbol: str, bits: int) -> str:
    module = llvm.parse_assembly(text)
    module.data_layout = LAYOUTS[bits]
    for function in module.functions:
        function.add_function_attribute("nounwind")
        if function.name == lowering.NATIVE:
            function.name = direct(symbol)
        if not function.is_declaration and function.name != direct(symbol):
            function.linkage = "internal"
            if function.name.startswith("et_"):
                function.name = f"{APART}{function.name}"
            else:
                function.add_function_attribute("alwaysinline")
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    objects.run_passes(module, objects.machine_of(jit.host()), SIMPLIFY)
    return str(module)


SIMPLIFY = (
    "always_inliner", "sroa", "simplify_cfg", "instruction_combine", "sroa", "simplify_cfg",
    "instruction_combine", "sccp", "simplify_cfg", "dead_code_elimination",
    "global_dead_code_eliminate",
)  # fmt: skip
