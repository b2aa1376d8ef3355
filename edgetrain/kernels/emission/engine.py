"""LLVM in this process: its description of the machine, and its loader of objects."""

from collections.abc import Iterable

import llvmlite.binding as llvm

from ..cache.nearby import nearby
from ..cache.processor import Target
from .objects import new_machine

_engines: list = []  # loaded code stays loaded, so addresses never dangle


def identity() -> tuple[str, str, str]:
    """Triple, processor and features of this machine, as LLVM names them."""
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), features


def load(objects: Iterable[bytes], symbols: Iterable[str], target: Target) -> dict[str, int]:
    """Symbol -> address, after loading the host's objects; for systems that don't use ELF files."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    with nearby():
        # The engine owns the machine it is given: a fresh one each time.
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), new_machine(target))
        for code in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _engines.append(engine)
        return {symbol: engine.get_function_address(symbol) for symbol in symbols}
