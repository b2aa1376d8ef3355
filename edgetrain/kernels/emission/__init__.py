"""Python -> LLVM text -> an object for one processor, with all that the processor lacks."""
