"""LLVM text to objects, for kernels, libraries of them and the planner's loops: one way, by recipe.

A Program's code for a bundle is made of many texts, in several rounds: program.py.
"""

import functools
import re
from dataclasses import dataclass
from typing import Protocol

import llvmlite.binding as llvm

from ..cache.processor import Target


class Processor(Protocol):
    """What LLVM is told of a processor."""

    @property
    def triple(self) -> str: ...
    @property
    def cpu(self) -> str: ...
    @property
    def features(self) -> str: ...


@dataclass(frozen=True)
class Recipe:
    """What is done with a text.

    Attributes:
      level: of LLVM's passes.
      builtins: whether loops may become calls of memset and memcpy.
      whole: whether a kernel becomes one function, with all helpers in it; else LLVM chooses.
      apart: whether each function has a section of its own, so that a library holds it once.
    """

    level: int = 3
    builtins: bool = False
    whole: bool = True
    apart: bool = False


HOST = Recipe(builtins=True)  # a process has a C library
TARGET = Recipe()
LIBRARY = Recipe(apart=True)
LOOPS = Recipe(level=2, builtins=True, whole=False)


def emit_object(text: str, target: Target, recipe: Recipe) -> bytes:
    """Optimise a text for one processor and emit its object.

    Args:
      text: a module; functions that begin with `et_` are seen from outside.
    """
    machine = machine_of(target)
    if target.pointer_bits == 32:
        text = _narrow_division(text)
    if not recipe.builtins:
        # Keep loops loops: no memset or memcpy to link against.
        text = re.sub(r"^(define .*?)( \{)$", r'\1 "no-builtins"\2', text, flags=re.M)
    module = parsed(text, target, machine)
    if recipe.whole:
        for function in module.functions:
            function.add_function_attribute("nounwind")
            if not function.is_declaration and not function.name.startswith("et_"):
                function.linkage = "internal"
                function.add_function_attribute("alwaysinline")
        _hide_variables(module)
    optimise(module, machine, recipe.level)
    if recipe.apart:
        _hide_variables(module)  # tables of LLVM's own too: as symbols, so that extents are known
        module = llvm.parse_assembly(_apart(str(module)))
    return machine.emit_object(module)


def parsed(text: str, target: Processor, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """A text as a module for a processor."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    return module


def optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    """Run LLVM's passes of a level over a module."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


@functools.cache
def machine_of(target: Target) -> llvm.TargetMachine:
    """LLVM's description of a processor, one for all objects."""
    return new_machine(target)


def new_machine(target: Processor, relocation: str = "pic") -> llvm.TargetMachine:
    """As `machine_of`, for an owner that ends it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc=relocation, codemodel="small"
    )


def _narrow_division(text: str) -> str:
    """Divide in 32 bits where pointers have 32: no quotient is wider there, and no call needed."""

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
    """Each function with a group of its own: that parts its tables of jumps from others' as well,
    which a section by name would not."""
    names = re.findall(r'^define [^@\n]*@("[^"]+"|[\w.$-]+)\(', text, flags=re.M)
    text = re.sub(r"^(define .*) \{$", r"\1 comdat {", text, flags=re.M)
    return text + "".join(f"${name} = comdat any\n" for name in names)
