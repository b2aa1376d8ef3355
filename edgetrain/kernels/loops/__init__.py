"""The planner's loops: a small part of Python, compiled without numba, for a quick first plan.

Planning is search, and its innermost loops would take most of its time in Python. They are written
as Python functions of numbers and numpy arrays, so they can be read, run and tested as such; here
the part of Python that they use becomes LLVM text. From the text on they go the way of kernels: one
recipe of the emission (emission/objects.py), one cache, one place in an installed library.

Why not numba, which compiles the kernels? Because a first plan waits for it. Kernels are compiled
by several processes while the plan is being made; the loops make the plan. The same functions under
`numba.njit` give the same plans, and the first plan of the digits on an empty cache takes 22.9
seconds of a processor with it and 3.2 so, of which 1.0 is the planning itself. Numba infers types
of unannotated code, lowers it through its own IR and wraps every call from Python; the loops have
annotations, no objects, no exceptions and no allocation, and need none of that.

    kinds.py         what loops take: numbers, arrays, records of both
    functions.py     what Python sees: units that are compiled together, calls
    instructions.py  values as LLVM holds them, arithmetic, memory, ways between blocks
    text.py          expressions, statements and functions -> text -> object

What is not in the part of Python that text.py knows is refused with its line when the unit is
compiled; `tests/kernels/test_loops.py` has every construct, against Python itself.
"""
