"""Kernels in plain Python: the same source and the same bits, slowly, with every access checked.

    python -m edgetrain.kernels.run NAME --compare            with the compiled kernel
    python -m edgetrain.kernels.run NAME --against VARIANT    two variants side by side

Python runs a kernel's own lines, so breakpoints, prints and debuggers work in them. The intrinsics
that they call are interpreted from the LLVM instructions that they emit (instructions.py).
"""
