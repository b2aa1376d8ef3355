"""Compiled kernels: functions of the arena's base address and scalars. They don't know the ir.

declaration/ defines how a kernel is declared: spec.py (its operands, one line), ranges.py (allowed
values of integers) and expression.py (expressions in that line). At the root are registry.py (finds
a kernel for operands and target), targets.py (processors) and control.py (the control block that
all share). Kernels are written in language/. The families register themselves: attention, blocks,
conv, elementwise, gemm, indexing, losses, norm, optimizers, pool, recurrent, reductions, sparse.
step_loop/ and device/ control a run and are kernels too; tapes/ runs instructions. For machine
code, emission/ generates it, cache/ stores and loads it, and linking/ joins it into libraries.
loops/ compiles the planner's loops.
"""
