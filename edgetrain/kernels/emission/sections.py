"""Objects for libraries. Each function has its own section, so that a library contains a helper of
several kernels only once (linking/folding.py).

A cached object for processes is used if it contains a single function.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..cache import disk, jit
from ..cache.processor import Target
from ..linking.relocatable import EXECUTE, Relocatable

if TYPE_CHECKING:
    from ..registry import Kernel

_JOINED = ("x86_64", "aarch64")  # processors whose objects linking/shared_object.py joins


def objects_of(
    kernel: "Kernel", storages: Mapping[str, str], targets: Sequence[Target]
) -> list[bytes]:
    """Like `kernel.objects`, but for a library of each target; cached in the same way."""
    result = {t: _kept(kernel, storages, t) for t in targets if t.triple.startswith(_JOINED)}
    others = [t for t in targets if t not in result]
    known = dict(zip(others, kernel.objects(storages, others), strict=True))
    text = ""
    for target, code in result.items():
        if not code:
            from . import lowering, objects

            symbol, spec = kernel.symbol(storages), kernel.spec
            text = text or lowering.llvm_text(
                symbol, kernel.function(storages), spec.kinds, spec.fields
            )
            code = objects.emit_object(text, target, objects.LIBRARY)
            identity = _identity(_plain(kernel, storages, target))
            disk.write(jit.kept_as(identity), identity, code)
        known[target] = code
    return [known[target] for target in targets]


def _kept(kernel: "Kernel", storages: Mapping[str, str], target: Target) -> bytes:
    """The cached object, or b""."""
    plain = _plain(kernel, storages, target)
    identity = _identity(plain)
    code = disk.read(jit.kept_as(identity), identity)
    if code is None:
        code = jit.kept(plain)
        if code is not None and _functions(code) > 1:
            code = None
    return code or b""


def _plain(kernel: "Kernel", storages: Mapping[str, str], target: Target) -> str:
    """Identity of the object that a process would load."""
    symbol, kinds = kernel.symbol(storages), kernel.spec.kinds
    return jit.identity_of(symbol, kinds, target, kernel.module, builtins=False)


def _identity(plain: str) -> str:
    return repr((plain, "apart"))


def _functions(code: bytes) -> int:
    file = Relocatable(code)
    texts = [number for number, section in file.sections.items() if section.flags & EXECUTE]
    return sum(symbol.section in texts and symbol.nbytes > 0 for symbol in file.symbols)
