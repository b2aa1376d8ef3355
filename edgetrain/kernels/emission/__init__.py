"""Compiles Python to LLVM text, and that to an object for one processor. The object includes
functions for instructions that the processor lacks."""
