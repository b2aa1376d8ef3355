"""Reads relocatable objects of any supported format."""

from . import elf, wasm


def sections(code: bytes) -> dict[str, int]:
    """Name -> bytes, of the loaded sections."""
    return wasm.sections(code) if code[:4] == wasm.MAGIC else elf.sections(code)


def undefined(code: bytes) -> set[str]:
    """Names of the symbols that another object would have to define."""
    return wasm.undefined(code) if code[:4] == wasm.MAGIC else elf.undefined(code)


def filled(code: bytes, section: str, data: bytes) -> bytes:
    """The object with other content, of the same size, in the first section of this name; in
    WebAssembly, in its only data section."""
    if code[:4] == wasm.MAGIC:
        return wasm.filled(code, data)
    return elf.filled(code, section, data)
