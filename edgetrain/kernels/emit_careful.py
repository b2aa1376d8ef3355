"""Objects for processors on which LLVM's third level is not to be trusted.

At 3, LLVM 22 makes other numbers of the plain lstm_bwd on armv7 and riscv64. Otherwise this is
native.py's `emit_object`, whose text every object of every other processor depends on.
"""

import re

import llvmlite.binding as llvm

from . import native
from .processor import Target

LEVEL = 2


def emit_object(text: str, target: Target) -> bytes:
    """Optimise a text for one processor and emit its object; loops stay loops."""
    machine = native.machine_of(target)
    if target.pointer_bits == 32:
        text = native.narrow_division(text)
    text = re.sub(r"^(define .*?)( \{)$", r'\1 "no-builtins"\2', text, flags=re.M)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    for function in module.functions:
        function.add_function_attribute("nounwind")
        if not function.is_declaration and not function.name.startswith("et_"):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=LEVEL)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)
