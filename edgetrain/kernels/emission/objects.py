"""LLVM text to objects, for kernels, libraries of them, the planner's loops and Programs: one path,
configured by a recipe.

program.py assembles a Program's code for a bundle.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import llvmlite.binding as llvm


class Processor(Protocol):
    """A processor's description for LLVM."""

    @property
    def triple(self) -> str: ...
    @property
    def cpu(self) -> str: ...
    @property
    def features(self) -> str: ...
    @property
    def pointer_bits(self) -> int: ...
    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Recipe:
    """How a text is compiled.

    Attributes:
      level: optimisation level of LLVM's passes.
      unrolled, vectorized: whether LLVM may unroll or vectorize loops.
      builtins: whether loops may become calls of memset and memcpy; also True if the text decides
        it for each function.
      narrow: whether divisions are in 32 bits if pointers are.
      whole: whether a kernel becomes one function with all helpers inlined; else LLVM chooses.
      closed: whether unused functions are removed.
      apart: whether each function has its own section, so that a library contains it only once.
      relocation: `pic`, or `static` if code runs in place.
    """

    level: int = 2
    unrolled: bool = False
    vectorized: bool = True
    builtins: bool = False
    narrow: bool = True
    whole: bool = True
    closed: bool = False
    apart: bool = False
    relocation: str = "pic"


# Kernels unroll the loops that gain by it themselves. Unrolled at level 3, they take 1.5 to 2 times
# as long to compile and are 25 to 80 % larger, and no family is faster by more than a tenth.
HOST = Recipe(builtins=True)  # a process has a C library
TARGET = Recipe()
LIBRARY = Recipe(apart=True)
LOOPS = Recipe(unrolled=True, builtins=True, whole=False)
# At level 3, the digits run a tenth fewer instructions, and recurrent nets are 14 to 81 % larger.
BUNDLE = Recipe(unrolled=True, builtins=True, narrow=False, whole=False, closed=True)
DATA = Recipe(level=0, builtins=True, narrow=False, whole=False)  # nothing is computed


def emit_object(text: str, target: Processor, recipe: Recipe) -> bytes:
    """Optimise a text for one processor and emit its object.

    Args:
      text: a module; functions whose names begin with `et_` are exported.
    """
    return machine_of(target, recipe.relocation).emit_object(finished(text, target, recipe))


def finished(text: str, target: Processor, recipe: Recipe) -> llvm.ModuleRef:
    """The module after every pass of the recipe, ready to emit."""
    machine = machine_of(target, recipe.relocation)
    if recipe.narrow and target.pointer_bits == 32:
        text = _narrow_division(text)
    if not recipe.builtins:
        # Loops must stay loops: there is no memset or memcpy to link against.
        text = re.sub(r"^(define .*?)( \{)$", r'\1 "no-builtins"\2', text, flags=re.M)
    module = parsed(text, target, machine)
    if recipe.whole:
        for function in module.functions:
            function.add_function_attribute("nounwind")
            if not function.is_declaration and not function.name.startswith("et_"):
                function.linkage = "internal"
                function.add_function_attribute("alwaysinline")
        _hide_variables(module)
    if recipe.level:
        options = llvm.create_pipeline_tuning_options(speed_level=recipe.level)
        options.loop_unrolling = recipe.unrolled
        options.loop_vectorization = recipe.vectorized
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    if recipe.closed:
        run_passes(module, machine, ("global_dead_code_eliminate",))
    if recipe.apart:
        _hide_variables(module)  # LLVM's own tables too: as symbols, so that their sizes are known
        module = llvm.parse_assembly(_apart(str(module)))
    return module


def printed(text: str) -> str:
    """A text in LLVM's own formatting."""
    return str(llvm.parse_assembly(text))


def linked(texts: Sequence[str], target: Processor, recipe: Recipe) -> llvm.ModuleRef:
    """Link several texts to one module."""
    machine = machine_of(target, recipe.relocation)
    first, *others = (parsed(text, target, machine) for text in texts)
    for other in others:
        first.link_in(other)
    return first


def parsed(text: str, target: Processor, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Parse a text to a module for a processor."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    return module


def run_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine, names: Sequence[str]) -> None:
    """Run LLVM's passes of these names, one after the other."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    manager = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)


@functools.cache
def machine_of(target: Processor, relocation: str = "pic") -> llvm.TargetMachine:
    """LLVM's description of a processor, shared by all objects."""
    return new_machine(target, relocation)


def new_machine(target: Processor, relocation: str = "pic") -> llvm.TargetMachine:
    """Like `machine_of`, but a new one, for an owner that disposes of it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc=relocation, codemodel="small"
    )


def _narrow_division(text: str) -> str:
    """Divide in 32 bits if pointers have 32 bits: quotients fit there, and no call is needed."""

    def narrow(match: re.Match) -> str:
        out, op, a, b = match.groups()
        name = out[1:].strip('"')
        x, y, z = (f'%"{name}.{part}"' for part in ("na", "nb", "nq"))
        return (
            f"{x} = trunc i64 {a} to i32\n{y} = trunc i64 {b} to i32\n"
            f"{z} = {op} i32 {x}, {y}\n{out} = sext i32 {z} to i64"
        )

    return re.sub(r'(%(?:"[^"]+"|\S+)) = ([su](?:div|rem)) i64 (\S+), (\S+)', narrow, text)


def _hide_variables(module: llvm.ModuleRef) -> None:
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"


def _apart(text: str) -> str:
    """Give each function its own comdat group. That also separates its jump tables from others',
    which a named section would not."""
    names = re.findall(r'^define [^@\n]*@("[^"]+"|[\w.$-]+)\(', text, flags=re.M)
    text = re.sub(r"^(define .*) \{$", r"\1 comdat {", text, flags=re.M)
    return text + "".join(f"${name} = comdat any\n" for name in names)
