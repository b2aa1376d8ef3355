"""What a relocatable object says of itself, whatever its format."""

from . import elf, wasm


def sections(code: bytes) -> dict[str, int]:
    """Bytes of the sections that are loaded, by name."""
    return wasm.sections(code) if code[:4] == wasm.MAGIC else elf.sections(code)


def undefined(code: bytes) -> set[str]:
    """Names of the symbols that another object would have to define."""
    return wasm.undefined(code) if code[:4] == wasm.MAGIC else elf.undefined(code)


def filled(code: bytes, section: str, data: bytes) -> bytes:
    """The object with other bytes in the first section of this name, as many as it has; one of
    WebAssembly has no other data."""
    if code[:4] == wasm.MAGIC:
        return wasm.filled(code, data)
    return elf.filled(code, section, data)
