"""Kernels in plain Python: the same source and the same bits, slowly, with every access checked.

    python -m edgetrain.kernels.run NAME --compare            with the compiled kernel
    python -m edgetrain.kernels.run NAME --against VARIANT    two variants side by side

A kernel's own lines are run by Python, so that breakpoints, prints and a debugger work in them; the
intrinsics that they call are interpreted from the instructions that these emit (instructions.py).
"""
