"""Compiled kernels: functions of the arena's base address and scalars; they know no ir.

jit.py compiles, caches and loads; prim.py holds the words kernels are written in; spec.py
the one-line declaration of a kernel's operands; registry.py finds a kernel for operands and
target; every other file is a family of kernels that registers itself.
"""
