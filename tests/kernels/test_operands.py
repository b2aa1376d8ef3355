"""Operands go by position: a kernel's function, its variants and its declaration must agree."""

import importlib
import inspect
import pkgutil

import pytest

import edgetrain.kernels
from edgetrain.kernels import registry
from edgetrain.kernels.words.prim import STORAGES

from .harness import declared

for _module in pkgutil.walk_packages(edgetrain.kernels.__path__, "edgetrain.kernels."):
    importlib.import_module(_module.name)
KERNELS = [kernel for name in registry.names() for kernel in registry.variants(name)]


def function_of(kernel: registry.Kernel, storage: str):
    factory = registry._FACTORIES[kernel.name, kernel.variant]
    return factory(*(STORAGES[storage] for _ in kernel.spec.variables))


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_functions_take_what_their_declarations_say(storage: str) -> None:
    wrong = []
    for kernel in KERNELS:
        found = list(inspect.signature(function_of(kernel, storage)).parameters)
        expected = ["thread", "nthreads", *(operand.name for operand in kernel.spec.operands)]
        if found not in (expected, ["thread", "nthreads", "k"]):
            wrong.append((kernel.name, kernel.variant, found, expected))
    assert wrong == []


def test_variants_of_a_kernel_share_their_operands() -> None:
    for name in registry.names():
        first, *others = registry.variants(name)
        for other in others:
            assert other.spec.interface == first.spec.interface, (name, other.variant)


def _swapped():
    return lambda thread, nthreads, y, x, n: None


def test_a_swapped_operand_is_refused_before_it_is_compiled() -> None:
    kernel = declared("swapped", "x:r:f32[n] y:w:f32[n] n", _swapped)
    with pytest.raises(ValueError, match="takes thread, nthreads, y, x, n; declared are"):
        kernel.object({}, registry.jit.host())


def test_a_variant_with_other_operands_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_KERNELS", "_FACTORIES", "_DECLARATIONS"):
        monkeypatch.setattr(registry, table, {})
    registry.kernel("pair", "x:r:f32[n] y:w:f32[n] n ws:t[n]", variant="fast", when="n > 8")(
        _swapped
    )
    with pytest.raises(ValueError, match="variants fast and plain differ"):
        registry.kernel("pair", "y:w:f32[n] x:r:f32[n] n")(_swapped)
