"""Compiled kernels: functions of the arena's base address and scalars; they know no ir.

At the root is how a kernel is declared: spec.py (one line of operands), expression.py (what that
line computes with), registry.py (finds a kernel for operands and target), targets.py (processors),
control.py (the control block that all share). Kernels are written in language/. Families, each of
which registers itself: attention, blocks, conv, elementwise, gemm, indexing, losses, norm,
optimizers, pool, recurrent, reductions, sparse; drive/ and device/ are the control of a run as
kernels, tapes/ runs instructions. Machine code: emission/ makes it, cache/ keeps and loads it,
linking/ joins it into libraries. loops/ compiles the planner's loops.
"""
