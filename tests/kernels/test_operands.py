"""Record fields that a kernel's function reads, its variants and its declaration must agree."""

import dis
import inspect
import itertools

import pytest
from numba.core.errors import TypingError

from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit

from .harness import declared

KERNELS = [kernel for name in registry.names() for kernel in registry.variants(name)]


def _read(function) -> set[str]:
    """Return the record attributes that a kernel's function reads."""
    code = list(dis.get_instructions(function))
    return {
        second.argval
        for first, second in itertools.pairwise(code)
        if first.opname.startswith("LOAD_FAST")
        and (first.argval, second.opname) == ("args", "LOAD_ATTR")
    }


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_functions_read_what_their_declarations_say(storage: str) -> None:
    wrong, readers = [], 0
    for kernel in KERNELS:
        function = kernel.function(dict.fromkeys(kernel.spec.variables, storage))
        readers += bool(_read(function))
        taken = list(inspect.signature(function).parameters)
        fields = {name for name, _ in kernel.spec.fields}
        if taken != ["thread", "nthreads", "args"] or not _read(function) <= fields:
            wrong.append((kernel.name, kernel.variant, taken, _read(function) - fields))
    assert wrong == [] and readers > len(KERNELS) // 2  # some pass the whole record on


def test_variants_of_a_kernel_share_their_operands() -> None:
    for name in registry.names():
        first, *others = registry.variants(name)
        for other in others:
            assert other.spec.interface == first.spec.interface, (name, other.variant)


def test_an_operand_that_is_not_declared_is_refused() -> None:
    def factory():
        return lambda thread, nthreads, args: args.z

    kernel = declared("misread", "x:r:f32[n] n", factory)
    with pytest.raises(TypingError, match="Unknown attribute 'z'"):
        kernel.object({}, jit.host())


def _none():
    return lambda thread, nthreads, args: None


def test_a_variant_with_other_operands_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_KERNELS", "_FACTORIES", "_TEXTS"):
        monkeypatch.setattr(registry, table, {})
    registry.kernel("pair", "x:r:f32[n] y:w:f32[n] n ws:t[n]", variant="fast", when="n > 8")(_none)
    with pytest.raises(ValueError, match="variants fast and plain"):
        registry.kernel("pair", "y:w:f32[n] x:r:f32[n] n")(_none)
