"""From a Program's file to memory, everything proved before a worker enters it."""
