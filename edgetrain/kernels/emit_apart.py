"""Objects for libraries: each function in a section of its own, so that a helper which several
kernels call is there once (folding.py).

The code is that of native.py's `emit_object`, which objects of a process and their keys follow; one
that it has made, and that holds a single function, is taken as it is.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import cache, jit, sources
from .processor import Target
from .relocatable import EXECUTE, Relocatable

if TYPE_CHECKING:
    import llvmlite.binding as llvm

    from .registry import Kernel

_JOINED = ("x86_64", "aarch64")  # processors whose objects shared_object.py joins


def objects_of(
    kernel: "Kernel", storages: Mapping[str, str], targets: Sequence[Target]
) -> list[bytes]:
    """As `kernel.objects`, for a library of each target; kept as those are."""
    found = {t: _kept(kernel, storages, t) for t in targets if t.triple.startswith(_JOINED)}
    others = [t for t in targets if t not in found]
    known = dict(zip(others, kernel.objects(storages, others), strict=True))
    text = ""
    for target, code in found.items():
        if not code:
            from . import native

            symbol, spec = kernel.symbol(storages), kernel.spec
            text = text or native.llvm_text(
                symbol, kernel.function(storages), spec.kinds, spec.fields
            )
            code = emit_object(text, target)
            identity = _identity(_plain(kernel, storages, target))
            cache.write(jit.kept_as(identity), identity, code)
        known[target] = code
    return [known[target] for target in targets]


def _kept(kernel: "Kernel", storages: Mapping[str, str], target: Target) -> bytes:
    """What the cache has; empty where it has none."""
    plain = _plain(kernel, storages, target)
    identity = _identity(plain)
    code = cache.read(jit.kept_as(identity), identity)
    if code is None:
        code = cache.read(jit.kept_as(plain), plain)
        if code is not None and _functions(code) > 1:
            code = None
    return code or b""


def _plain(kernel: "Kernel", storages: Mapping[str, str], target: Target) -> str:
    """Identity of the object that a process has."""
    symbol, kinds = kernel.symbol(storages), kernel.spec.kinds
    return jit.identity_of(symbol, kinds, target, kernel.module, builtins=False)


def _identity(plain: str) -> str:
    return repr((plain, sources.file_digest("emit_apart")))


def _functions(code: bytes) -> int:
    one = Relocatable(code)
    texts = [number for number, section in one.sections.items() if section.flags & EXECUTE]
    return sum(symbol.section in texts and symbol.nbytes > 0 for symbol in one.symbols)


def emit_object(text: str, target: Target) -> bytes:
    """Optimise a text for one processor and emit its object; loops stay loops."""
    import llvmlite.binding as llvm

    from . import native

    machine = native.machine_of(target)
    text = re.sub(r"^(define .*?)( \{)$", r'\1 "no-builtins"\2', text, flags=re.M)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    for function in module.functions:
        function.add_function_attribute("nounwind")
        if not function.is_declaration and not function.name.startswith("et_"):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    _hide(module)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    _hide(module)  # tables of LLVM's own too: as symbols, so that their extents are known
    return machine.emit_object(llvm.parse_assembly(_apart(str(module))))


def _hide(module: "llvm.ModuleRef") -> None:
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"


def _apart(text: str) -> str:
    """Each function with a group of its own: that parts its tables of jumps from others' as well,
    which a section by name would not."""
    names = re.findall(r'^define [^@\n]*@("[^"]+"|[\w.$-]+)\(', text, flags=re.M)
    text = re.sub(r"^(define .*) \{$", r"\1 comdat {", text, flags=re.M)
    return text + "".join(f"${name} = comdat any\n" for name in names)
