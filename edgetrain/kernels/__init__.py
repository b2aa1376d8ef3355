"""Compiled kernels: functions of the arena's base address and scalars; they know no ir.

declaration/ is how a kernel is declared: spec.py (one line of operands), ranges.py (what integers
may be), expression.py (what that line computes with). At the root are registry.py (finds a kernel
for operands and target), targets.py (processors) and control.py (the control block that all
share). Kernels are written in language/. Families, each of
which registers itself: attention, blocks, conv, elementwise, gemm, indexing, losses, norm,
optimizers, pool, recurrent, reductions, sparse; step_loop/ and device/ are the control of a run as
kernels, tapes/ runs instructions. Machine code: emission/ makes it, cache/ keeps and loads it,
linking/ joins it into libraries. loops/ compiles the planner's loops.
"""
