"""Compiled kernels: functions of the arena's base address and scalars; they know no ir.

jit.py compiles, caches and loads; spec.py is the one-line declaration of a kernel's operands;
registry.py finds a kernel for operands and target; tape.py runs tapes; words/ is what kernels are
written in. Every other file, and those in conv/ and recurrent/, is a family that registers itself.
"""
