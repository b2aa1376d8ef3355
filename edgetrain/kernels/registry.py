"""(kernel, storages, target) -> function, scratch bytes and the extent of each operand.

A family file registers its kernels by decorating a factory that takes one `Storage` for each
storage variable of the declaration and returns the Python function to compile:

    @kernel("relu", "x:r:S[n] y:w:S[n] n")
    def relu(S):
        def run(thread, nthreads, x, y, n): ...
        return run

Several variants of one name may exist; the first whose `when` holds for the integers and the
target is taken, so a choice never depends on the plan. The plain variant comes last.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType

from ..errors import UnsupportedOpError
from . import jit
from .spec import Spec

_FUNCTIONS = {"min": min, "max": max, "__builtins__": {}}
_BASE_MODULES = ("jit", "prim", "spec", "registry", "control")


@dataclass(frozen=True)
class Kernel:
    """One registered variant."""

    name: str
    variant: str
    spec: Spec
    factory: Callable
    when: CodeType | None

    def suits(self, values: Mapping[str, int], storages: Mapping[str, str], lanes: int) -> bool:
        """Whether this variant handles these integers and storages on vectors of `lanes`."""
        if self.when is None:
            return True
        names = self.spec.names(values, 1, lanes) | storages
        names |= {f"has_{o.name}": values[o.name] >= 0 for o in self.spec.operands if o.optional}
        return bool(eval(self.when, _FUNCTIONS, names))

    def symbol(self, storages: Mapping[str, str]) -> str:
        """Name in objects and Programs, such as `et_relu__plain__f16`."""
        parts = [self.name, self.variant, *(storages[v] for v in self.spec.variables)]
        return "et_" + "__".join(parts)

    def object(self, storages: Mapping[str, str], target: jit.Target) -> bytes:
        """Compiled object for a target (from the cache where possible)."""

        def build() -> Callable:
            from .prim import STORAGES

            return self.factory(*(STORAGES[storages[v]] for v in self.spec.variables))

        module = self.factory.__module__.rpartition(".")[2]
        return jit.object_for(self.symbol(storages), build, self.spec.kinds, target, module)


_KERNELS: dict[str, list[Kernel]] = {}


def kernel(
    name: str, operands: str, *, variant: str = "plain", when: str = "", check: str = ""
) -> Callable[[Callable], Callable]:
    """Register a kernel's factory under `name`; see spec.py for the declaration's grammar.

    Args:
      when: expression of the integers, `lanes`, storage variables (`S == 'f16'`) and `has_x` for
        optional operands; the variant is chosen where it holds.
      check: expressions, `;` between, that integers of a loaded tape must satisfy.
    """
    spec = Spec.parse(operands, check)

    def register(factory: Callable) -> Callable:
        condition = compile(when, f"<when {name}>", "eval") if when else None
        variants = _KERNELS.setdefault(name, [])
        if any(k.variant == variant for k in variants):
            raise ValueError(f"kernel {name} has two variants {variant!r}")
        variants.append(Kernel(name, variant, spec, factory, condition))
        variants.sort(key=lambda k: k.when is None)
        return factory

    return register


@functools.cache
def _load_families() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _BASE_MODULES:
            importlib.import_module(f"{__package__}.{module.name}")


def variants(name: str) -> list[Kernel]:
    """Variants of a kernel in order of preference.

    Raises:
      UnsupportedOpError: no kernel has this name.
    """
    _load_families()
    if name not in _KERNELS:
        raise UnsupportedOpError(f"kernel {name!r}: not in this build of edgetrain.")
    return _KERNELS[name]


def names() -> list[str]:
    """Every registered kernel."""
    _load_families()
    return sorted(_KERNELS)


def choose(
    name: str, values: Mapping[str, int], storages: Mapping[str, str], target: jit.Target
) -> Kernel:
    """The variant for these integers, storages and target."""
    for candidate in variants(name):
        if candidate.suits(values, storages, target.lanes):
            return candidate
    raise UnsupportedOpError(f"kernel {name!r} has no variant for {dict(values)}.")
