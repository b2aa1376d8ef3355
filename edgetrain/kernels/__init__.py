"""Compiled kernels: functions of the arena's base address and scalars; they know no ir.

jit.py compiles, caches and loads; spec.py is the one-line declaration of a kernel's operands;
registry.py finds a kernel for operands and target; tape.py runs tapes; words/ is what kernels are
written in. targets.py names processors; emit.py makes one object of a Program's kernels for any of
them (emit_text: a kernel's text, emit_tape: instructions as functions, emit_narrow: 32 bits,
emit_builtins and soft_float: what a processor lacks, elf: what an object says). Every other file, and those in conv/ and recurrent/, is a family that registers itself.
"""
