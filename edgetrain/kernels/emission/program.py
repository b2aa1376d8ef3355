"""A Program's kernels as one object for one processor: nothing to link, no state, no other symbols.

Every instruction of a tape is a function with its integers as constants (tape.py). The step loop,
the caller's text and these functions become one LLVM module. Everything except the caller's exports
is internal, so that unused code is removed and two Programs can be linked into one firmware.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import llvmlite.binding as llvm

from ...errors import UnsupportedOpError
from .. import registry
from ..linking.reading import sections, undefined
from ..tapes.decode import Bound
from ..targets import IN_INTEGER, Target, rewrites
from .builtins import builtins_text, needed
from .frames import MARK, deepest, emitted
from .halves import PREFIX, in_integers
from .narrow import SYMBOL, narrowed
from .objects import (
    BUNDLE,
    DATA,
    Recipe,
    emit_object,
    finished,
    linked,
    machine_of,
    parsed,
    run_passes,
)
from .pair_functions import OPERATIONS
from .partial import PASSES, without_masks
from .rewritten import rewriting
from .tape import Table, Tapes, declaration, entry_text, table_of, text_of_table, worth_own_code
from .text import APART, direct, kernel_text


@dataclass(frozen=True)
class Library:
    """The emitted code.

    Attributes:
      code: a relocatable object (ELF) whose global symbols are the exports.
      lengths: bytes of each tape.
      entries: functions in `@table`, words in `@strides`.
      sizes: bytes of each loaded section.
      stack: bytes of stack that its deepest call chain takes, without functions of others that it
        calls and without padding for aligned vectors.
    """

    target: Target
    code: bytes
    lengths: Mapping[str, int]
    entries: int
    sizes: Mapping[str, int]
    stack: int = 0


def tape_lengths(program: Tapes) -> dict[str, int]:
    """Tape name -> bytes, of the tapes that `library` makes."""
    return table_of(program).lengths()


def entries(program: Tapes) -> int:
    """Number of functions in the table that `library` makes."""
    return len(table_of(program).entries)


def library(
    program: Tapes,
    target: Target,
    *,
    step_loop: Sequence[str],
    text: str,
    exports: Sequence[str],
    size: bool = False,
    mapped: str = "",
    imports: Collection[str] = (),
) -> Library:
    """Emit one object that contains a Program's code.

    `text` may refer to `@tape.micro`, `@tape.update`, ... (words [number, 0]), `@table` (a function
    per number, 8 bytes each), `@strides`, and `@et_NAME__plain(i64 base, i64 args, i64 thread, i64
    nthreads)` for each kernel in `step_loop`. It must declare what it uses.

    Args:
      step_loop: names of kernels that take only integers (`drive_train`, `run_tape`, ...).
      text: LLVM text of the caller's module, without triple and data layout.
      exports: symbols of `text` that stay visible.
      size: prefer few bytes to few cycles.
      mapped: symbol of another object's constant, 64-byte aligned, with the data that is mapped.
      imports: functions that `text` declares, provided by whoever loads the code.
    """
    table = table_of(program)
    recipe = _for(target, BUNDLE)
    rewritten = rewriting(rewrites(program.recipe))
    if target.halves == IN_INTEGER:
        plain, rewritten = rewritten, lambda text: in_integers(plain(text))
    texts = _texts(table, program.threads, target, step_loop, size, rewritten, mapped)
    module = linked([*texts, text], target, recipe)
    _internalise(module, exports)
    if target.module:  # each kernel brings its own copy of the same helpers
        run_passes(module, machine_of(target, recipe.relocation), ("merge_functions",))
    module = finished(_marked(module, table, step_loop, target, size), target, recipe)
    if target.module:
        machine = machine_of(target, recipe.relocation)
        module = parsed(without_masks(str(module)), target, machine)
        run_passes(module, machine, PASSES)
    code, frames = _closed(module, target, recipe, size, {mapped, *imports})
    stack = deepest(str(module), frames, 8 if target.triple.startswith("x86_64") else 0)
    return Library(target, code, table.lengths(), len(table.entries), sections(code), stack)


def constants(text: str, target: Target) -> tuple[bytes, dict[str, int]]:
    """(object, bytes of its sections) of a module that contains no code."""
    code = emit_object(text, target, _for(target, DATA))
    return code, sections(code)


def _for(target: Target, recipe: Recipe) -> Recipe:
    # A module is downloaded, and its engine unrolls hot code.
    small = {"unrolled": False, "vectorized": False} if target.module else {}
    return replace(recipe, relocation=target.relocation, **small)


def _texts(
    table: Table,
    threads: int,
    target: Target,
    step_loop: Sequence[str],
    size: bool,
    rewritten: Callable[[str], str],
    mapped: str,
) -> list[str]:
    """Texts of the Program's instructions, its kernels and the step loop.

    Args:
      rewritten: rewrites the text of a kernel or of the step loop.
    """
    bits = target.pointer_bits
    named: list[Bound] = [(registry.variants(name)[0], {}) for name in dict.fromkeys(step_loop)]
    # Vector kernels gain little from constant integers, and are long.
    inlined = worth_own_code(table) if target.lanes == 1 and not size else ()
    own_texts = [rewritten(kernel_text(k, storages, bits)) for k, storages in table.kernels]
    uses = Counter(instruction.kernel for instruction in table.instructions)
    # When optimising for size, a kernel that several instructions call stays a separate function.
    buffered = {
        k
        for k, instruction in enumerate(own_texts)
        if "alloca" in instruction and not (size and uses[k] > 1)
    }
    glue = text_of_table(table, threads, bits, inlined, buffered, mapped)
    for kernel, storages in named:
        symbol, kinds = kernel.symbol(storages), kernel.spec.kinds
        glue += declaration(symbol, kinds)
        glue += entry_text(symbol, kinds, alone=threads == 1 and kernel.name == "run_tape")
    return [glue, *own_texts, *(rewritten(kernel_text(k, s, bits)) for k, s in named)]


def _internalise(module: llvm.ModuleRef, exports: Sequence[str]) -> None:
    for item in (*module.functions, *module.global_variables):
        kept = item.name in exports or item.name.startswith("llvm.")
        if not item.is_declaration and not kept:
            item.linkage = "internal"


def _marked(
    module: llvm.ModuleRef, table: Table, step_loop: Sequence[str], target: Target, size: bool
) -> str:
    """The module's text with attributes: loops stay loops (there is no memset or memcpy to link
    against), cold code is optimised for size, and counts and positions are at most as wide as
    addresses."""
    text = str(module)
    if target.pointer_bits == 32:
        text = narrowed(text, _fitting(table, step_loop))
    hot = {direct(kernel.symbol(storages)) for kernel, storages in table.kernels}
    hot |= {f"i{number}" for number in range(len(table.instructions))}
    hot |= {f"g{number}" for number in range(len(table.entries))}
    brief = hot - _often(table) if target.module else set()
    hot |= {f"pair.{name}" for name in OPERATIONS}
    hot |= {
        function.name for function in module.functions if function.name.startswith((APART, PREFIX))
    }
    return _with_marks(text, set() if size else hot, brief)


def _often(table: Table) -> set[str]:
    """Functions of the instructions that run for each microbatch. These may inline a copy of a
    kernel's code; other functions of the module call it."""
    entries = set(table.numbers.get("micro", ()))
    return {f"g{k}" for k in entries} | {f"i{index}" for k in entries for index in table.entries[k]}


