"""Kernels of Programs planned for another processor's arithmetic, run on this machine. The text is
rewritten as for that processor, and so gives the same bits.

pairs.py and separate.py do the rewriting.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...units.sha import sha256
from ..cache import disk, jit
from ..registry import Kernel
from ..targets import PAIRS, SEPARATE

_OWN = "rewritten", "lowering"  # files that an object depends on besides its rewriting's
MARK = "__as_"  # in names of rewritten kernels


def rewriting(names: Sequence[str]) -> Callable[[str], str]:
    """A function that applies these rewrites of `targets.rewrites` in order to a kernel's text."""
    from .pairs import in_pairs
    from .separate import separated

    ways = {SEPARATE: separated, PAIRS: in_pairs}
    return lambda text: functools.reduce(lambda made, name: ways[name](made), names, text)


_FILES = {PAIRS: ("pairs", "pair_functions"), SEPARATE: ("separate",)}


@functools.cache
def _version(names: tuple[str, ...]) -> str:
    """A name for the rewrites and their version; it changes with their sources."""
    files = [file for name in names for file in _FILES[name]]
    texts = [Path(__file__).with_name(f"{name}.py") for name in (*files, *_OWN)]
    digest = sha256(b"".join(path.read_bytes() for path in texts if path.is_file()))
    return f"{'_'.join(names)}_{digest.hexdigest()[:12]}"


@dataclasses.dataclass(frozen=True)
class Rewritten(Kernel):
    """A kernel whose arithmetic is rewritten.

    Attributes:
      ways: the rewrites of its text.
    """

    ways: tuple[str, ...] = ()

    def symbol(self, storages: Mapping[str, str]) -> str:
        """Symbol in this process."""
        return f"{super().symbol(storages)}{MARK}{_version(self.ways)}"

    def objects(self, storages: Mapping[str, str], targets: Sequence[jit.Target]) -> list[bytes]:
        """Like `Kernel.objects`.

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
        from .text import direct, kernel_text

        plain = Kernel(**_fields(self))  # type: ignore[arg-type]
        native = f'"{direct(plain.symbol(storages))}"'
        made = rewriting(self.ways)(kernel_text(plain, storages, 64))
        return made + entry(symbol, native, self.spec.kinds)


def _fields(kernel: Kernel) -> dict[str, object]:
    return {field.name: getattr(kernel, field.name) for field in dataclasses.fields(Kernel)}


def rewritten(kernel: Kernel, ways: tuple[str, ...]) -> Kernel:
    """The kernel with its arithmetic rewritten."""
    return Rewritten(**_fields(kernel), ways=ways)  # type: ignore[arg-type]
