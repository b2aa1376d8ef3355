"""Compiles Python to LLVM text, and the text to an object for one processor, including functions
for instructions that the processor lacks."""