def _with_marks(text: str, hot: Collection[str], brief: Collection[str] = ()) -> str:
    """Add attributes to functions. Functions not in `hot` take little time and are optimised for
    size. Functions in `brief` get no copies of code that is specialised for constant arguments."""
    # LLVM 22 outlines common code of RISC-V functions wrongly; elsewhere outlining saves 1 %.
    mark = ' "nooutline"' if 'target triple = "riscv' in text else ""
    smallest = f" minsize optsize{mark}"

    def marked(match: re.Match) -> str:
        name = match[2].strip('"')
        small = (" optsize" if name in brief else "") if name in hot else smallest
        return f'{match[1]}{match[2]}{match[3]} nounwind "no-builtins" {MARK}{small} {{'

    return re.sub(rf"^(define .*?@)({SYMBOL})(\(.*) \{{$", marked, text, flags=re.M)


def _fitting(table: Table, step_loop: Sequence[str]) -> dict[str, list[str | None]]:
    """Function -> for each parameter whether it is a 32-bit count or address."""
    entry: list[str | None] = ["address", "address", "count", "count"]
    result = {f"i{number}": entry for number in range(len(table.instructions))}
    result |= {f"g{number}": entry for number in range(len(table.entries))}
    for name in step_loop:
        kernel = registry.variants(name)[0]
        result[kernel.symbol({})] = entry
        kinds: list[str | None] = ["address"] * len(kernel.spec.kinds)
        result[direct(kernel.symbol({}))] = ["count", "count", *kinds]
    for index, (kernel, storages) in enumerate(table.kernels):
        rows = [
            instruction.words for instruction in table.instructions if instruction.kernel == index
        ]
        parameters: list[str | None] = ["count", "count"]
        word = 0
        for kind in kernel.spec.kinds:
            fits = all(-(2**31) <= row[word] < 2**31 for row in rows)
            count = "count" if fits else None
            parameters.append({"r": "address", "t": "address", "f": None}.get(kind, count))
            word += 2 if kind == "t" else 1
        result[direct(kernel.symbol(storages))] = parameters
    return result


def _closed(
    module: llvm.ModuleRef, target: Target, recipe: Recipe, size: bool, others: set[str]
) -> tuple[bytes, dict[str, int]]:
    """The object, including the functions that LLVM calls on this processor, and its frames.

    Args:
      others: symbols that another object defines.
    Raises:
      UnsupportedOpError: it would call a function that we don't have.
    """
    have: set[str] = set()
    while True:
        code, frames = emitted(machine_of(target, recipe.relocation), module)
        missing = undefined(code) - others
        more = needed(missing) - have
        if not missing <= more:
            raise UnsupportedOpError(
                f"target {target.name}: the code needs {', '.join(sorted(missing - more))}, which "
                "is not available in this build. Choose another target."
            )
        if not more:
            return code, frames
        have |= more
        module.link_in(_builtins(more, target, recipe, size))


def _builtins(symbols: set[str], target: Target, recipe: Recipe, size: bool) -> llvm.ModuleRef:
    module = linked(builtins_text(symbols, target), target, recipe)
    _internalise(module, ())
    hot = set() if size else {function.name for function in module.functions}
    return finished(_with_marks(str(module), hot), target, recipe)


def functions(symbols: set[str], target: Target) -> bytes:
    """An object with our own functions that cover `symbols`, for others to link."""
    recipe = _for(target, BUNDLE)
    first, *texts = builtins_text(needed(symbols), target)
    first = first.replace("define internal", "define hidden")
    return emit_object(str(linked([first, *texts], target, recipe)), target, recipe)
