"""Objects of the planner's loops: their text (loop_text.py) through LLVM.

Imported only where one has to be compiled. Numba would make the same text, in ten times the time.
"""

from collections.abc import Mapping

import llvmlite.binding as llvm

from .loop_kinds import Entry
from .loop_text import text_of
from .processor import Target


def object_of(entries: Mapping[str, Entry], target: Target) -> bytes:
    """One object with the entries by symbol; what they share is in it once.

    Helpers stay functions unless they are small, loops stay as they are written.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(text_of(entries))
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)
