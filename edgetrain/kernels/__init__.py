"""Compiled kernels: functions of the arena's base address and scalars; they know no ir.

Every file that is not named here, and those in folders, is a family that registers itself.
Written in: words/. Declared: spec.py (one line of operands), registry.py (finds a kernel for
operands and target), tape.py (runs tapes), drive/ and device/ (the control of a run).
Machine code: jit.py and native.py (numba's text to an object, cached), load.py (an installed
library, the cache's, or LLVM's), shared_object.py (writes libraries), targets.py (processors) and
emit.py (one object of a Program's kernels for any of them: emit_text, emit_tape, emit_narrow,
emit_builtins, soft_float, elf).
"""
