"""Every kernel as an object for other processors: none needs another library.

An undefined symbol would be a call to libm, to memset or to a helper for 64-bit division, which the
device may not have.
"""

import struct
from concurrent.futures import ProcessPoolExecutor

import pytest

from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.emission import objects

TARGETS = {"aarch64": jit.AARCH64, "cortex-m7": jit.CORTEX_M7}
NARROW = ("u8", "u16")


def undefined(code: bytes) -> list[str]:
    """Names of undefined symbols in a relocatable ELF file, little-endian, 32 or 64 bits."""
    assert code[:4] == b"\x7fELF" and code[5] == 1
    wide = code[4] == 2
    (table,) = struct.unpack_from("<Q" if wide else "<I", code, 40 if wide else 32)
    size, count = struct.unpack_from("<HH", code, 58 if wide else 46)
    # per section: type, offset in the file, bytes, section with its names
    layout = "<4xI16xQQI" if wide else "<4xI8xIII"
    sections = [struct.unpack_from(layout, code, table + i * size) for i in range(count)]
    symbol, step = ("<IBBH", 24) if wide else ("<I8xBBH", 16)
    names = []
    for kind, start, nbytes, link in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        for at in range(start + step, start + nbytes, step):
            name, _, _, section = struct.unpack_from(symbol, code, at)
            if section == 0:
                first = sections[link][1] + name
                names.append(code[first : code.index(b"\0", first)].decode())
    return names


def storages_of(kernel: registry.Kernel) -> list[dict[str, str]]:
    """Storages to compile: all float32, all fp16; I (positions) is an integer."""
    variables = kernel.spec.variables
    return [
        {v: integer if v == "I" else real for v in variables}
        for real, integer in zip(("f32", "f16"), NARROW, strict=True)
    ][: 2 if variables else 1]


def offenders(name: str, target: str) -> list[str]:
    """Undefined symbols and errors of all variants of a kernel that suit the target."""
    found = []
    for kernel in registry.variants(name):
        if TARGETS[target].lanes == 1 and _wants_vectors(kernel):
            continue
        for storages in storages_of(kernel):
            symbol = kernel.symbol(storages)
            try:
                missing = undefined(kernel.object(storages, TARGETS[target]))
            except Exception as error:
                missing = [f"{type(error).__name__}: {str(error)[:300]}"]
            found += [f"{symbol}: {m}" for m in missing]
    return found


def _wants_vectors(kernel: registry.Kernel) -> bool:
    return "lanes >=" in registry.declaration(kernel)["when"]


def test_undefined_reads_symbols_of_both_word_sizes():
    text = "declare void @missing()\ndefine void @et_x() {\n  call void @missing()\n  ret void\n}\n"
    for target in TARGETS.values():
        assert undefined(objects.emit_object(text, target, objects.HOST)) == ["missing"]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_objects_of_every_kernel_call_nothing(target):
    names = registry.names()
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(offenders, names, [target] * len(names)))
    assert sum(found, []) == []
