"""The planner's loops: a small subset of Python, compiled without numba, for a quick first plan.

Planning is search, and its innermost loops would take most of its time in Python. They are written
as Python functions of numbers and numpy arrays, so they can be read, run and tested as Python. This
package compiles the subset of Python that they use to LLVM text. From there on they are handled
like kernels: with a recipe of the emission (emission/objects.py), the same cache, and a place in an
installed library.

Why not numba, which compiles the kernels? Because a first plan waits for it. Kernels are compiled
by several processes while the plan is being made, but the loops make the plan. With `numba.njit`,
the same functions give the same plans, but the first plan of the digits on an empty cache takes
22.9 seconds of processor time instead of 3.2, of which planning itself takes 1.0. Numba infers
types of unannotated code, lowers it through its own IR and wraps every call from Python. The loops
have annotations, no objects, no exceptions and no allocation, so they need none of that.

    kinds.py         types that loops take: numbers, arrays, records of both
    functions.py     what Python calls: entries, and units that are compiled together
    instructions.py  values in LLVM, arithmetic, memory, jumps between blocks
    text.py          expressions, statements and functions -> text -> object

Constructs that text.py does not support are refused with their line when the unit is compiled;
`tests/kernels/test_loops.py` compares every construct with Python itself.
"""
