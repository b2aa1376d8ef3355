"""A Program's kernels as one object for one processor: nothing to link, no state, no other symbol.

Every instruction of a tape is a function with its integers as constants (emit_tape.py); the drive,
what the caller brings, and all of these become one LLVM module, in which everything but the
caller's exports is internal, so that what nobody calls goes and two Programs can be linked into one
firmware.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm

from . import registry
from .emit_tape import Table, Tapes, declaration, entry_text, table_of, text_of_table
from .emit_text import kernel_text, run_passes
from .targets import Target


@dataclass(frozen=True)
class Library:
    """What was emitted.

    Attributes:
      code: a relocatable object (ELF) whose global symbols are the exports.
      lengths: bytes of each tape.
      entries: functions in `@table`, words in `@strides`.
      sizes: bytes of each section that is loaded.
    """

    target: Target
    code: bytes
    lengths: Mapping[str, int]
    entries: int
    sizes: Mapping[str, int]


def tape_lengths(program: Tapes, lanes: int = 1) -> dict[str, int]:
    """Bytes of the tapes that `library` makes, by name."""
    return table_of(program, lanes).lengths()


def entries(program: Tapes, lanes: int = 1) -> int:
    """Functions in the table that `library` makes."""
    return len(table_of(program, lanes).instructions)


def library(
    program: Tapes,
    target: Target,
    *,
    drive: Sequence[str],
    text: str,
    exports: Sequence[str],
    size: bool = False,
) -> Library:
    """Emit one object that holds a Program's code.

    `text` may refer to `@tape.micro`, `@tape.update`, ... (words [number, 0]), `@table` (a function
    per number, 8 bytes each), `@strides`, and `@et_NAME__plain(i64 base, i64 args, i64 thread,
    i64 nthreads)` for each kernel that `drive` names; it declares what it uses.

    Args:
      drive: names of kernels of integers alone (`drive_train`, `run_tape`, ...).
      text: LLVM text of a module of the caller's, without triple and data layout.
      exports: symbols of `text` that stay visible.
      size: few bytes rather than few cycles.
    """
    table = table_of(program, _lanes(program, target))
    machine = _machine(target)
    module = _linked(table, program.threads, target, machine, drive, text)
    _internalise(module, exports)
    module = _marked(module, target, machine, size)
    _optimise(module, machine, size)
    code = machine.emit_object(module)
    return Library(target, code, table.lengths(), len(table.instructions), sections(code))


def _lanes(program: Tapes, target: Target) -> int:
    recipe = getattr(program, "recipe", {})
    return recipe.get("lanes") or target.lanes


def _machine(target: Target):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc=target.relocation, codemodel="small"
    )


def _linked(
    table: Table, threads: int, target: Target, machine, drive: Sequence[str], text: str
) -> llvm.ModuleRef:
    """One module of the Program's kernels, its instructions, the drive and the caller's text."""
    bits = target.pointer_bits
    named = [(registry.variants(name)[0], {}) for name in dict.fromkeys(drive)]
    glue = text_of_table(table, threads, bits)
    for kernel, storages in named:
        symbol, kinds = kernel.symbol(storages), kernel.spec.kinds
        glue += declaration(symbol, kinds) + entry_text(symbol, kinds)
    texts = [glue, *(kernel_text(k, s, bits) for k, s in (*table.kernels, *named)), text]
    module = _parsed(texts[0], target, machine)
    for other in texts[1:]:
        module.link_in(_parsed(other, target, machine))
    return module


def _parsed(text: str, target: Target, machine) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    return module


def _internalise(module: llvm.ModuleRef, exports: Sequence[str]) -> None:
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration and item.name not in exports:
            item.linkage = "internal"


def _marked(module: llvm.ModuleRef, target: Target, machine, size: bool) -> llvm.ModuleRef:
    """Loops stay loops (no memset or memcpy to link against); what is small stays small."""
    marks = 'nounwind "no-builtins"' + (" minsize optsize" if size else "")
    text = re.sub(r"^(define .*?)( \{)$", rf"\1 {marks}\2", str(module), flags=re.M)
    return _parsed(text, target, machine)


def _optimise(module: llvm.ModuleRef, machine, size: bool) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=2 if size else 3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    run_passes(module, machine, ("global_dead_code_eliminate",))


def sections(code: bytes) -> dict[str, int]:
    """Bytes of the sections of a little-endian ELF object that are loaded, by name."""
    wide = code[4] == 2
    (table,) = struct.unpack_from("<Q" if wide else "<I", code, 40 if wide else 32)
    size, count, names = struct.unpack_from("<HHH", code, 58 if wide else 46)
    layout = "<IIQQQQ" if wide else "<IIIIII"
    rows = [struct.unpack_from(layout, code, table + k * size) for k in range(count)]
    first, out = rows[names][4], {}
    for name, _, flags, _, _, nbytes in rows:
        start = first + name
        text = code[start : code.index(b"\0", start)].decode()
        if flags & 2 and nbytes:  # SHF_ALLOC
            out[text] = out.get(text, 0) + nbytes
    return out
