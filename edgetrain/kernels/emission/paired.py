"""Kernels of Programs that compute with pairs of float32 in place of float64 (pairs.py), as
this machine runs them: the same text, the same bits as on the processor they were planned for."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...units.sha import sha256
from ..cache import disk, jit
from ..registry import Kernel

_TEXTS = "pairs", "pair_functions", "paired", "lowering"  # what an object follows from
MARK = "__pairs_"  # in names of such kernels


@functools.cache
def _version() -> str:
    """Of what rewrites texts: another one is other code."""
    texts = [Path(__file__).with_name(f"{name}.py") for name in _TEXTS]
    whole = sha256(b"".join(path.read_bytes() for path in texts if path.is_file()))
    return whole.hexdigest()[:12]


class Paired(Kernel):
    """A kernel of such a Program."""

    def symbol(self, storages: Mapping[str, str]) -> str:
        """Name in this process."""
        return f"{super().symbol(storages)}{MARK}{_version()}"

    def objects(self, storages: Mapping[str, str], targets: Sequence[jit.Target]) -> list[bytes]:
        """As those of `Kernel`.

        Raises:
          NotKept: it is not in the cache, and nothing can be compiled.
        """
        return [self._object(storages, target) for target in targets]

    def _object(self, storages: Mapping[str, str], target: jit.Target) -> bytes:
        symbol, builtins = self.symbol(storages), target == jit.host()
        identity = jit.identity_of(symbol, self.spec.kinds, target, self.module, builtins)
        name = f"objects/{sha256(identity.encode()).hexdigest()[:40]}.o"
        code = disk.read(name, identity) if identity else None
        if code is None:
            if not jit.available():
                raise jit.NotKept(symbol)
            from .objects import HOST, TARGET, emit_object

            recipe = HOST if builtins else TARGET
            code = emit_object(self._text(storages, symbol), target, recipe)
            if identity:
                disk.write(name, identity, code)
        return code

    def _text(self, storages: Mapping[str, str], symbol: str) -> str:
        from .lowering import entry
        from .pairs import in_pairs
        from .text import direct, kernel_text

        plain = _plain(self)
        native = f'"{direct(plain.symbol(storages))}"'
        return in_pairs(kernel_text(plain, storages, 64)) + entry(symbol, native, self.spec.kinds)


def _fields(kernel: Kernel) -> dict[str, object]:
    return {field.name: getattr(kernel, field.name) for field in dataclasses.fields(kernel)}


def _plain(kernel: Kernel) -> Kernel:
    return Kernel(**_fields(kernel))  # type: ignore[arg-type]


def paired(kernel: Kernel) -> Kernel:
    """The kernel with pairs in place of float64."""
    return Paired(**_fields(kernel))  # type: ignore[arg-type]
